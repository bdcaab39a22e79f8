"""Items of collections as cases to generate: a prompt, the grammar, and the checker that fits."""

from __future__ import annotations

import json
from typing import Any

from ...model.errors import SuiteError
from ..case import Case, Grammar
from ..checkers import Check, JsonValue, Unchecked, schema_fault
from . import Entry, Item


def case(suite: str, item: Item, entry: Entry, prompt: str) -> Case:
    """An entry that `read` gave as a case to generate.

    `prompt` is for those without one; `{grammar}` in it stands for the grammar's text. Raises
    SuiteError for what is nested too deeply to be a case.
    """
    grammar = entry.grammar
    assert grammar is not None
    asked = prompt.replace("{grammar}", grammar.text) if entry.prompt is None else entry.prompt
    try:
        made = Case(
            suite, item.id, asked, grammar, _check(grammar), entry.max_tokens, imported=True
        )
        _ = made.hash
    except RecursionError:
        raise SuiteError(f"{item.file}: {item.id} is nested too deeply.") from None
    return made


def refused(suite: str, item_id: str, reason: str) -> Case:
    """The case of an item that cannot be tried."""
    return Case(
        suite, item_id, "", Grammar("lark", ""), Unchecked(), 1, imported=True, refused=reason
    )


def _check(grammar: Grammar) -> Check:
    """The checker that fits: of a schema jsonschema, or mere JSON where it cannot apply it."""
    if grammar.kind != "json":
        return Unchecked()
    schema: Any = json.loads(grammar.text)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return JsonValue(schema if schema_fault(schema) is None else {})
