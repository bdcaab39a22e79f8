"""The closed types of `model/verdicts` whose words each column holds, by table and column."""

from __future__ import annotations

from enum import StrEnum

from ...model.verdicts import (
    Agreement,
    ByteChange,
    Cause,
    Control,
    Damage,
    End,
    Enforcement,
    InstanceVerdict,
    MaskKind,
    MaskVerdict,
    Origin,
    SpecialVerdict,
    Split,
    Standing,
    Status,
    Strategy,
    Tokenization,
    TokenizeMode,
    Verdict,
    WalkEnd,
    WalkVerdict,
)

_TYPES: dict[tuple[str, str], tuple[type[StrEnum], ...]] = {
    ("standings", "standing"): (Standing,),
    ("cells", "verdict"): (Verdict,),
    ("cells", "cause"): (Cause,),
    ("cells", "cause_by"): (Control,),
    ("cells", "ended"): (End,),
    ("cells", "enforcement"): (Enforcement,),
    ("steps", "origin"): (Origin,),
    ("tokenizers", "status"): (Status,),
    ("tokenizers", "tokenize"): (TokenizeMode,),
    ("tokens", "damage"): (Damage,),
    ("exactness", "verdict"): (Tokenization,),
    ("exactness", "class"): (ByteChange,),
    ("specials", "verdict"): (SpecialVerdict,),
    ("states", "verdict"): (MaskVerdict,),
    ("states", "engine_free"): (Agreement,),
    ("walks", "strategy"): (Strategy,),
    ("walks", "ended"): (WalkEnd,),
    ("walks", "status"): (Status,),
    ("walks", "verdict"): (MaskVerdict, WalkVerdict),
    ("reproducers", "verdict"): (MaskVerdict,),
    ("reproducers", "kind"): (MaskKind, Damage),
    ("field", "status"): (Status,),
    ("field", "verdict"): (MaskVerdict,),
    ("engines", "status"): (Status,),
    ("engines", "verdict"): (MaskVerdict,),
    ("engines", "engine_free"): (Agreement,),
    ("engine_findings", "verdict"): (MaskVerdict,),
    ("engine_findings", "kind"): (MaskKind,),
    ("prefix", "status"): (Status,),
    ("strings", "split"): (Split,),
    ("strings", "verdict"): (InstanceVerdict,),
    ("strings", "cause"): (Cause,),
    ("replay", "split"): (Split,),
    ("replay", "verdict"): (InstanceVerdict,),
    ("replay", "cause"): (Cause,),
}

WORDS = {
    column: frozenset(word.value for kind in kinds for word in kind)
    for column, kinds in _TYPES.items()
}
"""(table, column) → every word that the column may hold; null is always allowed."""
