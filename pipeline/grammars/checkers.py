"""Independent checkers: is this output what its case asked for?

They compare bytes, with Python's comparison, `re`, `json` and `jsonschema`. They do not use
engines, grammars or tokens, so their verdict is independent. `check` never raises; it returns None
or a reason on one line. `fault` says without an output whether a checker is valid.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, specification_with

_CLASS = r"\[\^?\]?[^]]*\]"
"""A set in a regex whose escapes were replaced; a `]` that comes first is a member."""
_LONGEST_REASON = 200
"""Longest reason, in characters; it fits in a table cell."""


@dataclass(frozen=True)
class Literal:
    """The output must be these bytes."""

    text: bytes


@dataclass(frozen=True)
class Pattern:
    """The output's bytes must match this source, encoded as UTF-8 (`re.fullmatch`).

    So `.` is one byte.
    """

    source: str


@dataclass(frozen=True)
class Json:
    """The output must be strict JSON, valid under the schema, in the compact `json.dumps` layout.

    Compact is `separators=(",", ":"), ensure_ascii=False`, with the keys in the output's order. The
    schema is interpreted by the draft that it declares (`$schema`), else by Draft 2020-12. Each
    value has one correct spelling: not `1.50`, `1e5` or `-0`, and not `\\u000a` for a newline. A
    grammar that allows other spellings needs a Pattern: llguidance allows -0 for integers around
    zero, and both spellings of control characters.
    """

    schema: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class JsonValue(Json):
    """The output must be strict JSON, valid under the schema, in any layout and spelling."""


@dataclass(frozen=True)
class Unchecked:
    """There is no independent checker for this output; any output passes."""


Check = Literal | Pattern | Json | Unchecked


def check(check: Check, output: bytes) -> str | None:
    """None if `output` is valid, else the reason: one printable line, encodable as UTF-8.

    Examples: "byte 3: got ' ', want 'c' (0x63)"; "not JSON: duplicate key 'count'";
    "schema: /count: 30 is greater than the maximum of 20".
    """
    match check:
        case Literal(text):
            reason = _difference(output, text)
        case Pattern(source):
            reason = _mismatch(source, output)
        case Json(schema):
            reason = _not_this_json(schema, output, compact=not isinstance(check, JsonValue))
        case Unchecked():
            reason = None
    return None if reason is None else _one_line(reason)


def accepts_nothing(check: Check) -> bool:
    """Whether no output at all can pass: the schema is `false`, or the negation of everything."""
    return isinstance(check, Json) and check.schema in (False, {"not": {}}, {"not": True})


def format_valid(check: Check, output: bytes) -> bool | None:
    """Whether the output fits every `format` of a schema, as far as jsonschema can check them.

    None if the checker has no schema with a `format`, or if the output is not strict JSON. The
    result changes no verdict: by the standard `format` is a remark, and llguidance enforces only
    some of them.
    """
    if not isinstance(check, Json) or '"format"' not in json.dumps(check.schema):
        return None
    if not isinstance(check.schema, dict) or schema_fault(check.schema) is not None:  # pyright: ignore[reportUnnecessaryIsInstance]
        return None
    draft = _draft(check.schema)
    validator = draft(check.schema, registry=EMPTY_REGISTRY, format_checker=draft.FORMAT_CHECKER)
    try:
        errors = [*validator.iter_errors(strict_json(output))]
    except (ValueError, ArithmeticError, RecursionError, Unresolvable, re.error):
        return None
    return not any(error.validator == "format" for error in errors)


def fault(check: Check) -> str | None:
    """Why this checker cannot judge any output (invalid regex or schema), or None."""
    match check:
        case Literal() | Unchecked():
            return None
        case Pattern(source):
            return _regex_fault(source)
        case Json(schema):
            return schema_fault(schema)


# ── text ────────────────────────────────────────────────────────────────────────────────────────


def _difference(output: bytes, wanted: bytes) -> str | None:
    """The first difference between two byte strings, in words; None if they are equal."""
    if output == wanted:
        return None
    shorter = min(len(output), len(wanted))
    at = next((i for i in range(shorter) if output[i] != wanted[i]), shorter)
    got = _byte(output[at]) if at < len(output) else "the end"
    want = _byte(wanted[at], code=True) if at < len(wanted) else "the end"
    return f"byte {at}: got {got}, want {want}"


def _byte(value: int, code: bool = False) -> str:
    if not 0x20 <= value < 0x7F:
        return f"0x{value:02X}"
    return f"{chr(value)!r} (0x{value:02X})" if code else repr(chr(value))


def _mismatch(source: str, output: bytes) -> str | None:
    regex = re.compile(source.encode())
    if regex.fullmatch(output):
        return None
    if (begun := regex.match(output)) and begun.end():
        rest = _shown(output[begun.end() :])
        return f"byte {begun.end()}: the pattern ends, but the output continues with {rest}"
    return f"pattern: {_shown(output)} does not match {source}"


def _shown(data: bytes) -> str:
    """Bytes as quoted text, cut to a readable length."""
    text = data[:60].decode(errors="backslashreplace")
    return f"'{text}'" + ("..." if len(data) > 60 else "")


def _one_line(text: str) -> str:
    """The text on one line, cut to `_LONGEST_REASON`, with unprintable characters as escapes."""
    start = text[: _LONGEST_REASON + 1]
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start)
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."


def _regex_fault(source: str) -> str | None:
    try:
        re.compile(source.encode())
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        return f"{source!r} is not a Python regex: {error}"
    # In UTF-8, [éè] is a set of single bytes, and é+ repeats only the last byte of é: an error.
    bare = re.sub(r"\\[\x00-\x7f]", "..", source)
    rest = re.sub(_CLASS, "c", bare)
    if not bare.isascii() and re.search(r"\(\?[a-zA-Z]*[ix]", rest):
        return f"{source!r} has a non-ASCII character and a flag i or x, which is not supported"
    if not all(map(str.isascii, re.findall(_CLASS, bare))) or re.search(
        r"[^\x00-\x7f][*+?{]", rest
    ):
        return (
            f"{source!r} has a non-ASCII character in [...] or right before a quantifier, but it "
            "is matched against bytes: write (?:é|è)+ in place of [éè]+"
        )
    return None


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def strict_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8, parsed more strictly than Python's json does.

    Raises ValueError for invalid UTF-8, a byte-order mark, NaN and Infinity, duplicate keys, and
    text after the value; RecursionError for deep nesting.
    """

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, item in items:
            if key in value:
                raise ValueError(f"duplicate key {key!r}")
            value[key] = item
        return value

    try:
        return json.loads(data.decode(), parse_constant=constant, object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        words = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        raise ValueError(f"{words} at byte {offset}") from None


def _not_this_json(schema: dict[str, Any], output: bytes, *, compact: bool) -> str | None:
    """The first fault of strict parsing, then of the layout if `compact`, then of the schema."""
    if not output:
        return "not JSON: the output is empty"
    try:
        value = strict_json(output)
        shortest = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except RecursionError:
        return "not JSON: nested too deeply to be read"
    except UnicodeEncodeError:
        return "not JSON: an escape is half of a surrogate pair, which is not a character"
    except ValueError as error:  # also an integer with more digits than Python reads
        return f"not JSON: {error}"
    if compact and (difference := _difference(output, shortest)) is not None:
        return f"layout: {difference}"
    return _violation(schema, value)


def _violation(schema: dict[str, Any], value: Any) -> str | None:
    """The first schema violation, or why the schema cannot be applied to this value; or None."""
    # The empty registry: jsonschema's default registry would fetch a remote $ref.
    validator = _draft(schema)(schema, registry=EMPTY_REGISTRY)
    try:
        error = next(validator.iter_errors(value), None)
    except (ArithmeticError, RecursionError, Unresolvable, re.error) as failure:
        return f"schema: cannot be applied to this value: {type(failure).__name__}"
    if error is None:
        return None
    pointer = "".join(f"/{part}" for part in error.absolute_path)
    return f"schema: {pointer}{': ' if pointer else ''}{error.message}"


def schema_fault(schema: dict[str, Any]) -> str | None:
    """Why this is not a valid, self-contained JSON Schema, or None; see `Json` for the draft."""
    try:
        _draft(schema).check_schema(schema)
    except SchemaError as error:
        path = "".join(f"/{part}" for part in error.absolute_path) or "its top"
        newest = _draft(schema) is Draft202012Validator
        name = "Draft 2020-12" if newest else schema["$schema"]
        return f"is not a valid JSON Schema ({name}): at {path}: {error.message[:200]}"
    if (reference := _broken_reference(schema)) is not None:
        return (
            f"$ref {reference!r} does not lead to a schema; it may only refer to parts of the same "
            "schema, for example '#/$defs/name'"
        )
    return None


def _draft(schema: dict[str, Any]) -> type[Validator]:
    """The validator of the draft that a schema declares; Draft 2020-12 if none or unknown."""
    declared = isinstance(schema.get("$schema"), str)
    return validator_for(schema, Draft202012Validator) if declared else Draft202012Validator


def _broken_reference(schema: dict[str, Any]) -> str | None:
    """The first `$ref` that does not lead to a schema in this document; None if all do."""
    validator, specification = _draft(schema), cast(Any, DRAFT202012)
    if validator is not Draft202012Validator:
        specification = specification_with(schema["$schema"])
    top: Resource[Any] = specification.create_resource(schema)
    registry: Registry[Any] = EMPTY_REGISTRY
    todo = [(top, registry.with_resource(top.id() or "", top).resolver(top.id() or ""))]
    judged: set[int] = set()
    while todo:
        part, resolver = todo.pop()
        said: Any = part.contents
        contents = cast(dict[str, Any], said if isinstance(said, dict) else {})
        for reference in (contents[key] for key in ("$ref", "$dynamicRef") if key in contents):
            try:
                found = resolver.lookup(reference)
                if id(found.contents) not in judged:  # it may be outside the places of subschemas
                    judged.add(id(found.contents))
                    validator.check_schema(found.contents)
                    todo.append((specification.create_resource(found.contents), found.resolver))
            except (Unresolvable, SchemaError, TypeError, ValueError):
                return reference
        todo += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
    return None
