"""Suites of strings: which files load and which are refused; the shipped strings and walks.

The shipped strings are judged by the engine over single bytes, and without it by a regex on bytes.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llguidance
import pytest

from pipeline.grammars.case import Case, Grammar, StringGrammar
from pipeline.grammars.checkers import check
from pipeline.grammars.languages import ByteGrammar
from pipeline.grammars.suites import load, load_named, load_strings
from pipeline.model.errors import SuiteError
from support.command import ROOT

DATASETS = ROOT / "datasets"
STRINGS = load_strings(DATASETS / "strings.yaml")
WALKS = load_named("walks", DATASETS)
BYTES = llguidance.LLTokenizer("byte")


def a_grammar(**changes: Any) -> dict[str, Any]:
    """A valid entry with these changes. A field that is changed to None is left out."""
    entry: dict[str, Any] = {
        "id": "one",
        "grammar": {"lark": 'start: "a"'},
        "accept": ["a"],
        "reject": ["", "b"],
        "regex": "a",
    }
    return {k: v for k, v in (entry | changes).items() if v is not None}


def write(folder: Path, *grammars: Any, **top: Any) -> Path:
    path = folder / "some.json"
    document = {"suite": "some", "about": "a test", "grammars": grammars} | top
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


def refusal(path: Path, reader: Callable[[Path], object] = load_strings) -> str:
    """The error message without the file's path. It must be one line that begins with the path."""
    with pytest.raises(SuiteError) as caught:
        reader(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert message.endswith(".")
    return message.removeprefix(f"{path}: ")


# ── what loads ──────────────────────────────────────────────────────────────────────────────────


def test_yaml_file_becomes_grammars(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        """
        suite: x
        about: text and raw bytes
        grammars:
          - id: text
            grammar: {lark: 'start: "é\\n" | "on"'}
            accept: ["é\\n", on, ""]
            reject: [{hex: "c30a"}, {hex: "ff00"}]
            regex: (é\\n|on)?
          - id: schema
            grammar: {json: {enum: [12:30, {b: 1, a: 2}]}}
            accept: ['"12:30"']
            reject: []
        """
    )
    suite = load_strings(path)
    assert (suite.name, suite.about) == ("x", "text and raw bytes")
    lark = Grammar("lark", 'start: "é\\n" | "on"')
    schema = Grammar("json", '{"enum":["12:30",{"b":1,"a":2}]}')
    assert suite.grammars == (
        StringGrammar(
            "x", "text", lark, (b"\xc3\xa9\n", b"on", b""), (b"\xc3\n", b"\xff\x00"), r"(é\n|on)?"
        ),
        StringGrammar("x", "schema", schema, (b'"12:30"',), (), None),
    )
    assert len(set(suite.grammars)) == 2, "grammars can be kept in sets"


def test_hash_is_of_the_grammars_alone(tmp_path: Path) -> None:
    def hash_of(*grammars: Any, **top: Any) -> str:
        return load_strings(write(tmp_path, *grammars, **top)).hash

    first = hash_of(a_grammar())
    assert first == hash_of(a_grammar(), about="other words")
    assert first == hash_of(a_grammar(accept=[{"hex": "61"}]))
    others = [
        hash_of(a_grammar(id="two")),
        hash_of(a_grammar(regex=None)),
        hash_of(a_grammar(regex="[a]")),
        hash_of(a_grammar(reject=["b", ""])),
        hash_of(a_grammar(reject=["", "b", {"hex": "ff"}])),
        hash_of(a_grammar(reject=["", "b", "\u00ff"])),
        hash_of(a_grammar(grammar={"lark": 'start: "a" '})),
        hash_of(a_grammar(), a_grammar(id="two")),
    ]
    assert len({first, *others}) == 1 + len(others)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────

TEXT_OR_HEX = 'it must be text, or {hex: "ff00"} for raw bytes.'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept": []}, "accept: is []; it must be a list of at least one string."),
        ({"accept": None}, "accept is missing; it must be a list of at least one string."),
        ({"accept": "a"}, 'accept: is "a"; it must be a list of at least one string.'),
        ({"reject": None}, "reject is missing; it must be a list of strings, which may be empty."),
        ({"accept": ["a", 5]}, f"accept number 2: is 5; {TEXT_OR_HEX}"),
        ({"reject": [None]}, f"reject number 1: is null; {TEXT_OR_HEX}"),
        ({"reject": [{"hex": "f"}]}, f'reject number 1: is {{"hex": "f"}}; {TEXT_OR_HEX}'),
        ({"reject": [{"hex": "FF"}]}, f'reject number 1: is {{"hex": "FF"}}; {TEXT_OR_HEX}'),
        ({"reject": [{"hex": "ff\n"}]}, f'is {{"hex": "ff\\n"}}; {TEXT_OR_HEX}'),
        ({"reject": [{"hex": ""}]}, f'is {{"hex": ""}}; {TEXT_OR_HEX}'),
        ({"reject": [{"text": "b"}]}, f'is {{"text": "b"}}; {TEXT_OR_HEX}'),
        (
            {"accept": ["a", {"hex": "61"}]},
            'accept number 2: is {"hex": "61"}, the same bytes as accept number 1; give each ',
        ),
        (
            {"reject": ["b", "c", "b"]},
            'reject number 3: is "b", the same bytes as reject number 1; give each string once.',
        ),
        (
            {"reject": ["b", "a"]},
            'reject number 2: is "a", the same bytes as accept number 1; give each string once.',
        ),
        (
            {"accept": ["a", "c"]},
            'accept number 2: is "c", which does not match regex; regex must mean the same as ',
        ),
        ({"accept": ["a\n"]}, 'accept number 1: is "a\\n", which does not match regex; '),
        ({"regex": "a|b"}, 'reject number 2: is "b", which matches regex; regex must mean the '),
        ({"regex": "("}, "regex: '(' is not a Python regex: missing ), "),
        ({"regex": "[é]"}, "regex: '[é]' has a non-ASCII character in [...]"),
        ({"regex": 5}, "regex: is 5; it must be text, not empty."),
        ({"grammar": {}}, "grammar: has no key; it must be a mapping with exactly one of lark, "),
        ({"grammar": {"lark": ""}}, 'grammar.lark: is ""; it must be text, not empty.'),
        ({"grammar": {"json": {"type": "objekt"}}}, "grammar.json: is not a valid JSON Schema "),
        (
            {"prompt": "a"},
            "unknown key 'prompt'; it must be a mapping with id, grammar, accept, reject, regex.",
        ),
    ],
)
def test_bad_grammar_names_grammar_field_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    said = refusal(write(tmp_path, a_grammar(id="fine"), a_grammar(**changes)))
    assert said.startswith("grammar 'one' (number 2)")
    assert message in said


@pytest.mark.parametrize(
    ("grammars", "message"),
    [
        ([], "grammars: is []; it must be a list of at least one grammar."),
        (["a"], 'grammar number 1: is "a"; it must be a mapping with id, grammar, accept, '),
        ([a_grammar(id="A b")], "grammar 'A b' (number 1), id: is \"A b\"; it must be text of "),
        (
            [a_grammar(), a_grammar()],
            "grammar 'one' (number 2), id: an earlier grammar has the same id; ids must be unique.",
        ),
    ],
)
def test_bad_list_of_grammars(tmp_path: Path, grammars: list[Any], message: str) -> None:
    assert message in refusal(write(tmp_path, *grammars))


def test_each_kind_of_file_has_its_reader(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, a_grammar()), load)
    assert said == "unknown key 'grammars'; it must be a mapping with suite, about, cases."
    said = refusal(write(tmp_path, a_grammar(), grammars=None, cases=[]))
    assert said == "unknown key 'cases'; it must be a mapping with suite, about, grammars."
    path = tmp_path / "deep.yaml"
    path.write_bytes(b"[" * 5000)
    assert refusal(path) == "is nested too deeply to be read; make it flatter."
    assert "cannot be read: " in refusal(tmp_path / "missing.yaml")


# ── the shipped strings ─────────────────────────────────────────────────────────────────────────


def named(grammar: StringGrammar) -> str:
    return grammar.id


def judge(grammar: StringGrammar | Case) -> ByteGrammar:
    judge = ByteGrammar(grammar.grammar.engine_text()[1])
    assert judge.error is None, judge.error
    return judge


def byte_walks(grammar: Grammar, seed: int, n_walks: int, n_bytes: int) -> Iterator[bytes]:
    """The complete texts that random walks through the mask pass."""
    draw, start = random.Random(seed), llguidance.LLMatcher(BYTES, grammar.engine_text()[1])
    for _ in range(n_walks):
        state, text = start.deep_copy(), bytearray()
        while len(text) <= n_bytes:
            mask = state.compute_bitmask()
            allowed = [i for i in range(BYTES.vocab_size) if mask[i >> 3] >> (i & 7) & 1]
            assert allowed, f"dead end after {bytes(text)}"
            if BYTES.eos_token in allowed:
                yield bytes(text)
                allowed.remove(BYTES.eos_token)
            if not allowed:
                break
            text.append(draw.choice(allowed))
            assert state.consume_token(text[-1])


def near(texts: tuple[bytes, ...]) -> set[bytes]:
    """Near misses: every beginning, and texts with one byte less, more or changed."""
    alphabet = [b" ", b"\n", b"\t", b"a", b"0", b".", b'"', b"\x00", b"\x80", b"\xe2\x96\x81"]
    found: set[bytes] = set()
    for text in texts:
        for at in range(len(text) + 1):
            found |= {text[:at], text[:at] + text[at + 1 :]}
            for extra in alphabet:
                found |= {text[:at] + extra + text[at:], text[:at] + extra + text[at + 1 :]}
    return found


def test_there_are_enough() -> None:
    assert load_strings(DATASETS / "strings.yaml") == STRINGS
    assert STRINGS.name == "strings"
    assert len(STRINGS.grammars) >= 66
    assert sum(len(g.accept) + len(g.reject) for g in STRINGS.grammars) >= 450
    assert sum(g.regex is not None for g in STRINGS.grammars) >= 40
    assert {g.grammar.kind for g in STRINGS.grammars} == {"lark", "json"}
    for grammar in STRINGS.grammars:
        assert len(grammar.reject) >= 3, grammar.id


@pytest.mark.parametrize("grammar", STRINGS.grammars, ids=named)
def test_every_string_by_the_byte_oracle_and_by_regex(grammar: StringGrammar) -> None:
    oracle = judge(grammar)
    for text in grammar.accept:
        match = oracle.match(text)
        assert match.complete, f"{text!r} stops after {match.n_legal} bytes"
    for text in grammar.reject:
        assert not oracle.match(text).complete, text
    if grammar.regex is not None:
        regex = re.compile(grammar.regex.encode())
        assert all(regex.fullmatch(text) for text in grammar.accept)
        assert not any(regex.fullmatch(text) for text in grammar.reject)


@pytest.mark.parametrize("grammar", [g for g in STRINGS.grammars if g.regex], ids=named)
def test_regex_and_grammar_say_the_same_of_other_texts(grammar: StringGrammar) -> None:
    """Near misses of the accepted texts, and texts that the mask itself leads to."""
    assert grammar.regex is not None
    oracle, regex = judge(grammar), re.compile(grammar.regex.encode())
    texts = near(grammar.accept[:2]) | set(
        byte_walks(grammar.grammar, seed=1, n_walks=10, n_bytes=100)
    )
    for text in texts:
        assert oracle.match(text).complete == bool(regex.fullmatch(text)), text


@pytest.mark.parametrize(
    ("grammar", "regex", "text", "by_engine"),
    [
        # A lexeme matches as much as it can and does not backtrack: nothing is left for the next.
        ('start: /[a-z]{1,3}/ "b"', r"[a-z]{1,3}b", "aab", False),
        ('start: /[a-z ]+/ " end"', r"[a-z ]+ end", "a end", False),
        ("start: /a*/ /a/", r"a*a", "aa", False),
        ('start: /( [a-z]+){1,3}/ /( ;)?/ "."', r"( [a-z]+){1,3}( ;)?\.", " a ;.", False),
        # The i flag, \d, \w and \s follow Unicode: U+017F is an s, U+212A a k, U+0663 a digit.
        ('start: "yes"i', r"(?i:yes)", "ye\u017f", True),
        ('start: "k"i', r"(?i:k)", "\u212a", True),
        (r"start: /\d/", r"\d", "\u0663", True),
        (r"start: /\s/", r"\s", "\u00a0", True),
    ],
)
def test_where_the_engine_and_re_mean_different_things(
    grammar: str, regex: str, text: str, by_engine: bool
) -> None:
    """Known differences, which the shipped strings avoid. If the engine changes, this fails."""
    oracle = ByteGrammar(Grammar("lark", grammar).engine_text()[1])
    assert oracle.match(text.encode()).complete is by_engine
    assert bool(re.fullmatch(regex.encode(), text.encode())) is not by_engine


# ── the shipped walks ───────────────────────────────────────────────────────────────────────────


def test_walks_begin_with_the_grammar_that_shows_the_bpe_defects() -> None:
    assert len(WALKS.cases) >= 14
    assert WALKS.cases[0].grammar.text == 'start: /[.a-z]{2,6}/ "!"'
    assert all(64 <= case.max_tokens <= 128 for case in WALKS.cases)


@pytest.mark.parametrize("case", WALKS.cases, ids=lambda case: case.id)
def test_walks_are_accepted_by_the_checker(case: Case) -> None:
    """The checker accepts random byte walks, and agrees with the engine on near misses."""
    oracle = judge(case)
    texts = tuple(byte_walks(case.grammar, seed=2, n_walks=20, n_bytes=250))
    assert texts
    for text in texts:
        assert check(case.check, text) is None, text
    if case.id != "free_text":
        assert max(map(len, texts)) < case.max_tokens
    if case.id != "stop_or_letter":
        assert max(map(len, texts)) >= 20
    for text in near(texts[-1:]):
        assert oracle.match(text).complete == (check(case.check, text) is None), text
