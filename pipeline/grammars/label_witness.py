"""A second opinion on the label of a JSON text: is it an instance of its schema?

`jsonschema` gives the answer, without an engine. It gives none where it is no reliable witness:
where the answer depends on the dialect of regexes, on formats, or on floating-point division, and
where the drafts that the schema may be written for disagree.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    SchemaError,
)
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY

from .checkers import strict_json

_DRAFTS: tuple[type[Validator], ...] = (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
_DOUBTFUL = {"format", "pattern", "patternProperties", "multipleOf"}
_NEW_IN_DRAFT_6 = {"const", "contains", "propertyNames", "if", "$id"}
"""A schema with these keywords is not written for Draft 4."""


def is_instance(schema: str, text: bytes) -> bool | None:
    """Whether `text` is valid under a JSON Schema (as JSON); None if jsonschema cannot tell."""
    try:
        meaning, value = json.loads(schema), strict_json(text)
        if _has(meaning, _DOUBTFUL):
            return None
        answers = {
            draft(meaning, registry=EMPTY_REGISTRY).is_valid(value)
            for draft in _drafts(meaning)
            if _readable(draft, meaning)
        }
    except (ValueError, ArithmeticError, RecursionError, Unresolvable, SchemaError, re.error):
        return None
    return answers.pop() if len(answers) == 1 else None


def _drafts(schema: Any) -> tuple[type[Validator], ...]:
    """The drafts that a schema may be written for: the one that it declares, or all; none if it
    declares an unknown one."""
    if not isinstance(schema, dict) or "$schema" not in schema:
        return _DRAFTS[1:] if _has(schema, _NEW_IN_DRAFT_6) else _DRAFTS
    declared: Any = validator_for(cast(dict[str, Any], schema), default=cast(Any, None))
    return () if declared is None else (declared,)


def _readable(draft: type[Validator], schema: Any) -> bool:
    try:
        draft.check_schema(schema)
    except SchemaError:
        return False
    return True


def _has(schema: Any, keywords: set[str]) -> bool:
    """Whether one of these keywords occurs anywhere, also as the name of a property."""
    if isinstance(schema, dict):
        named = cast(dict[str, Any], schema)
        return not keywords.isdisjoint(named) or any(_has(v, keywords) for v in named.values())
    return isinstance(schema, list) and any(_has(v, keywords) for v in cast(list[Any], schema))
