"""SentencePiece's merge as llama.cpp does it: the best-scored pair first, the leftmost of equals.

Symbols are characters; a pair that spells a token can be merged, and merging goes on until no
pair can. Written against `llm_tokenizer_spm_session` in llama.cpp's `src/llama-vocab.cpp`, whose
result it equals; the ways to it are its own. A short text is merged over a list, which is fast
because it is short. A long one is merged in pieces where that is provably the same
(`keep_apart`), so that the time grows with the text and not with its square, whatever the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

Scores = Mapping[str, float]
"""The score of every text that is a token; finite or -inf is not among them."""

SHORT = 96
"""Characters up to which a list beats a heap."""
_WINDOW = 64
_TOO_LONG = 1024
"""Characters of a piece above which a long text is merged in one go, in n log n."""
_NEVER = float("-inf")


def merge(text: str, scores: Scores) -> list[str]:
    """The tokens and left-over characters of a text, in order."""
    return _merge_short(list(text), scores) if len(text) <= SHORT else _merge_long(text, scores)


def _merge_short(symbols: list[str], scores: Scores) -> list[str]:
    score = scores.get
    pairs = [score(one + two, _NEVER) for one, two in pairwise(symbols)]
    while pairs:
        best = max(pairs)
        if best == _NEVER:
            break
        at = pairs.index(best)
        merged = symbols[at] = symbols[at] + symbols[at + 1]
        del symbols[at + 1], pairs[at]
        if at:
            pairs[at - 1] = score(symbols[at - 1] + merged, _NEVER)
        if at < len(pairs):
            pairs[at] = score(merged + symbols[at + 1], _NEVER)
    return symbols


@dataclass(frozen=True, slots=True)
class _Piece:
    """A text merged on its own, and the story of its two ends."""

    text: str
    tokens: list[str]
    story: list[tuple[float, int, int]]
    """Of each merge in order: its score, then where the first symbol ends and the last begins.

    The state before the first merge has no entry: one character at either end."""

    def cut(self) -> int:
        """The last token boundary in the first three quarters, else the first one there is."""
        best = place = 0
        for token in self.tokens:
            place += len(token)
            if best and place > _WINDOW * 3 // 4:
                break
            best = place
        return best


def _alone(text: str, scores: Scores) -> _Piece:
    """Merge a text over a heap; a symbol is known by where it begins."""
    n, score = len(text), scores.get
    end = [*range(1, n + 1)]  # of the symbol that begins here; 0 once that is merged away
    before = [*range(-1, n)]  # where the symbol before begins
    heap = [
        (-found, i, i + 1, i + 2)
        for i in range(n - 1)
        if (found := score(text[i : i + 2])) is not None
    ]
    heapify(heap)
    story: list[tuple[float, int, int]] = []
    last = n - 1
    while heap:
        cost, left, middle, right = heappop(heap)
        if end[left] != middle or end[middle] != right:
            continue  # one of the two has grown or is gone
        end[left], end[middle] = right, 0
        if right < n:
            before[right] = left
            if (found := score(text[left : end[right]])) is not None:
                heappush(heap, (-found, left, right, end[right]))
        else:
            last = left
        if left and (found := score(text[before[left] : right])) is not None:
            heappush(heap, (-found, before[left], left, right))
        story.append((-cost, end[0], last))
    tokens: list[str] = []
    place = 0
    while place < n:
        tokens.append(text[place : end[place]])
        place = end[place]
    return _Piece(text, tokens, story)


def _keep_apart(left: _Piece, right: _Piece, scores: Scores) -> bool:
    """Whether merging two neighbours together is the same as merging each alone.

    It is unless the pair across the boundary is at some moment the best one. What either side
    does until then is what it does alone, and the whole always takes the better of both sides'
    next merges (of equals the left one's), so the two stories are run against each other.
    """
    a, b = left.story, right.story
    i = j = 0
    ending, beginning = left.text[-1], right.text[0]
    while True:
        across = scores.get(ending + beginning, _NEVER)
        next_left = a[i][0] if i < len(a) else _NEVER
        next_right = b[j][0] if j < len(b) else _NEVER
        if across > next_left and across >= next_right and across != _NEVER:
            return False
        if next_left == next_right == _NEVER:
            return True
        if next_left >= next_right:
            ending = left.text[a[i][2] :]
            i += 1
        else:
            beginning = right.text[: b[j][1]]
            j += 1


def _merge_long(text: str, scores: Scores) -> list[str]:
    """Merge in pieces that keep apart; equal pieces, as in a run of one character, only once."""
    alone = cache(lambda part: _alone(part, scores))  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType, reportUnknownArgumentType]
    apart = cache(lambda one, two: _keep_apart(alone(one), alone(two), scores))  # pyright: ignore
    done: list[str] = []
    place = 0
    while place < len(text):
        window = text[place : place + _WINDOW]
        piece = window if len(window) < _WINDOW else window[: alone(window).cut()]
        place += len(piece)
        while done and not apart(done[-1], piece):
            piece = done.pop() + piece
            if len(piece) > _TOO_LONG:
                return _alone(text, scores).tokens
        done.append(piece)
    return [token for piece in done for token in alone(piece).tokens]
