"""Toy vocabularies and tables with the real engine, to judge one state or one generation.

A toy has a few tokens with given bytes; a table holds the bytes that a builder claims. The results
have the product's types: a `Finding` for a state, a `Judged` for a generation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from pipeline.audit.controls import Controls
from pipeline.audit.masks import Finding, MaskJudge
from pipeline.audit.token_oracle import TokenOracle
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.protocol import Matcher, allowed_ids
from pipeline.engines.table import TokenTable
from pipeline.generation.cell import Cell
from pipeline.generation.judge_transcript import evaluate
from pipeline.generation.judgement import Judged
from pipeline.generation.sampling import Choice, choose
from pipeline.generation.settings import Sampling
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import Check, Json, Literal, Pattern
from pipeline.grammars.languages import Languages
from pipeline.native import llama
from pipeline.vocab import vocabulary
from pipeline.vocab.token_types import UNRENDERED, Attr, VocabType
from pipeline.vocab.vocabulary import Vocabulary
from support.vocabularies import Opened

BYTES = [bytes([byte]) for byte in range(256)]


def made_of(
    pieces: Sequence[bytes],
    attrs: dict[int, Attr] | None = None,
    *,
    ends: Iterable[int],
    eos: int | None = None,
    texts: Sequence[bytes] | None = None,
    kind: VocabType = VocabType.SPM,
) -> Vocabulary:
    """A vocabulary with these true bytes; tokens are NORMAL unless `attrs` has another value.

    `ends` are the ids at which the runtime stops. `eos`, which a builder declares, is by default
    the first of them.
    """
    bits = np.full(len(pieces), int(Attr.NORMAL), np.uint32)
    for token, attr in (attrs or {}).items():
        bits[token] = int(attr)
    stops = [*ends]
    return Vocabulary(
        type=kind,
        true_bytes=[*pieces],
        texts=[*(texts or pieces)],
        attrs=bits,
        scores=np.zeros(len(pieces), np.float32),
        bos=-1,
        eos=stops[0] if eos is None else eos,
        eot=-1,
        end_ids=frozenset(stops),
        add_space_prefix=False,
        clean_spaces=False,
        disagreements=(),
        hash="toy",
    )


def table_of(
    vocabulary: Vocabulary,
    claimed: Sequence[bytes] | None = None,
    *,
    special: Iterable[int] | None = None,
    tokenize: Callable[[bytes], list[int]] | None = None,
) -> TokenTable:
    """A builder's table: by default the true bytes, with hidden tokens marked special."""
    hidden = (vocabulary.attrs & UNRENDERED) != 0
    marked = {*(np.flatnonzero(hidden).tolist() if special is None else special)}
    return TokenTable(
        claimed=[*(claimed or vocabulary.true_bytes)],
        special=[token in marked for token in range(vocabulary.n_tokens)],
        eos=vocabulary.eos,
        tokenize=tokenize,
        tokenize_mode="toy" if tokenize else "greedy",
    )


def longest_first(pieces: Sequence[bytes]) -> Callable[[bytes], list[int]]:
    """An exact tokenization: the longest token at each place, the lowest id of duplicates."""
    ids: dict[bytes, int] = {}
    for token, piece in enumerate(pieces):
        if piece:
            ids.setdefault(piece, token)

    def tokenize(data: bytes) -> list[int]:
        out: list[int] = []
        while data:
            size = next(n for n in range(len(data), 0, -1) if data[:n] in ids)
            out.append(ids[data[:size]])
            data = data[size:]
        return out

    return tokenize


def case_of(grammar: str, check: Check | None = None, tokens: Sequence[int] = ()) -> Case:
    """The case of a Lark grammar; a single literal or regex gets a checker by default."""
    if check is None:
        regex = re.fullmatch(r"start: /(.*)/", grammar)
        check = (
            Pattern(regex[1]) if regex else Literal(grammar.removeprefix("start: ")[1:-1].encode())
        )
    return Case(
        "field_cases", "one", "Hello", Grammar("lark", grammar), check, 24, tokens=(*tokens,)
    )


def schema_case(schema: str, check: Json, tokens: Sequence[int] = ()) -> Case:
    """The case of a JSON schema, with a compact layout."""
    return Case(
        "field_cases", "one", "Hello", Grammar("json", schema), check, 64, tokens=(*tokens,)
    )


@dataclass(frozen=True)
class Bench:
    """One table for one vocabulary, with the real engine."""

    vocabulary: Vocabulary
    table: TokenTable
    engine: Llguidance

    def compile(self, case: Case) -> Matcher:
        return self.engine.compile(self.table, *case.grammar.engine_text())

    @cached_property
    def oracle(self) -> TokenOracle:
        return TokenOracle(self.vocabulary.rendered)

    @cached_property
    def judge(self) -> MaskJudge:
        return MaskJudge(self.vocabulary, self.oracle, budget=1e9)

    def languages(self, case: Case) -> Languages:
        """A case's languages, cached: the judge uses their identity."""
        if case not in self._languages:
            self._languages[case] = Languages.of(case)
        return self._languages[case]

    @cached_property
    def _languages(self) -> dict[Case, Languages]:
        return {}

    def state(self, case: Case | str, tokens: Sequence[int] = ()) -> Finding:
        """The finding for the mask after these tokens."""
        case = case_of(case) if isinstance(case, str) else case
        with closing(self.compile(case)) as matcher:
            assert matcher.error is None, matcher.error
            assert all(matcher.consume(token) for token in tokens)
            grammar = self.languages(case).grammar
            prefix = b"".join(self.vocabulary.rendered[token] for token in tokens)
            mask = matcher.mask()
            return self.judge.judge(grammar, prefix, matcher, mask, random.Random(0))

    def allowed(self, case: Case | str, tokens: Sequence[int] = ()) -> list[int]:
        """The ids that the mask after these tokens allows."""
        case = case_of(case) if isinstance(case, str) else case
        with closing(self.compile(case)) as matcher:
            assert matcher.error is None, matcher.error
            assert all(matcher.consume(token) for token in tokens)
            mask = matcher.mask()
            return [] if mask is None else allowed_ids(mask, self.vocabulary.n_tokens).tolist()

    def generate(
        self, case: Case | str, seed: int = 0, *, drop: bool = True, never: Iterable[int] = ()
    ) -> Judged:
        """Decode one cell with random logits instead of a model, and judge it as `run` does.

        `never` are ids that an earlier sampler excluded.
        """
        case = case_of(case) if isinstance(case, str) else case
        rng = np.random.default_rng(seed)
        cell = Cell(
            key="one",
            prompt=(0,),
            compile=lambda: self.compile(case),
            max_tokens=case.max_tokens,
            end_ids=self.vocabulary.end_ids,
            drop_on_error=drop,
            n_vocab=self.vocabulary.n_tokens,
            first=case.tokens,
        )
        with closing(cell):
            while cell.end is None:
                logits = rng.standard_normal(self.vocabulary.n_tokens).astype(np.float32)
                logits[[*never]] = -np.inf
                advance(cell, logits)
            transcript = cell.transcript()
        return evaluate(
            case,
            transcript,
            self.vocabulary,
            self.table,
            self.languages(case).grammar,
            self.oracle,
            partial(self._controls.cause, "builder", self.table, case),
        )

    @cached_property
    def _controls(self) -> Controls:
        return Controls(self.engine, table_of(self.vocabulary))


def advance(cell: Cell, logits: np.ndarray) -> int | None:
    """Run one greedy step of a single cell; returns the sampled token, None if it has ended."""
    cell.compute_mask()
    token = cell.forced_token()
    if cell.end is not None:
        return None
    if token is None:
        choice = Choice(0, None if cell.view is None else cell.view.allowed, "")
        [token] = choose(logits[None], [choice], Sampling())
    cell.accept(token)
    return token


def bench_of(opened: Opened, builder: str) -> Bench:
    """A bench with a real vocabulary and a builder of the product."""
    return Bench(opened.vocabulary, opened.table(builder), opened.engine)


@contextmanager
def opened_file(file: Path) -> Generator[Opened]:
    """Open a GGUF that a test made, in this process; only for files that do not crash llama.cpp."""
    llama.start()
    with closing(llama.Model(file, vocab_only=True)) as model, closing(Llguidance()) as engine:
        yield Opened(model, vocabulary.read(model), engine)
