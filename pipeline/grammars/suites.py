"""Suites: prompts with their grammars and independent checkers, read from `datasets/`.

A suite file is YAML, or JSON if its suffix is `.json`:

    suite: forced_literal
    about: one line
    cases:
      - id: founding
        prompt: "Hello"
        grammar: {lark: 'start: "The quick brown fox"'}  # or json: a JSON Schema
        check: {literal: "The quick brown fox"}  # or regex: or json:; json: true: the grammar's
        layout: compact  # optional, with json: exactly as json.dumps spells it without spaces
        max_tokens: 64  # optional
        invalid_grammar: false  # optional: true if it must not compile
        stress: false  # optional: true if it may exceed the engine's limits
        tokens: [1, 2]  # optional: ids to sample first, as long as the mask allows them

JSON is judged by its meaning; its layout and spelling count only with `layout: compact`.

A second kind has no prompts. It has grammars, each with strings it must accept and must reject:

    suite: strings
    about: one line
    grammars:
      - id: hello_world
        grammar: {lark: 'start: "hello world"'}  # or json: a JSON Schema
        accept: ["hello world"]  # text, or {hex: "ff00"} for raw bytes
        reject: ["hello", " hello world"]
        regex: hello world  # optional: a Python regex on bytes that means the same as the grammar

A fault in a file raises `SuiteError`: one paragraph that names the file, the case and the field,
and says what is allowed. This module uses no engine, so it does not compile Lark grammars.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from typing import Literal as OneOf

from ..model.errors import SuiteError
from . import suite_file
from .case import (
    DEFAULT_MAX_TOKENS,
    Case,
    Grammar,
    StringGrammar,
    StringSuite,
    Suite,
    definition_hash,
)
from .checkers import Check, Json, JsonValue, Literal, Pattern, check, fault, schema_fault

__all__ = [
    "Case",
    "Check",
    "Grammar",
    "Json",
    "Literal",
    "Pattern",
    "StringGrammar",
    "StringSuite",
    "Suite",
    "load",
    "load_named",
    "load_strings",
]


def load_named(name: str, folder: Path) -> Suite:
    """Load `<folder>/<name>.yaml` (or .yml, .json).

    The file's `suite:` must equal `name`, because tables show the first and commands take the
    second. Raises SuiteError; for an unknown name it lists the known ones.
    """
    for suffix in suite_file.SUFFIXES if re.fullmatch(r"[a-z0-9_]+", name) else ():
        if (path := folder / f"{name}{suffix}").exists():
            suite = load(path)
            if suite.name != name:
                raise SuiteError(
                    f"{path}: suite: is {suite.name!r}, but the file is named {name!r}; "
                    "give both the same name."
                )
            return suite
    found = sorted({p.stem for p in folder.glob("*") if p.suffix in suite_file.SUFFIXES})
    raise SuiteError(f"No suite {name!r} in {folder}; known suites: {', '.join(found) or 'none'}.")


def load(path: Path) -> Suite:
    """Read, check and build the suite in `path`. Raises only SuiteError."""
    document = suite_file.read(path, suite_file.CASE_FILE)
    with suite_file.not_too_deep(path):
        entries = _entries(path, "case", document["cases"])
        cases = tuple(_case(where, document["suite"], raw) for where, raw in entries)
        hashed = definition_hash([asdict(c) | {"checker": type(c.check).__name__} for c in cases])
    return Suite(document["suite"], document["about"], cases, hashed)


def load_strings(path: Path) -> StringSuite:
    """Read, check and build the suite of strings in `path`. Raises only SuiteError."""
    document = suite_file.read(path, suite_file.STRING_FILE)
    with suite_file.not_too_deep(path):
        entries = _entries(path, "grammar", document["grammars"])
        grammars = tuple(_string_grammar(where, document["suite"], raw) for where, raw in entries)
        hashed = definition_hash([asdict(grammar) for grammar in grammars])
    return StringSuite(document["suite"], document["about"], grammars, hashed)


def _entries(
    path: Path, noun: str, raws: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry of a file, with the start of any error message about it."""
    seen: set[str] = set()
    for number, raw in enumerate(raws, start=1):
        where = f"{path}: {noun} {raw['id']!r} (number {number}), "
        if raw["id"] in seen:
            raise SuiteError(f"{where}id: an earlier {noun} has the same id; ids must be unique.")
        seen.add(raw["id"])
        yield where, raw


# ── one case, one grammar with strings ──────────────────────────────────────────────────────────


def _case(where: str, suite: str, raw: dict[str, Any]) -> Case:
    """Build one case of valid structure; `where` begins every error message."""
    invalid: bool = raw.get("invalid_grammar", False)
    grammar = _grammar(where, raw["grammar"], invalid)
    limit = int(raw.get("max_tokens", DEFAULT_MAX_TOKENS))
    ((kind, wanted),) = raw["check"].items()
    if wanted is True:
        if grammar.kind != "json" or invalid:
            raise SuiteError(
                f"{where}check.json: is true, but there is no valid grammar.json to take the "
                "schema from; write the schema here."
            )
        wanted = raw["grammar"]["json"]
    if "layout" in raw and kind != "json":
        raise SuiteError(f"{where}layout: only check.json has a layout; leave it out.")
    checker = _check(kind, wanted, raw.get("layout"))
    if reason := fault(checker):
        raise SuiteError(f"{where}check.{kind}: {reason}.")
    return Case(
        suite,
        raw["id"],
        raw["prompt"],
        grammar,
        checker,
        limit,
        invalid,
        stress=raw.get("stress", False),
        tokens=tuple(raw.get("tokens", ())),
    )


def _grammar(where: str, raw: dict[str, Any], invalid: bool = False) -> Grammar:
    schema: dict[str, Any] | None = raw.get("json")
    if schema is None:
        if "\0" in raw["lark"]:
            raise SuiteError(f"{where}grammar.lark: contains a NUL character, which C cannot pass.")
        return Grammar("lark", raw["lark"])
    if not invalid and (reason := schema_fault(schema)):
        raise SuiteError(f"{where}grammar.json: {reason}.")
    return Grammar("json", json.dumps(schema, separators=(",", ":"), ensure_ascii=False))


def _check(kind: str, wanted: Any, layout: str | None) -> Check:
    if kind == "literal":
        return Literal(wanted.encode())
    if kind == "regex":
        return Pattern(wanted)
    return JsonValue(wanted) if layout is None else Json(wanted)


def _string_grammar(where: str, suite: str, raw: dict[str, Any]) -> StringGrammar:
    """Build one grammar with strings, of valid structure."""
    grammar = _grammar(where, raw["grammar"])
    regex: str | None = raw.get("regex")
    if regex is not None and (reason := fault(Pattern(regex))):
        raise SuiteError(f"{where}regex: {reason}.")
    earlier: dict[bytes, str] = {}
    accept = _strings(where, "accept", raw, earlier)
    reject = _strings(where, "reject", raw, earlier)
    return StringGrammar(suite, raw["id"], grammar, accept, reject, regex)


def _strings(
    where: str, side: OneOf["accept", "reject"], raw: dict[str, Any], earlier: dict[bytes, str]
) -> tuple[bytes, ...]:
    """One list of strings as bytes.

    Raises SuiteError if a string is in `earlier` or contradicts the regex.
    """
    strings: list[bytes] = []
    for number, item in enumerate(raw[side], start=1):
        here = f"{side} number {number}"
        fails = f"{where}{here}: is {suite_file.shown(item)}, "
        data = item.encode() if isinstance(item, str) else bytes.fromhex(item["hex"])
        if data in earlier:
            raise SuiteError(f"{fails}the same bytes as {earlier[data]}; give each string once.")
        if "regex" in raw and (check(Pattern(raw["regex"]), data) is None) != (side == "accept"):
            does = "does not match" if side == "accept" else "matches"
            raise SuiteError(f"{fails}which {does} regex; regex must mean the same as the grammar.")
        earlier[data] = here
        strings.append(data)
    return tuple(strings)
