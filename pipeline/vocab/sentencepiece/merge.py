"""SentencePiece's merge as in llama.cpp: best score first, leftmost of equal scores.

Symbols are characters at first. A pair that spells a token can be merged; merging repeats until no
pair can be merged. The result equals that of `llm_tokenizer_spm_session` in llama.cpp's
`src/llama-vocab.cpp`; the algorithm is our own. A short text is merged over a list. A long text is
merged in pieces where this provably gives the same result (`_keep_apart`). So the time grows
linearly with the length of any text, not with its square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

Scores = Mapping[str, float]
"""The score of every text that is a token, none of them -inf."""

SHORT = 96
"""Length in characters up to which a list is faster than a heap."""
_WINDOW = 64
_TOO_LONG = 1024
"""Length of a piece, in characters, above which the whole text is merged at once, in n log n."""
_NEVER = float("-inf")


MergeHistory = list[tuple[float, str, str]]
"""For each merge in order: (its score, the first symbol after it, the last symbol after it)."""


def merge(text: str, scores: Scores) -> list[str]:
    """The tokens of a text and the characters that were not merged, in order."""
    return _over_list(text, scores)[0] if len(text) <= SHORT else _in_pieces(text, scores)


def _over_list(text: str, scores: Scores) -> tuple[list[str], MergeHistory]:
    """Merge a short text; returns (its tokens, its merges)."""
    score = scores.get
    symbols = list(text)
    pairs = [score(one + two, _NEVER) for one, two in pairwise(symbols)]
    history: MergeHistory = []
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
        history.append((best, symbols[0], symbols[-1]))
    return symbols, history


def _over_heap(text: str, scores: Scores) -> tuple[list[str], MergeHistory]:
    """As `_over_list`, for a text of any length; a symbol is identified by its start."""
    n, score = len(text), scores.get
    end = [*range(1, n + 1)]  # end of the symbol that starts here; 0 if merged into another
    before = [*range(-1, n)]  # start of the previous symbol
    found = [score(text[i : i + 2], _NEVER) for i in range(n - 1)]
    heap = [(-best, i, i + 1, i + 2) for i, best in enumerate(found) if best != _NEVER]
    heapify(heap)
    history: MergeHistory = []
    first, last = text[0], text[-1]
    while heap:
        cost, left, middle, right = heappop(heap)
        if end[left] != middle or end[middle] != right:
            continue  # outdated: one of the two symbols has been merged since
        end[left], end[middle] = right, 0
        if right < n:
            before[right] = left
            if (best := score(text[left : end[right]], _NEVER)) != _NEVER:
                heappush(heap, (-best, left, right, end[right]))
        else:
            last = text[left:]
        if left == 0:
            first = text[:right]
        elif (best := score(text[before[left] : right], _NEVER)) != _NEVER:
            heappush(heap, (-best, before[left], left, right))
        history.append((-cost, first, last))
    tokens: list[str] = []
    place = 0
    while place < n:
        tokens.append(text[place : end[place]])
        place = end[place]
    return tokens, history


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text, merged alone."""

    text: str
    tokens: list[str]
    history: MergeHistory

    def cut(self) -> int:
        """The last token boundary in the first three quarters of the window, else the first one."""
        best = place = 0
        for token in self.tokens:
            place += len(token)
            if best and place > _WINDOW * 3 // 4:
                break
            best = place
        return best


def _keep_apart(left: _Piece, right: _Piece, scores: Scores) -> bool:
    """Whether merging two neighbours together gives the same result as merging each alone.

    It does, unless the pair across the boundary becomes the best pair at some moment. Until then
    each side is merged as it would be alone, and the better of the two next merges comes first (if
    both have the same score, the left one). So this function replays both histories together.
    """
    a, b = left.history, right.history
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
            ending = a[i][2]
            i += 1
        else:
            beginning = b[j][1]
            j += 1


def _in_pieces(text: str, scores: Scores) -> list[str]:
    """Merge in independent pieces; equal pieces, as in a run of one character, only once."""
    pieces: dict[str, _Piece] = {}
    apart: dict[tuple[str, str], bool] = {}

    def merge_alone(part: str) -> _Piece:
        if part not in pieces:
            way = _over_list if len(part) <= SHORT else _over_heap
            pieces[part] = _Piece(part, *way(part, scores))
        return pieces[part]

    def keep_apart(one: str, two: str) -> bool:
        if (one, two) not in apart:
            apart[one, two] = _keep_apart(merge_alone(one), merge_alone(two), scores)
        return apart[one, two]

    done: list[str] = []
    place = 0
    while place < len(text):
        window = text[place : place + _WINDOW]
        piece = window if len(window) < _WINDOW else window[: merge_alone(window).cut()]
        place += len(piece)
        while done and not keep_apart(done[-1], piece):
            piece = done.pop() + piece
            if len(piece) > _TOO_LONG:
                return _over_heap(text, scores)[0]
        done.append(piece)
    return [token for piece in done for token in merge_alone(piece).tokens]
