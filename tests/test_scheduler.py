"""Batches of cells: over a fake model that names what it was given, and over llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event, current_thread

import numpy as np
import pytest
from conftest import ROOT, vocabulary_file
from fake_matchers import (
    EVERY_BIT,
    STOP,
    Fake,
    N,
    cell,
    crashes_on_mask,
    empty_mask,
    logits,
    mask_of,
    never_compiles,
    only_stop,
    refuses_on_consume,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import builders, forge, llama, sources, suites, vocabulary
from pipeline.builders import Material, TokenTable
from pipeline.choice import Sampling
from pipeline.constraint import Llguidance
from pipeline.decode import Cell, Origin, Transcript
from pipeline.scheduler import Scheduler, lone_row_differs
from pipeline.stopwatch import Part, Stopwatch
from pipeline.targets import prompt_ids
from pipeline.verdict import End, Lost

steady = settings(derandomize=True, deadline=None, max_examples=100)

SHARED = tuple(range(20, 35))
"""A beginning long enough to be worth sharing."""


class FakeContext:
    """A model whose logits name (prompt, length): position and tokens decide them alone."""

    def __init__(self, n_batch: int = 32, *, keeps: bool = True) -> None:
        """`keeps` is whether the end of a sequence can be forgotten; recurrent models cannot."""
        self.n_batch = n_batch
        self.keeps = keeps
        self.held: dict[int, list[int]] = {}
        self.calls: list[list[llama.Entry]] = []
        self._rows = np.zeros((64, N), np.float32)

    def decode(self, entries: Sequence[llama.Entry]) -> np.ndarray:
        assert 0 < len(entries) <= self.n_batch
        sequences = sorted({sequence for _, _, sequence, _ in entries})
        if all(position > 0 for _, position, _, _ in entries):
            assert sequences == [*range(sequences[0], sequences[-1] + 1)], "neighbours only"
        self.calls.append([*entries])
        self._rows[:] = np.nan  # the rows of before are stale now
        n_wanted = 0
        for token, position, sequence, wanted in entries:
            text = self.held.setdefault(sequence, [])
            assert position == len(text), "a gap or an overlap in the sequence"
            text.append(token)
            if wanted:
                self._rows[n_wanted] = logits((sum(text) * 7 + len(text)) % N)
                n_wanted += 1
        return self._rows[:n_wanted]

    def copy(self, source: int, target: int) -> None:
        assert source != target
        assert not self.held.get(target)
        self.held[target] = [*self.held[source]]

    def keep(self, sequence: int, n: int) -> bool:
        assert 0 < n < len(self.held[sequence])
        if self.keeps:
            del self.held[sequence][n:]
        return self.keeps

    def clear(self, sequence: int) -> None:
        self.held[sequence] = []

    @property
    def n_decoded(self) -> int:
        return sum(map(len, self.calls))


def fake_cells() -> list[Cell]:
    prompts = [(1, 2), (1, 2), (3,), (*SHARED, 1), (5, 6, 7, 8, 9, 10), (*SHARED, 2), (1, 2)]
    scripts = [
        Fake([EVERY_BIT]),
        refuses_on_consume(3),
        empty_mask(2),
        never_compiles(),
        Fake([EVERY_BIT], refuses=frozenset(range(0, N, 3))),
        crashes_on_mask(1),
        only_stop(),
        Fake([mask_of(5), mask_of(6), EVERY_BIT, mask_of(5), EVERY_BIT], forces=(5,)),
        Fake([mask_of(5), mask_of(5), mask_of(STOP)], forces=(5,)),
        Fake([EVERY_BIT, mask_of(4), mask_of(4), mask_of()], forces=(4,)),
    ]
    return [
        Cell(
            f"c{i}",
            prompts[i % len(prompts)],
            partial(copy, script),
            3 + i,
            frozenset({STOP}),
            i % 2 == 0,
            N,
        )
        for i, script in enumerate(scripts)
    ]


def told_by(
    cells: Sequence[Cell],
    context: object,
    n_seq: int,
    *,
    fast: bool = False,
    threads: int = 1,
    never_alone: bool = False,
) -> dict[str, Transcript]:
    scheduler = Scheduler(
        context,  # type: ignore[arg-type]
        n_seq=n_seq,
        n_mask_threads=threads,
        fast_forward=fast,
        never_alone=never_alone,
    )
    out = [(one.key, one.transcript()) for one in scheduler.run(cells)]
    assert len({key for key, _ in out}) == len(out) == len(cells), "each cell comes out once"
    return dict(out)


# --- over a fake model ----------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("never_alone", [False, True])
@pytest.mark.parametrize("n_seq", [1, 2, 3, 7, 32])
def test_any_number_of_sequences_tells_the_same_story(
    n_seq: int, never_alone: bool, keeps: bool, fast: bool
) -> None:
    context = FakeContext(keeps=keeps)
    told = told_by(fake_cells(), context, n_seq, fast=fast, threads=2, never_alone=never_alone)
    assert told == told_by(fake_cells(), FakeContext(), 1)
    assert not any(context.held.values()), "every sequence was given back"
    assert max(context.held) < max(n_seq, 1 + never_alone)
    if never_alone:
        assert all(len(call) > 1 for call in context.calls)
        assert 1 not in {sum(entry[3] for entry in call) for call in context.calls}
    assert {one.end for one in told.values()} >= {End.EMPTY_MASK, End.LOST, End.STOP_ID}


def test_cell_that_stops_at_once_is_not_decoded() -> None:
    context = FakeContext()
    one = cell(never_compiles(), drop=False)
    assert told_by([one], context, 4, fast=True)["a"].steps == ()
    assert context.calls == []


def test_long_prompt_is_decoded_in_batches_with_logits_of_its_last_token_only() -> None:
    context = FakeContext(4)
    prompt = tuple(range(9))
    told_by([Cell("a", prompt, only_stop, 5, frozenset({STOP}), True, N)], context, 1)
    assert [len(call) for call in context.calls] == [4, 3, 2]
    assert [entry[3] for call in context.calls for entry in call] == [False] * 8 + [True]


def test_equal_prompts_are_decoded_once_and_copied() -> None:
    context = FakeContext(64)
    cells = [
        Cell(f"c{i}", (4, 5, 6), partial(Fake, [EVERY_BIT]), 3, frozenset(), True, N)
        for i in range(5)
    ]
    told = told_by(cells, context, 8)
    assert len({one.steps for one in told.values()}) == 1
    assert [len(call) for call in context.calls] == [3, 5, 5]


def long_beginnings() -> list[Cell]:
    return [
        Cell(f"c{i}", (*SHARED, i, 36), partial(Fake, [EVERY_BIT]), 2 + i % 3, frozenset(), True, N)
        for i in range(7)
    ]


@pytest.mark.parametrize("n_seq", [1, 2, 4, 8])
def test_long_beginning_is_decoded_once_whoever_comes_when(n_seq: int) -> None:
    """One waits for it, others copy it from a text that goes on, later ones find it in place."""
    context = FakeContext(64)
    told = told_by(long_beginnings(), context, n_seq)
    assert told == told_by(long_beginnings(), FakeContext(), 1)
    beginnings = [e for call in context.calls for e in call if e[1] < len(SHARED)]
    assert len(beginnings) == len(SHARED)


def test_model_that_cannot_forget_the_end_decodes_every_prompt() -> None:
    context = FakeContext(64, keeps=False)
    told = told_by(long_beginnings(), context, 1)
    assert told == told_by(long_beginnings(), FakeContext(), 1)
    beginnings = [e for call in context.calls for e in call if e[1] < len(SHARED)]
    assert len(beginnings) == 7 * len(SHARED)


def test_forced_text_is_never_decoded() -> None:
    forced = [mask_of(5)] * 9
    for masks, n_decoded in (
        ([*forced, mask_of(STOP)], 0),  # no choice at all: not even the prompt
        ([EVERY_BIT, *forced, mask_of(STOP)], 1),  # a choice, then none
        ([*forced, EVERY_BIT, mask_of(STOP)], 10),  # before the one choice
    ):
        slow, fast = FakeContext(64), FakeContext(64)

        def one(masks: Sequence[np.ndarray] = masks) -> Cell:
            matcher = Fake(masks, forces=(5,))
            return Cell("a", (1,), lambda: matcher, 20, frozenset({STOP}), True, N)

        told = told_by([one()], fast, 1, fast=True)
        assert told == told_by([one()], slow, 1)
        assert fast.n_decoded == n_decoded
        assert sum(entry[3] for call in fast.calls for entry in call) == min(n_decoded, 1)
        assert slow.n_decoded == len(told["a"].steps)
        assert [step.origin for step in told["a"].steps].count(Origin.FORCED) == 9


@steady
@given(
    plan=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=9),
    n_seq=st.integers(1, 5),
    fast=st.booleans(),
)
def test_refilled_slots_never_change_a_story(
    plan: list[tuple[int, int]], n_seq: int, fast: bool
) -> None:
    def cells() -> list[Cell]:
        masks = [EVERY_BIT, mask_of(5), mask_of(5), EVERY_BIT]
        return [
            Cell(
                f"c{i}",
                (prompt, 1),
                partial(Fake, masks[i % 3 :], forces=(5,)),
                limit,
                frozenset({STOP}),
                True,
                N,
            )
            for i, (prompt, limit) in enumerate(plan)
        ]

    assert told_by(cells(), FakeContext(), n_seq, fast=fast) == told_by(cells(), FakeContext(), 1)


def test_cells_are_made_when_there_is_a_place_for_them() -> None:
    made: list[int] = []

    def cells() -> Iterator[Cell]:
        for i in range(9):
            made.append(i)
            yield Cell(f"c{i}", (i,), partial(Fake, [EVERY_BIT]), 3, frozenset(), True, N)

    context = FakeContext(64)
    ended = 0
    for _ in Scheduler(context, n_seq=2).run(cells()):  # type: ignore[arg-type]
        ended += 1
        assert len(made) <= ended + 2 + 2, "two run, two are made ready"
    assert ended == len(made) == 9


def test_grammars_of_cells_to_come_are_compiled_while_others_are_decoded() -> None:
    compiled = [Event() for _ in range(3)]
    threads: list[str] = []

    def made(i: int) -> Fake:
        threads.append(current_thread().name)
        compiled[i].set()
        return Fake([EVERY_BIT])

    class Patient(FakeContext):
        def decode(self, entries: Sequence[llama.Entry]) -> np.ndarray:
            token, place, *_ = entries[0]
            if place == 0:
                assert compiled[min(token + 1, 2)].wait(60), "the next one is not compiled"
            return super().decode(entries)

    cells = [Cell(f"{i}", (i,), partial(made, i), 3, frozenset(), True, N) for i in range(3)]
    told_by(cells, Patient(), 1, fast=True)
    assert len(threads) == 3, "each grammar is compiled once"
    assert all(name.startswith("mask") for name in threads[1:])


def test_cells_that_are_never_given_out_are_closed() -> None:
    made: list[Fake] = []

    def another() -> Fake:
        made.append(Fake([EVERY_BIT]))
        return made[-1]

    cells = [Cell(f"{i}", (i,), another, 3 + i, frozenset(), True, N) for i in range(6)]
    running = Scheduler(FakeContext(), n_seq=2).run(cells)  # type: ignore[arg-type]
    given_out = next(running)
    running.close()  # type: ignore[attr-defined]
    assert len(made) >= 3
    assert [one.closed for one in made] == [one is not given_out.matcher for one in made]


def test_fault_of_a_mask_is_not_swallowed_by_its_thread() -> None:
    class Broken(Fake):
        def mask(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        told_by([cell(Broken([]))], FakeContext(), 1)


def test_all_time_is_accounted_for() -> None:
    stopwatch = Stopwatch()
    scheduler = Scheduler(FakeContext(), n_seq=3, stopwatch=stopwatch)  # type: ignore[arg-type]
    assert len(list(scheduler.run(fake_cells()))) == 10
    assert set(stopwatch.seconds) == set(Part)
    assert all(spent > 0 for spent in stopwatch.seconds.values())


# --- over llama.cpp -------------------------------------------------------------------------------

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
    """A model, and what its cells need."""

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

    def context(self, n_seq: int, n_batch: int = 64) -> llama.Context:
        return llama.Context(
            self.model, n_seq=max(n_seq, 2), n_ctx_seq=256, n_batch=n_batch, n_threads=1
        )

    def told(
        self, cells: Sequence[Cell], n_seq: int, *, fast: bool, sampling: Sampling | None = None
    ) -> dict[str, Transcript]:
        with closing(self.context(n_seq)) as context:
            scheduler = Scheduler(
                context,
                n_seq=n_seq,
                fast_forward=fast,
                never_alone=lone_row_differs(context),
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
    yield from opened(forge.forged(vocabulary_file("mistral_v1"), 0, sources.cache_dir()))


def test_llama_cpp_tells_the_same_story_alone_and_in_any_batch(real: Real) -> None:
    """Slots are refilled at 3, all cells stand side by side at 32; only one at a time at 1.

    Long texts without a constraint show the smallest difference in the logits.
    """
    alone = real.told([*real.cells()], 1, fast=False)
    assert len(alone) == len(GRAMMARS) * len(PROMPTS)
    assert {one.end for one in alone.values()} >= {End.STOP_ID, End.TOKEN_LIMIT, End.LOST}
    assert {one.loss.kind for one in alone.values() if one.loss} >= {Lost.COMPILE}
    for n_seq in (3, 32):
        for fast in (False, True):
            assert real.told([*real.cells()], n_seq, fast=fast) == alone, (n_seq, fast)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[llama.Entry]]:
    calls: list[list[llama.Entry]] = []
    whole: Callable[..., np.ndarray] = llama.Context.decode

    def decode_and_note(self: llama.Context, entries: Sequence[llama.Entry]) -> np.ndarray:
        calls.append([*entries])
        return whole(self, entries)

    monkeypatch.setattr(llama.Context, "decode", decode_and_note)
    return calls


def test_llama_cpp_decodes_a_shared_prompt_once(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [one for one in real.cells() if one.prompt == next(real.cells()).prompt]
    prompt = cells[0].prompt
    assert len(cells) == 2 * len(GRAMMARS)
    calls = counted(monkeypatch)
    told = real.told(cells, len(cells), fast=False)
    del calls[:2]  # does a lone row differ?
    assert [entry[:2] for entry in calls[0]] == [(token, i) for i, token in enumerate(prompt)]
    assert calls[0][-1][3]
    widths = [sum(entry[1] > 0 for entry in call) for call in calls[1:]]  # without company
    assert all(wide >= narrow for wide, narrow in pairwise(widths)), "ended cells leave the batch"
    # A cell's last token is not decoded; a stopped cell has none that is.
    decoded = sum(max(len(one.steps) - (one.end is not End.LOST), 0) for one in told.values())
    ended_empty = sum(one.end is End.EMPTY_MASK for one in told.values())
    assert sum(widths) <= decoded + ended_empty


def test_batch_larger_than_n_batch_is_refused_before_llama_cpp_aborts(real: Real) -> None:
    with closing(real.context(1, n_batch=8)) as context:
        for entries in ([], [(1, i, 0, False) for i in range(context.n_batch + 1)]):
            with pytest.raises(ValueError, match="a batch holds"):
                context.decode(entries)


# --- over real weights ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Real]:
    yield from opened(sources.resolve(smollm2_source(), role="model", progress=False).path)


def smollm2_source() -> sources.Source:
    import yaml

    fields = yaml.safe_load((ROOT / "conf" / "model" / "smollm2.yaml").read_text("utf-8"))["model"]
    return sources.Source(**fields | {"members": tuple(fields["members"])})


def ragged(real: Real, n: int) -> list[Cell]:
    """Cells of the three suites with other limits, so that they end one after the other."""
    names = ("forced_literal", "enum", "half_free")
    loaded = [suites.load_named(name, ROOT / "datasets").cases for name in names]
    cases = [case for trio in zip(*loaded, strict=False) for case in trio][:n]
    cells = [
        real.cell(f"{i}", "fixed", case.prompt, case.grammar.engine_text()[1], 2 + 5 * i % 9)
        for i, case in enumerate(cases)
    ]
    return sorted(cells, key=lambda one: one.prompt)


@pytest.mark.slow
def test_32_ragged_cells_of_real_weights_are_as_each_is_alone(smollm2: Real) -> None:
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
