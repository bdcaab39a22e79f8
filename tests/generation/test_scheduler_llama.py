"""The scheduler with llama.cpp: the same text in any batch, with forged and real weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipeline.engines import builders
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Material, TokenTable
from pipeline.generation.cell import Cell, Transcript
from pipeline.generation.request import prompt_ids
from pipeline.generation.scheduler import Scheduler, single_row_differs
from pipeline.generation.settings import Sampling
from pipeline.grammars import suites
from pipeline.model.verdicts import End, Lost
from pipeline.native import llama
from pipeline.native.context import Context, Entry
from pipeline.vocab import vocabulary
from pipeline.vocab.files import forge, resolve
from pipeline.vocab.files.source import Source, cache_dir
from support.command import ROOT
from support.vocabularies import vocabulary_file

# --- with llama.cpp -------------------------------------------------------------------------------

GRAMMARS = [
    'start: "The quick brown fox"',
    "start: /[a-z]{1,9}/",
    'start: "yes" | "no" | "perhaps"',
    'start: %json {"type": "object", "properties": {"a": {"type": "boolean"}}, '
    '"required": ["a"], "additionalProperties": false}',
    'start: "BEGIN [" /[a-z ]{1,20}/ "] END"',
    RAMBLING := 'start: "unclosed',
]
PROMPTS = ["Hello", "Hello", "", "A longer prompt than the others have, long enough to be shared"]


@dataclass(frozen=True)
class Real:
    """A model and the objects that its cells need."""

    model: llama.Model
    vocabulary: vocabulary.Vocabulary
    engine: Llguidance
    tables: dict[str, TokenTable]

    def cells(self) -> Iterator[Cell]:
        for i, grammar in enumerate(GRAMMARS):
            for j, prompt in enumerate(PROMPTS):
                yield self.cell(
                    f"{i}/{j}",
                    ("fixed", "unfixed")[(i + j) % 2],
                    prompt,
                    f"%llguidance {{}}\n{grammar}",
                    60 if grammar == RAMBLING else 4 + (5 * i + 3 * j) % 11,
                    drop=j != 1,
                )

    def cell(
        self, key: str, builder: str, prompt: str, grammar: str, limit: int, *, drop: bool = True
    ) -> Cell:
        return Cell(
            key=key,
            prompt=prompt_ids(self.model.vocab, self.vocabulary, None, prompt),
            compile=partial(self.engine.compile, self.tables[builder], "lark", grammar),
            max_tokens=limit,
            end_ids=self.vocabulary.end_ids,
            drop_on_error=drop,
            n_vocab=self.vocabulary.n_tokens,
            draw=key,
        )

    def context(self, n_seq: int, n_batch: int = 64) -> Context:
        return Context(self.model, n_seq=max(n_seq, 2), n_ctx_seq=256, n_batch=n_batch, n_threads=1)

    def told(
        self, cells: Sequence[Cell], n_seq: int, *, fast: bool, sampling: Sampling | None = None
    ) -> dict[str, Transcript]:
        with closing(self.context(n_seq)) as context:
            scheduler = Scheduler(
                context,
                n_seq=n_seq,
                fast_forward=fast,
                min_two_rows=single_row_differs(context),
                sampling=sampling,
            )
            told = {one.key: one.transcript() for one in scheduler.run(cells)}
        for one in cells:
            one.close()
        assert len(told) == len(cells)
        return told


def opened(file: Path) -> Iterator[Real]:
    llama.start()
    with (
        closing(llama.Model(file, vocab_only=False)) as model,
        closing(Llguidance()) as engine,
    ):
        read = vocabulary.read(model)
        material = Material(read, model.vocab, lambda _: True)
        tables = {name: builders.get(name).build(material) for name in ("fixed", "unfixed")}
        yield Real(model, read, engine, tables)


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    """A forged model."""
    yield from opened(forge.forge_model(vocabulary_file("mistral_v1"), 0, cache_dir()))


def test_llama_cpp_gives_the_same_text_alone_and_in_any_batch(real: Real) -> None:
    """With 3 sequences slots are refilled, with 32 all cells run together, with 1 one by one.

    Long texts without a constraint show the smallest difference in the logits.
    """
    alone = real.told([*real.cells()], 1, fast=False)
    assert len(alone) == len(GRAMMARS) * len(PROMPTS)
    assert {one.end for one in alone.values()} >= {End.STOP_ID, End.TOKEN_LIMIT, End.LOST}
    assert {one.loss.kind for one in alone.values() if one.loss} >= {Lost.COMPILE}
    for n_seq in (3, 32):
        for fast in (False, True):
            assert real.told([*real.cells()], n_seq, fast=fast) == alone, (n_seq, fast)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[Entry]]:
    calls: list[list[Entry]] = []
    whole: Callable[..., np.ndarray] = Context.decode

    def decode_and_note(self: Context, entries: Sequence[Entry]) -> np.ndarray:
        calls.append([*entries])
        return whole(self, entries)

    monkeypatch.setattr(Context, "decode", decode_and_note)
    return calls


def test_llama_cpp_decodes_a_shared_prompt_once(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [one for one in real.cells() if one.prompt == next(real.cells()).prompt]
    prompt = cells[0].prompt
    assert len(cells) == 2 * len(GRAMMARS)
    calls = counted(monkeypatch)
    told = real.told(cells, len(cells), fast=False)
    del calls[:2]  # the calls of `single_row_differs`
    assert [entry[:2] for entry in calls[0]] == [(token, i) for i, token in enumerate(prompt)]
    assert calls[0][-1][3]
    widths = [sum(entry[1] > 0 for entry in call) for call in calls[1:]]  # cells per batch
    assert all(wide >= narrow for wide, narrow in pairwise(widths)), "ended cells leave the batch"
    # The last token of a cell is not decoded, unless the loss of its constraint ended the cell.
    decoded = sum(max(len(one.steps) - (one.end is not End.LOST), 0) for one in told.values())
    ended_empty = sum(one.end is End.EMPTY_MASK for one in told.values())
    assert sum(widths) <= decoded + ended_empty


def test_batch_larger_than_n_batch_is_refused_before_llama_cpp_aborts(real: Real) -> None:
    with closing(real.context(1, n_batch=8)) as context:
        for entries in ([], [(1, i, 0, False) for i in range(context.n_batch + 1)]):
            with pytest.raises(ValueError, match="a batch holds"):
                context.decode(entries)


# --- with real weights ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Real]:
    yield from opened(resolve.resolve(smollm2_source(), role="model", progress=False).path)


def smollm2_source() -> Source:
    import yaml

    fields = yaml.safe_load((ROOT / "conf" / "model" / "smollm2.yaml").read_text("utf-8"))["model"]
    return Source(**fields | {"members": tuple(fields["members"])})


def ragged(real: Real, n: int) -> list[Cell]:
    """Cells of the three suites with different limits, so that they end at different times."""
    names = ("forced_literal", "enum", "half_free")
    loaded = [suites.load_named(name, ROOT / "datasets").cases for name in names]
    cases = [case for trio in zip(*loaded, strict=False) for case in trio][:n]
    cells = [
        real.cell(f"{i}", "fixed", case.prompt, case.grammar.engine_text()[1], 2 + 5 * i % 9)
        for i, case in enumerate(cases)
    ]
    return sorted(cells, key=lambda one: one.prompt)


@pytest.mark.slow
def test_32_cells_of_real_weights_give_the_same_text_as_alone(smollm2: Real) -> None:
    cells = ragged(smollm2, 32)
    assert len(cells) == 32
    with closing(smollm2.context(1)) as context:
        alone = {
            one.key: one.transcript()
            for each in cells
            for one in Scheduler(context, n_seq=1).run([each])
        }
    assert len({len(one.steps) for one in alone.values()}) > 5
    for n_seq, fast in ((5, False), (32, True)):
        assert smollm2.told(ragged(smollm2, 32), n_seq, fast=fast) == alone, (n_seq, fast)


@pytest.mark.slow
def test_same_seed_gives_the_same_text_whatever_the_batch(smollm2: Real) -> None:
    def sampled(n_seq: int, seed: int, *, fast: bool) -> list[tuple[int, ...]]:
        sampling = Sampling(temperature=1.5, top_p=0.95, seed=seed)
        cells = ragged(smollm2, 9)[:8]
        told = smollm2.told(cells, n_seq, fast=fast, sampling=sampling)
        return [tuple(step.token for step in told[key].steps) for key in sorted(told)]

    first = sampled(1, 7, fast=False)
    assert sampled(4, 7, fast=True) == first
    assert sampled(4, 8, fast=True) != first
