"""Whether a builder allows tokens that are not plain text inside free text.

A marker of a chat template must not be allowed inside a JSON string. A newline or a byte token must
be allowed where its bytes are legal. All tokens that are not NORMAL, have no
bytes or end a text are checked.
Padding ids beyond the vocabulary are checked too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt

from ..engines.protocol import Engine, Mask
from ..engines.table import TokenTable
from ..grammars.case import Case, Grammar
from ..grammars.checkers import Literal
from ..grammars.languages import cached_grammar
from ..model.verdicts import SpecialVerdict
from ..vocab.token_types import UNRENDERED, Attr, attr_name
from ..vocab.vocabulary import Vocabulary
from .masks import MaskJudge

_Row = dict[str, object]

_JSON_STRING = '%llguidance {}\nstart: %json {"type":"string"}'
_FREE_TEXT = "%llguidance {}\nstart: /(.|\\n)*/"

_HIDDEN = UNRENDERED | int(Attr.UNUSED)


def rows(
    vocabulary: Vocabulary, table: TokenTable, engine: Engine, judge: MaskJudge
) -> Iterator[_Row]:
    """One row for each token that is not plain text, and for each padding id that is allowed.

    A row says whether the token is allowed in a JSON string and in free text.
    """
    legal_string, legal_text = _legal(judge, _JSON_STRING, b'"'), _legal(judge, _FREE_TEXT, b"")
    in_string = _bits(_after_quote(vocabulary, table, engine), vocabulary.n_tokens)
    in_text = _bits(_first_mask(table, engine, _FREE_TEXT), vocabulary.n_tokens)
    empty = np.fromiter((not true for true in vocabulary.true_bytes), np.bool_)
    plain = vocabulary.attrs & (int(Attr.NORMAL) | UNRENDERED) == int(Attr.NORMAL)
    plain[list(vocabulary.end_ids)] = False
    odd: list[int] = np.flatnonzero(~plain | empty).tolist()
    for token in odd:
        true, attr = vocabulary.true_bytes[token], int(vocabulary.attrs[token])
        allowed = bool(in_string[token]), bool(in_text[token])
        yield {
            "token": token,
            "attribute": attr_name(attr),
            "true": true,
            "marked_special": table.special[token],
            "is_end": token in vocabulary.end_ids,
            "in_json_string": allowed[0],
            "in_free_text": allowed[1],
            "verdict": _verdict(
                vocabulary, token, allowed, (bool(legal_string[token]), bool(legal_text[token]))
            ).value,
        }
    for token in np.flatnonzero(in_text[vocabulary.n_tokens :]).tolist():
        yield {
            "token": vocabulary.n_tokens + token,
            "attribute": "PADDING",
            "true": b"",
            "marked_special": False,
            "is_end": False,
            "in_json_string": None,
            "in_free_text": True,
            "verdict": SpecialVerdict.ALLOWED_BUT_HIDDEN.value,
        }


def _verdict(
    vocabulary: Vocabulary, token: int, allowed: tuple[bool, bool], legal: tuple[bool, bool]
) -> SpecialVerdict:
    """`ok`, or the fault: allowed though hidden or illegal, or not allowed though legal."""
    if token in vocabulary.end_ids:
        return SpecialVerdict.END_ALLOWED_IN_STRING if allowed[0] else SpecialVerdict.OK
    if not vocabulary.rendered[token]:
        return SpecialVerdict.ALLOWED_BUT_HIDDEN if any(allowed) else SpecialVerdict.OK
    if any(may and not right for may, right in zip(allowed, legal, strict=True)):
        return SpecialVerdict.ALLOWED_BUT_ILLEGAL
    return SpecialVerdict.OK if allowed == legal else SpecialVerdict.TEXT_LOST


def _legal(judge: MaskJudge, grammar: str, prefix: bytes) -> npt.NDArray[np.bool_]:
    found = judge.legal(cached_grammar(grammar), prefix)
    assert found is not None
    return found[0]


def cases(vocabulary: Vocabulary, limit: int = 12) -> list[Case]:
    """Literals that begin with the spelling of a special token, to be walked as plain text.

    A tokenization that parses specials encodes them as the special id (field case U-15). The ids on
    which the runtime stops come first.
    """
    hidden = [token for token, attr in enumerate(vocabulary.attrs.tolist()) if attr & _HIDDEN]
    order = sorted(hidden, key=lambda token: (token not in vocabulary.end_ids, token))
    out: list[Case] = []
    for token in order[:limit]:
        try:
            text = vocabulary.texts[token].decode("utf-8") + "ok"
        except UnicodeDecodeError:
            continue
        if text != "ok" and "\0" not in text:
            grammar = Grammar("lark", f"start: {json.dumps(text, ensure_ascii=False)}")
            check = Literal(text.encode())
            out.append(Case("specials", f"id_{token}", "Hello", grammar, check, 64))
    return out


def _after_quote(vocabulary: Vocabulary, table: TokenTable, engine: Engine) -> Mask | None:
    """The mask inside a JSON string: after a token that is exactly one quote."""
    quote = next((i for i, piece in enumerate(vocabulary.rendered) if piece == b'"'), None)
    with closing(engine.compile(table, "lark", _JSON_STRING)) as matcher:
        if quote is None or matcher.error or not matcher.consume(quote):
            return None
        return matcher.mask()


def _first_mask(table: TokenTable, engine: Engine, grammar: str) -> Mask | None:
    with closing(engine.compile(table, "lark", grammar)) as matcher:
        return None if matcher.error else matcher.mask()


def _bits(mask: Mask | None, n_tokens: int) -> npt.NDArray[np.uint8]:
    """One entry per bit of the mask, padding included; all 0 if there is no mask."""
    if mask is None:
        return np.zeros(n_tokens, np.uint8)
    return np.unpackbits(mask.view(np.uint8), bitorder="little")
