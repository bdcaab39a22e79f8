"""Constrained decoding: the state machine over tiny fakes, the scheduler over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import vocabulary_file
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import builders, decode, forge, llama, sources, vocabulary
from pipeline.builders import Material, TokenTable
from pipeline.constraint import Llguidance, Mask
from pipeline.decode import Cell, Loss, Origin, Step, Transcript
from pipeline.verdict import End, Lost

steady = settings(derandomize=True, deadline=None, max_examples=100)

N = 40
"""Tokens of the fakes' vocabulary: not a multiple of 32, so that masks have padding bits."""
STOP = 7
WORDS = -(-N // 32)


def mask_of(*ids: int) -> Mask:
    bits = np.zeros(WORDS * 32, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


EVERY_BIT = np.full(WORDS, 0xFFFFFFFF, np.uint32)


def logits(*best: int) -> np.ndarray:
    """The first of `best` is the likeliest; all others are likelier the lower their id."""
    row = -np.arange(N, dtype=np.float32)
    for rank, token in enumerate(best):
        row[token] = 100 - rank
    return row


@dataclass
class Fake:
    """A matcher that follows a script: one mask a step, and which tokens it takes."""

    masks: Sequence[Mask | None]
    refuses: frozenset[int] = frozenset()
    forces: tuple[int, ...] = ()
    error: str | None = None
    consumed: list[int] = field(default_factory=list)
    masked: int = 0
    closed: bool = False

    def mask(self) -> Mask | None:
        assert self.error is None, "a dead matcher was asked again"
        self.masked += 1
        found = self.masks[min(len(self.consumed), len(self.masks) - 1)]
        if found is None:
            self.error = "the mask failed"
        return found

    def consume(self, token: int) -> bool:
        assert self.error is None, "a dead matcher was asked again"
        if token in self.refuses:
            self.error = f"token {token} refused"
            return False
        self.consumed.append(token)
        return True

    def accepting(self) -> bool:
        return False

    def forced(self) -> list[int]:
        return [*self.forces]

    def clone(self) -> Fake:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


def refuses_on_consume(*tokens: int) -> Fake:
    return Fake([mask_of(1, 2, 3, STOP)], refuses=frozenset(tokens))


def crashes_on_mask(at: int) -> Fake:
    return Fake([*[mask_of(1, 2, 3)] * at, None])


def empty_mask(at: int = 0) -> Fake:
    return Fake([*[mask_of(1, 2, 3)] * at, mask_of()])


def never_compiles() -> Fake:
    return Fake([], error="no such rule")


def only_stop() -> Fake:
    return Fake([mask_of(STOP)])


def cell(matcher: Fake, *, drop: bool = True, max_tokens: int = 6, key: str = "a") -> Cell:
    return Cell(key, (1,), matcher, max_tokens, frozenset({STOP, 9}), drop)


def drive(one: Cell, rows: Iterator[np.ndarray] | None = None) -> Transcript:
    """Run a cell to its end, always with the same wish unless `rows` says else."""
    one.start()
    while one.end is None:
        row = logits(2) if rows is None else next(rows)
        taken = one.advance(row)
        assert (taken is None) == (one.end is not None)
        if taken is not None:
            assert one.steps[-1].token == taken
    return one.transcript()


# --- how a constraint is lost ---------------------------------------------------------------------


def test_refused_token_is_met_one_step_later_and_generation_goes_on() -> None:
    """The bridge ignores what consume answers; its next mask fails, and the matcher is freed."""
    matcher = refuses_on_consume(2)
    told = drive(cell(matcher, drop=True, max_tokens=4))
    assert told.loss == Loss(Lost.CONSUME, 1, "token 2 refused")
    assert [step.token for step in told.steps] == [2, 2, 2, 2]
    assert [step.origin for step in told.steps] == [Origin.CHOSEN] + [Origin.UNCONSTRAINED] * 3
    assert [step.n_allowed for step in told.steps] == [4, None, None, None]
    assert (told.end, told.stop_allowed) == (End.TOKEN_LIMIT, False)
    assert matcher.masked == 1, "a dropped matcher is not asked again"


def test_refused_token_ends_a_cell_that_stops() -> None:
    told = drive(cell(refuses_on_consume(2), drop=False))
    assert told.loss == Loss(Lost.CONSUME, 1, "token 2 refused")
    assert [step.token for step in told.steps] == [2]
    assert (told.end, told.stop_allowed) == (End.LOST, False)


@pytest.mark.parametrize("drop", [True, False])
def test_refused_token_at_the_limit_is_still_a_loss(drop: bool) -> None:
    told = drive(cell(refuses_on_consume(2), drop=drop, max_tokens=1))
    assert told.loss is not None
    assert told.loss.step == 1 == len(told.steps)
    assert told.end is (End.TOKEN_LIMIT if drop else End.LOST)


@pytest.mark.parametrize("drop", [True, False])
def test_refused_stop_id_ends_the_cell_without_a_loss(drop: bool) -> None:
    """After completion, consuming the one end id can answer -1; the runtime has stopped by then."""
    matcher = refuses_on_consume(STOP)
    told = drive(cell(matcher, drop=drop), iter([logits(STOP)]))
    assert (told.end, told.loss) == (End.STOP_ID, None)
    assert told.stop_allowed


@pytest.mark.parametrize("at", [0, 1, 3])
def test_failed_mask_is_dated_at_the_step_it_was_wanted_for(at: int) -> None:
    told = drive(cell(crashes_on_mask(at), drop=True, max_tokens=5))
    assert told.loss == Loss(Lost.MASK, at, "the mask failed")
    origins = [step.origin for step in told.steps]
    assert origins == [Origin.CHOSEN] * at + [Origin.UNCONSTRAINED] * (5 - at)
    assert told.end is End.TOKEN_LIMIT
    stopped = drive(cell(crashes_on_mask(at), drop=False, max_tokens=5))
    assert stopped.loss == told.loss
    assert (len(stopped.steps), stopped.end) == (at, End.LOST)


def test_failed_mask_without_words_has_a_reason() -> None:
    class Mute(Fake):
        def mask(self) -> None:
            return None

    told = drive(cell(Mute([]), drop=False))
    assert told.loss is not None
    assert told.loss.message == "the mask cannot be computed"


def test_grammar_that_does_not_compile_is_lost_before_the_first_token() -> None:
    told = drive(cell(never_compiles(), drop=True, max_tokens=3))
    assert told.loss == Loss(Lost.COMPILE, 0, "no such rule")
    assert [step.origin for step in told.steps] == [Origin.UNCONSTRAINED] * 3
    stopped = drive(cell(never_compiles(), drop=False))
    assert stopped.loss == told.loss
    assert (stopped.steps, stopped.end) == ((), End.LOST)


def test_unconstrained_cell_stops_on_any_stop_id() -> None:
    told = drive(cell(never_compiles()), iter([logits(2), logits(9)]))
    assert [step.token for step in told.steps] == [2, 9]
    assert told.end is End.STOP_ID
    assert told.loss is not None
    assert not told.stop_allowed


def test_loss_under_drop_takes_the_likeliest_of_all() -> None:
    told = drive(cell(crashes_on_mask(0), max_tokens=2), iter([logits(N - 1), logits(0)]))
    assert [step.token for step in told.steps] == [N - 1, 0]


# --- what a mask lets through ---------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("drop", [True, False])
def test_empty_mask_takes_nothing_least_of_all_token_0(at: int, drop: bool) -> None:
    """A naive argmax over nothing picks id 0, which on bert-bge looks like a clean end."""
    told = drive(cell(empty_mask(at), drop=drop))
    assert told.end is End.EMPTY_MASK
    assert [step.token for step in told.steps] == [2] * at
    assert (told.loss, told.stop_allowed) == (None, False)


def test_padding_bits_are_no_tokens() -> None:
    told = drive(cell(Fake([EVERY_BIT]), max_tokens=1), iter([logits(N - 1)]))
    assert told.steps == (Step(N - 1, N, Origin.CHOSEN),)
    only_padding = np.array([0, 0xFFFFFFFF << (N - 32) & 0xFFFFFFFF], np.uint32)
    assert drive(cell(Fake([only_padding]))).end is End.EMPTY_MASK


@steady
@given(
    allowed=st.sets(st.integers(0, N - 1), min_size=1),
    wishes=st.lists(st.floats(-1024, 1024, width=32), min_size=N, max_size=N),
)
def test_the_likeliest_allowed_token_is_taken(allowed: set[int], wishes: list[float]) -> None:
    one = cell(Fake([mask_of(*allowed) | np.array([0, 0xFFFFFF00], np.uint32)]), max_tokens=1)
    told = drive(one, iter([np.array(wishes, np.float32)]))
    best = max(np.float32(wishes[token]) for token in allowed)
    [step] = told.steps
    assert step.token == min(t for t in allowed if np.float32(wishes[t]) == best)
    assert step.n_allowed == len(allowed)


def test_unlikely_beyond_measure_is_no_reason_to_leave_the_mask() -> None:
    row = logits(2)
    row[[5, 6]] = -np.inf
    assert drive(cell(Fake([mask_of(5, 6)]), max_tokens=1), iter([row])).steps[0].token == 5


def test_forced_is_said_only_of_what_the_engine_forces() -> None:
    for matcher, origin in (
        (Fake([mask_of(3)], forces=(3, 4)), Origin.FORCED),
        (Fake([mask_of(3)], forces=(4,)), Origin.CHOSEN),
        (Fake([mask_of(3)]), Origin.CHOSEN),
        (Fake([mask_of(3, 4)], forces=(3,)), Origin.CHOSEN),
    ):
        assert drive(cell(matcher, max_tokens=1)).steps[0].origin is origin


def test_observer_sees_each_mask_before_its_token() -> None:
    seen: list[tuple[int, list[int]]] = []

    def observe(one: Cell, mask: Mask) -> None:
        seen.append((len(one.steps), mask.tolist()))

    one = cell(Fake([mask_of(1, 2), mask_of(2), mask_of()]))
    one.observe = observe
    drive(one)
    assert seen[:2] == [(0, mask_of(1, 2).tolist()), (1, mask_of(2).tolist())]
    assert len(seen) <= 3, "at most the empty mask, once"


# --- how a cell ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [STOP, 9])
def test_every_stop_id_ends_the_cell(stop: int) -> None:
    told = drive(cell(Fake([mask_of(2, stop)])), iter([logits(2), logits(stop)]))
    assert [step.token for step in told.steps] == [2, stop]
    assert (told.end, told.stop_allowed) == (End.STOP_ID, True)


def test_only_a_stop_id_left() -> None:
    told = drive(cell(only_stop()))
    assert told.steps == (Step(STOP, 1, Origin.CHOSEN),)
    assert (told.end, told.stop_allowed) == (End.STOP_ID, True)


@pytest.mark.parametrize(
    ("beyond", "stop_allowed"),
    [
        (mask_of(1, STOP), True),
        (mask_of(9), True),
        (mask_of(1, 2), False),
        (mask_of(), False),
        (None, False),
    ],
)
def test_at_the_limit_the_next_mask_says_whether_it_could_have_ended(
    beyond: Mask | None, stop_allowed: bool
) -> None:
    told = drive(cell(Fake([mask_of(2), mask_of(2), beyond]), max_tokens=2))
    assert (len(told.steps), told.end) == (2, End.TOKEN_LIMIT)
    assert told.stop_allowed is stop_allowed
    assert told.loss is None, "nothing was lost within the limit"


def test_stop_id_as_the_last_token_is_a_stop_not_a_limit() -> None:
    told = drive(cell(Fake([mask_of(STOP)]), max_tokens=1))
    assert told.end is End.STOP_ID


def test_end_id_in_the_second_word_of_the_mask() -> None:
    one = Cell("a", (1,), Fake([mask_of(2), mask_of(N - 1)]), 1, frozenset({N - 1}), True)
    assert drive(one).stop_allowed


# --- the scheduler over fakes ---------------------------------------------------------------------


class FakeContext:
    """A model whose logits name (prompt, length): position and tokens decide them alone."""

    n_batch = 4

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}
        self.calls: list[list[llama.Entry]] = []
        self._row = np.zeros((64, N), np.float32)

    def decode(self, entries: Sequence[llama.Entry]) -> list[np.ndarray]:
        assert 0 < len(entries) <= 64
        self.calls.append([*entries])
        out: list[np.ndarray] = []
        self._row[:] = np.nan  # the rows of before are stale now
        for i, (token, position, sequence, wanted) in enumerate(entries):
            text = self.held.setdefault(sequence, [])
            assert position == len(text), "a gap or an overlap in the sequence"
            text.append(token)
            if wanted:
                self._row[i] = logits((sum(text) * 7 + len(text)) % N)
                out.append(self._row[i])
        return out

    def copy(self, source: int, target: int) -> None:
        assert not self.held.get(target)
        self.held[target] = [*self.held[source]]

    def clear(self, sequence: int) -> None:
        self.held[sequence] = []


def fake_cells() -> list[Cell]:
    prompts = [(1, 2), (1, 2), (3,), (1, 2), (5, 6, 7, 8, 9, 10), (3,), (1, 2)]
    scripts = [
        Fake([EVERY_BIT]),
        refuses_on_consume(3),
        empty_mask(2),
        never_compiles(),
        Fake([EVERY_BIT], refuses=frozenset(range(0, N, 3))),
        crashes_on_mask(1),
        only_stop(),
    ]
    return [
        Cell(f"c{i}", prompt, script, 3 + i, frozenset({STOP}), i % 2 == 0)
        for i, (prompt, script) in enumerate(zip(prompts, scripts, strict=True))
    ]


def told_by(cells: Sequence[Cell], context: object, n_seq: int) -> dict[str, Transcript]:
    done = decode.decode(context, cells, n_seq=n_seq)  # type: ignore[arg-type]
    out = [(one.key, one.transcript()) for one in done]
    assert len({key for key, _ in out}) == len(out) == len(cells), "each cell comes out once"
    return dict(out)


@pytest.mark.parametrize("n_seq", [1, 2, 3, 7, 32])
def test_any_number_of_sequences_tells_the_same_story(n_seq: int) -> None:
    context = FakeContext()
    told = told_by(fake_cells(), context, n_seq)
    assert told == told_by(fake_cells(), FakeContext(), 1)
    assert not any(context.held.values()), "every sequence was given back"
    assert max(context.held) < n_seq
    assert {one.end for one in told.values()} >= {End.EMPTY_MASK, End.LOST, End.STOP_ID}


def test_stopped_cell_never_reaches_a_batch() -> None:
    context = FakeContext()
    one = cell(never_compiles(), drop=False)
    assert told_by([one], context, 4)["a"].steps == ()
    assert context.calls == [[(1, 0, 0, True)]], "its prompt and nothing else"


def test_long_prompt_is_decoded_in_batches_with_logits_of_its_last_token_only() -> None:
    context = FakeContext()
    prompt = tuple(range(10))
    told_by([Cell("a", prompt, only_stop(), 5, frozenset({STOP}), True)], context, 1)
    assert [len(call) for call in context.calls] == [4, 4, 2]
    assert [entry[3] for call in context.calls for entry in call] == [False] * 9 + [True]


def test_shared_prompt_is_decoded_once_and_copied() -> None:
    context = FakeContext()
    cells = [Cell(f"c{i}", (4, 5, 6), Fake([EVERY_BIT]), 3, frozenset(), True) for i in range(5)]
    told = told_by(cells, context, 8)
    assert len({one.steps for one in told.values()}) == 1
    assert [len(call) for call in context.calls] == [3, 5, 5]


@steady
@given(
    plan=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=9),
    n_seq=st.integers(1, 5),
)
def test_refilled_slots_never_change_a_story(plan: list[tuple[int, int]], n_seq: int) -> None:
    def cells() -> list[Cell]:
        return [
            Cell(f"c{i}", (prompt, 1), Fake([EVERY_BIT]), limit, frozenset({STOP}), True)
            for i, (prompt, limit) in enumerate(plan)
        ]

    assert told_by(cells(), FakeContext(), n_seq) == told_by(cells(), FakeContext(), 1)


# --- the scheduler over llama.cpp -----------------------------------------------------------------

GRAMMARS = [
    'start: "The quick brown fox"',
    "start: /[a-z]{1,9}/",
    'start: "yes" | "no" | "perhaps"',
    'start: %json {"type": "object", "properties": {"a": {"type": "boolean"}}, '
    '"required": ["a"], "additionalProperties": false}',
    'start: "BEGIN [" /[a-z ]{1,20}/ "] END"',
    'start: "unclosed',
]
PROMPTS = ["Hello", "Hello", "", "A longer prompt than the others have"]


@dataclass(frozen=True)
class Real:
    """A forged model, and what its cells need."""

    model: llama.Model
    vocabulary: vocabulary.Vocabulary
    engine: Llguidance
    tables: dict[str, TokenTable]

    def cells(self) -> Iterator[Cell]:
        for i, grammar in enumerate(GRAMMARS):
            for j, prompt in enumerate(PROMPTS):
                builder = ("fixed", "unfixed")[(i + j) % 2]
                ids = self.model.vocab.tokenize(
                    prompt.encode(), add_special=True, parse_special=True
                )
                yield Cell(
                    key=f"{i}/{j}",
                    prompt=tuple(ids),
                    matcher=self.engine.compile(
                        self.tables[builder], "lark", f"%llguidance {{}}\n{grammar}"
                    ),
                    max_tokens=4 + (5 * i + 3 * j) % 11,
                    end_ids=self.vocabulary.end_ids,
                    drop_on_error=j != 1,
                )

    def context(self, n_seq: int, n_batch: int = 64) -> llama.Context:
        return llama.Context(self.model, n_seq=n_seq, n_ctx_seq=256, n_batch=n_batch, n_threads=1)

    def told(self, n_seq: int) -> dict[str, Transcript]:
        cells = list(self.cells())
        with closing(self.context(n_seq)) as context:
            told = told_by(cells, context, n_seq)
        for one in cells:
            one.matcher.close()
        return told


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    llama.start()
    file = forge.forged(vocabulary_file("mistral_v1"), 0, sources.cache_dir())
    with (
        closing(llama.Model(Path(file), vocab_only=False)) as model,
        closing(Llguidance()) as engine,
    ):
        read = vocabulary.read(model)
        material = Material(read, model.vocab, lambda _: True)
        tables = {name: builders.get(name).build(material) for name in ("fixed", "unfixed")}
        yield Real(model, read, engine, tables)


def test_llama_cpp_tells_the_same_story_alone_and_in_any_batch(real: Real) -> None:
    """Slots are refilled at 3, all cells stand side by side at 32; only one at a time at 1."""
    alone = real.told(1)
    assert len(alone) == len(GRAMMARS) * len(PROMPTS)
    assert {one.end for one in alone.values()} >= {End.STOP_ID, End.TOKEN_LIMIT, End.LOST}
    assert {one.loss.kind for one in alone.values() if one.loss} >= {Lost.COMPILE}
    for n_seq in (3, 32):
        assert real.told(n_seq) == alone, n_seq


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[llama.Entry]]:
    calls: list[list[llama.Entry]] = []
    whole: Callable[..., list[np.ndarray]] = llama.Context.decode

    def decode_and_note(self: llama.Context, entries: Sequence[llama.Entry]) -> list[np.ndarray]:
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
    with closing(real.context(len(cells))) as context:
        told = told_by(cells, context, len(cells))
    assert calls[0] == [(token, i, 0, i == len(prompt) - 1) for i, token in enumerate(prompt)]
    widths = [len(call) for call in calls[1:]]
    assert all(wide >= narrow for wide, narrow in pairwise(widths)), "ended cells leave the batch"
    # A cell's last token is not decoded; a stopped cell has none that is.
    decoded = sum(max(len(one.steps) - (one.end is not End.LOST), 0) for one in told.values())
    ended_empty = sum(one.end is End.EMPTY_MASK for one in told.values())
    assert sum(widths) <= decoded + ended_empty
    for one in cells:
        one.matcher.close()


def test_more_cells_than_sequences_share_a_prompt_as_far_as_slots_go(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [one for one in real.cells() if one.prompt == next(real.cells()).prompt][:4]
    calls = counted(monkeypatch)
    with closing(real.context(2)) as context:
        told_by(cells, context, 2)
    prompts = [call for call in calls if call[0][1] == 0]
    assert 2 <= len(prompts) <= 3
    for one in cells:
        one.matcher.close()


def test_batch_larger_than_n_batch_is_refused_before_llama_cpp_aborts(real: Real) -> None:
    with closing(real.context(1, n_batch=8)) as context:
        for entries in ([], [(1, i, 0, False) for i in range(context.n_batch + 1)]):
            with pytest.raises(ValueError, match="a batch holds"):
                context.decode(entries)
