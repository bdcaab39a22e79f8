"""Imported items as cases to generate: a prompt, the grammar, and a suitable checker."""

from __future__ import annotations

import json
from typing import Any

from ...model.errors import SuiteError
from ..case import Case, Grammar
from ..checkers import Check, JsonValue, Unchecked, schema_fault
from . import Entry, Item


def case(suite: str, item: Item, entry: Entry, prompt: str) -> Case:
    """A case to generate from an entry that `read` returned.

    `prompt` is used if the entry has none; `{grammar}` in it is replaced by the grammar's text.
    Raises SuiteError if the grammar is nested too deeply.
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
    """The case of an item that cannot be run, with the reason."""
    return Case(
        suite, item_id, "", Grammar("lark", ""), Unchecked(), 1, imported=True, refused=reason
    )


def _check(grammar: Grammar) -> Check:
    """The checker of a grammar: jsonschema for a schema, or only JSON if it is not usable."""
    if grammar.kind != "json":
        return Unchecked()
    schema: Any = json.loads(grammar.text)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return JsonValue(schema if schema_fault(schema) is None else {})
