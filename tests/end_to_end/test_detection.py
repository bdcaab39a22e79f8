"""Tests of the harness itself: each broken builder is detected by each suite that can see it.

`BLIND` lists every exception: the pairs of builder and suite that are not detected, with the
reason. Both directions are asserted: all other pairs are detected, and these are not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import cast

import pytest

from pipeline.model.verdicts import Standing
from support import detection
from support.broken_builders import BROKEN, BrokenBuilder
from support.command import ROOT
from support.detection import SUITES, VOCABULARIES, Detector, Faults

sys.path.append(str(ROOT / "scripts"))
import detection_matrix

pytestmark = pytest.mark.slow

SPM, BPE = ("llama_spm",), ("llama_bpe",)
BOTH = VOCABULARIES
GENERATION = detection.GENERATED

NOTHING_TO_BREAK = {
    ("keeps_last_duplicate", "llama_bpe"): "no two ids have the same bytes",
    ("keeps_first_duplicate", "llama_bpe"): "no two ids have the same bytes",
    ("cuts_at_32_bytes", "llama_spm"): "the longest token has 27 bytes",
}

_BYTES_RIGHT = "it compares claimed bytes, which are right here"
_NOT_THE_TABLE = "tokens come from llama_tokenize and are judged by true bytes: no claim is used"
_SAME_TEXT = "every probe is tokenized to other ids, or by llama_tokenize itself"
_NO_MASK = "it computes no mask"
_MASK_RIGHT = "the masks are right: less is forced, and no legal token is missing"
_A_WAY_LEFT = "the model continues with the tokens that are left"
_NOT_FREE = "free text forces nothing, so the tokenization is not used"
_ALL_MARKED = "every token of this vocabulary that is not text is marked; its claim is not used"
_NOT_MET = "its one token is in none of these texts"

BLIND: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("keeps_last_duplicate", "exactness"): (BOTH, _SAME_TEXT),
    ("keeps_first_duplicate", "exactness"): (BOTH, _SAME_TEXT),
    ("keeps_first_duplicate", "specials"): (BOTH, "byte tokens come first and are kept"),
    ("strips_one_space", "specials"): (BPE, _ALL_MARKED),
    ("strips_one_tokens_space", "exactness"): (BOTH, "no probe uses its one token"),
    ("strips_one_tokens_space", "position_0"): (BPE, "the token is four spaces, still illegal"),
    ("strips_one_tokens_space", "specials"): (BOTH, "the token is plain text"),
    ("shifts_ids", "specials"): (BPE, _ALL_MARKED),
    ("wrong_end", "exactness"): (BOTH, "no end is tokenized"),
    ("wrong_end", "position_0"): (BOTH, "no text of its grammars is complete there"),
    ("no_end", "exactness"): (BOTH, "no end is tokenized"),
    ("no_end", "position_0"): (BOTH, "no text of its grammars is complete there"),
    ("no_end", "specials"): (BOTH, "it looks for an end inside text, where none belongs"),
    ("text_marked_special", "exactness"): (BOTH, _SAME_TEXT),
    ("text_marked_special", "position_0"): (SPM, "its one token has capital letters"),
    ("text_marked_special", "specials"): (BOTH, "tokens typed as plain text have no row"),
    ("text_marked_special", "strings"): (BPE, _NOT_MET),
    ("forgets_the_marker", "exactness"): (BPE, _NOT_THE_TABLE),
    ("forgets_the_marker", "position_0"): (BOTH, "no special token's name fits its grammars"),
    ("forgets_the_marker", "strings"): (BOTH, "spellings use no token that renders nothing"),
    ("greedy_but_claims_exact", "token_table"): (BOTH, _BYTES_RIGHT),
    ("greedy_but_claims_exact", "position_0"): (BOTH, _MASK_RIGHT),
    ("greedy_but_claims_exact", "specials"): (BOTH, _NOT_FREE),
    ("greedy_but_claims_exact", "standing"): (BOTH, "another split of the same bytes is no fault"),
    ("greedy_but_claims_exact", "walks"): (BOTH, _MASK_RIGHT),
    ("greedy_but_claims_exact", "strings"): (BOTH, _NO_MASK),
    ("forces_inexact", "token_table"): (BOTH, _BYTES_RIGHT),
    ("forces_inexact", "specials"): (BOTH, _NOT_FREE),
    ("forces_inexact", "strings"): (BOTH, "the tokens are given; none is forced"),
    ("crashes_on_mask", "token_table"): (BOTH, _BYTES_RIGHT),
    ("crashes_on_mask", "exactness"): (BOTH, _NO_MASK),
    ("crashes_on_mask", "specials"): (BPE, "none of its tokens may be allowed, and none is"),
    ("crashes_on_mask", "laws"): (BOTH, "the laws check tables, and this one is right"),
    ("cuts_at_32_bytes", "exactness"): (BOTH, _NOT_THE_TABLE),
    ("cuts_at_32_bytes", "position_0"): (BOTH, "no token of its grammars is that long"),
    ("cuts_at_32_bytes", "specials"): (BOTH, "the longest name of a special token has 30 bytes"),
    ("cuts_at_32_bytes", "strings"): (BOTH, "no string has such a long token"),
    **{
        (name, suite): (BOTH, reason)
        for suite in GENERATION
        for name, reason in {
            "keeps_last_duplicate": _A_WAY_LEFT,
            "keeps_first_duplicate": _A_WAY_LEFT,
            "strips_one_tokens_space": "the model never takes its one token",
            "text_marked_special": _A_WAY_LEFT,
            "forgets_the_marker": "no case leaves the model free to write a special token's name",
            "greedy_but_claims_exact": _MASK_RIGHT,
            "cuts_at_32_bytes": "no case has room for such a long token",
        }.items()
    },
}
"""(broken builder, suite) → the vocabularies on which the suite cannot see it, and why."""


@pytest.fixture(scope="module")
def detector() -> Iterator[Callable[[str], Detector]]:
    with ExitStack() as stack:

        @cache
        def opened(name: str) -> Detector:
            return Detector.open(name, stack)

        yield opened


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_broken_builder_is_detected_by_every_suite_that_could_see_it(
    detector: Callable[[str], Detector], broken: BrokenBuilder, vocabulary: str
) -> None:
    row = detector(vocabulary).row(broken)
    if (broken.name, vocabulary) in NOTHING_TO_BREAK:
        assert row is None
        return
    assert row is not None
    blind = {
        suite for suite in SUITES if vocabulary in BLIND.get((broken.name, suite), ((), ""))[0]
    }
    assert {suite for suite, detected in row.items() if not detected} == blind
    assert blind < set(SUITES)


def test_the_table_of_the_blind_names_what_there_is() -> None:
    names = {broken.name for broken in BROKEN}
    assert len(names) == len(BROKEN)
    assert {name for name, _ in (*BLIND, *NOTHING_TO_BREAK)} <= names
    assert {suite for _, suite in BLIND} <= set(SUITES)


def test_fixed_is_clean_on_llama_spm(detector: Callable[[str], Detector]) -> None:
    assert detector("llama_spm").fixed == dict.fromkeys(SUITES, Faults())


def test_fixed_on_llama_bpe_is_clean_but_for_what_llama_tokenize_does(
    detector: Callable[[str], Detector],
) -> None:
    """`llama_tokenize` parses specials: a literal that begins with a special's name forces it.

    Bytes that are not UTF-8 never reach it, so they are split in another way than it would.
    """
    one = detector("llama_bpe")
    fixed = dict(one.fixed)
    walked = cast(frozenset[tuple[str, bytes, Hashable]], fixed.pop("walks"))
    forced = {case for case, before, _ in walked if before == b""}
    hidden = {case.id for case in one.languages if case.suite == "specials"}
    assert forced == hidden
    inexact = cast(frozenset[tuple[str, Hashable]], fixed.pop("exactness"))
    probes = {probe for probe, _ in inexact}
    assert probes
    for probe in probes:
        assert "<|" in probe or not _is_utf8(probe.encode("latin-1")), probe
    assert fixed.pop("standing") == {Standing.LIMITED}
    assert fixed == dict.fromkeys(fixed, Faults())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_matrix_is_printed_and_a_builder_that_nobody_sees_is_named() -> None:
    row: dict[str, bool] = dict.fromkeys(SUITES, False)
    found: dict[str, dict[str, dict[str, bool] | None]] = {
        "one": {"seen": row | {"walks": True}, "unseen": row, "absent": None, "half": None},
        "two": {"seen": row | {"laws": True}, "unseen": row, "absent": None, "half": row},
    }
    assert detection_matrix.unseen(found) == ["unseen", "absent", "half"]
    lines = detection_matrix.markdown("one", SUITES, found["one"]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].count("yes") == 1
    assert "yes" not in lines[3]
    assert "nothing to break" in lines[4]


def test_the_published_matrix_is_this_one() -> None:
    """`docs/detection-matrix.md` is what the script prints."""
    published = (ROOT / "docs" / "detection-matrix.md").read_text("utf-8")
    for vocabulary in VOCABULARIES:
        expected = {
            broken.name: None
            if (broken.name, vocabulary) in NOTHING_TO_BREAK
            else {
                suite: vocabulary not in BLIND.get((broken.name, suite), ((), ""))[0]
                for suite in SUITES
            }
            for broken in BROKEN
        }
        assert detection_matrix.markdown(vocabulary, SUITES, expected) in published
