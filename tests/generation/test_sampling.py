"""Choosing tokens from logits, and the number of sequences that fit into memory."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.generation import batch_size
from pipeline.generation.sampling import Choice, Logits, choose
from pipeline.generation.settings import Sampling
from pipeline.native import llama
from pipeline.system import memory
from pipeline.vocab.files import forge, source
from support.vocabularies import vocabulary_file

steady = settings(derandomize=True, deadline=None, max_examples=100)


def choices(allowed: np.ndarray | None, n: int) -> list[Choice]:
    return [Choice(0, allowed, f"case/{i}") for i in range(n)]


def sampled(logits: Logits, allowed: np.ndarray | None, n: int, how: Sampling) -> list[int]:
    return choose(logits[None], choices(allowed, n), how)


@steady
@given(data=st.data(), n_rows=st.integers(1, 5), n_wishes=st.integers(0, 9))
def test_one_pass_chooses_as_row_by_row(data: st.DataObject, n_rows: int, n_wishes: int) -> None:
    values = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0])
    row = st.lists(values, min_size=33, max_size=33)
    logits = np.array([data.draw(row) for _ in range(n_rows)], np.float32)
    asked: list[Choice] = []
    for _ in range(n_wishes):
        ids = data.draw(st.sets(st.integers(0, 32), min_size=1))
        allowed = np.zeros(33, np.bool_)
        allowed[[*ids]] = True
        free = data.draw(st.booleans())
        asked.append(Choice(data.draw(st.integers(0, n_rows - 1)), None if free else allowed, ""))
    for choice, token in zip(asked, choose(logits, asked, Sampling()), strict=True):
        ids = range(33) if choice.allowed is None else np.flatnonzero(choice.allowed).tolist()
        assert token == min(ids, key=lambda i: (-logits[choice.row][i], i))


def test_draws_follow_the_probabilities_of_the_allowed_tokens() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    allowed = np.array([True, False, True, True])
    n = 20_000
    drawn = Counter(sampled(logits, allowed, n, Sampling(temperature=1.0)))
    assert set(drawn) == {0, 2, 3}
    for token, share in ((0, 0.125), (2, 0.375), (3, 0.5)):
        assert drawn[token] / n == pytest.approx(share, abs=0.02)
    cold = Counter(sampled(logits, allowed, n, Sampling(temperature=0.5)))
    assert cold[3] / n == pytest.approx(16 / 26, abs=0.02)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    for top_p, kept in ((0.3, {3}), (0.45, {2, 3}), (0.75, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        assert set(sampled(logits, None, 500, Sampling(1.0, top_p))) == kept


def test_a_draw_depends_only_on_its_seed_and_name() -> None:
    logits = np.zeros(1000, np.float32)
    many = sampled(logits, None, 50, Sampling(1.0, seed=3))
    alone = [
        choose(logits[None], [choice], Sampling(1.0, seed=3))[0] for choice in choices(None, 50)
    ]
    assert alone == many
    assert sampled(logits, None, 50, Sampling(1.0, seed=4)) != many


def test_impossible_logits_still_choose_an_allowed_token() -> None:
    logits = np.full(8, -np.inf, np.float32)
    allowed = np.arange(8) >= 5
    for how in (Sampling(), Sampling(1.0)):
        assert sampled(logits, allowed, 1, how) == [5]


def test_number_of_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    llama.start()
    file = forge.forge_model(vocabulary_file("mistral_v1"), 0, source.cache_dir())
    with closing(llama.Model(file, vocab_only=False)) as model:
        check_room(model, monkeypatch)


def check_room(model: llama.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.kv_bytes == 2 * 2 * 2 * 128, "keys and values, 16 bits, two layers, 128 wide"
    each = 256 * model.kv_bytes + 5 * model.vocab.n_tokens

    def fits(wanted: int, n_cells: int, device: str = "cpu") -> int:
        return batch_size.n_seq(wanted, model, n_ctx_seq=256, n_cells=n_cells, device=device)

    assert fits(0, 1000) == 32
    assert fits(0, 5) == 5
    assert fits(7, 1000) == 7
    assert fits(256, 1000) == fits(0, 1000, "gpu") == 256
    monkeypatch.setattr(memory, "free", lambda: 2 * each * 6)
    assert fits(0, 1000) == 6
    monkeypatch.setattr(memory, "free", lambda: 0)
    assert fits(0, 1000) == 1
    assert fits(8, 1000) == 8


def test_free_memory_is_plausible() -> None:
    assert 2**20 < memory.free() <= memory.total() < 2**50
