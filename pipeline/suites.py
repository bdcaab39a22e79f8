"""Suites: which prompt, which grammar and which independent checker; read from `datasets/`.

A suite file is YAML (or JSON, by its suffix) that a person can read:

    suite: forced_literal
    about: one line
    cases:
      - id: founding
        prompt: "Hello"
        grammar: {lark: 'start: "The quick brown fox"'}  # or json: a JSON Schema
        check: {literal: "The quick brown fox"}  # or regex: or json:; json: true is the grammar's
        max_tokens: 64  # optional
        invalid_grammar: false  # optional: meant not to compile

Every fault of a file is a `SuiteError` of one paragraph that names the file, the case and the
field, and says what is allowed. Whether a Lark grammar compiles only an engine can tell: here it
is kept as text, and this module knows no engine.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast
from typing import Literal as OneOf

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator

from pipeline.errors import SuiteError
from pipeline.validate import Check, Json, Literal, Pattern, fault, schema_fault, strict_json

__all__ = ["Case", "Check", "Grammar", "Json", "Literal", "Pattern", "Suite", "load", "load_named"]

MAX_FILE_BYTES = 4 * 1024 * 1024
DEFAULT_MAX_TOKENS = 64
_SUFFIXES = (".yaml", ".yml", ".json")
_HEADER = "%llguidance"


@dataclass(frozen=True)
class Grammar:
    """What the output must obey, in the suite file's own words."""

    kind: OneOf["lark", "json"]
    text: str
    """Lark source, or a JSON Schema as compact JSON with its key order kept."""

    def engine_text(self) -> tuple[str, str]:
        """(kind, data) for `llg_new_matcher`, to the byte what llama.cpp's bridge sends.

        The bridge only knows `lark` (common/sampling.cpp) and takes the whole grammar string, with
        its `%llguidance` head; a schema is wrapped as in common/json-schema-to-grammar.cpp. Lark
        text that brings its own head, with engine options, is sent as it is.
        """
        if self.kind == "json":
            return "lark", f"{_HEADER} {{}}\nstart: %json {self.text}"
        if self.text.startswith(_HEADER):
            return "lark", self.text
        return "lark", f"{_HEADER} {{}}\n{self.text}"


@dataclass(frozen=True)
class Case:
    """One prompt, one grammar and the checker that judges the output without the engine."""

    suite: str
    id: str
    prompt: str
    grammar: Grammar
    check: Check
    max_tokens: int
    invalid_grammar: bool = False
    """Meant not to compile: the question is what the runtime then does."""

    @property
    def hash(self) -> str:
        """sha256 (hex) of everything that defines the case, its checker included.

        A field left at its default does not count, so that one added later changes no hash.
        """
        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        parts = {name: value for name, value in asdict(self).items() if name in given}
        parts["checker"] = type(self.check).__name__
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=bytes.decode)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Suite:
    """A named set of cases, in the order of its file."""

    name: str
    about: str
    cases: tuple[Case, ...]
    hash: str
    """sha256 (hex) of the cases as canonical JSON: comments and layout of the file do not count."""


def load_named(name: str, folder: Path) -> Suite:
    """Load `<folder>/<name>.yaml` (or .yml, .json); a name that is not there lists those that are.

    The file's own `suite:` must be `name`, because tables and commands use one for the other.
    """
    for suffix in _SUFFIXES if re.fullmatch(r"[a-z0-9_]+", name) else ():
        if (path := folder / f"{name}{suffix}").exists():
            suite = load(path)
            if suite.name != name:
                raise SuiteError(
                    f"{path}: suite: is {suite.name!r}, but the file is named {name!r}; "
                    "give both the same name."
                )
            return suite
    found = sorted({p.stem for p in folder.glob("*") if p.suffix in _SUFFIXES})
    raise SuiteError(f"No suite {name!r} in {folder}; there is: {', '.join(found) or 'none'}.")


def load(path: Path) -> Suite:
    """Read, check and build the suite in `path`; raises SuiteError and nothing else."""
    try:
        document = _parse(path, _read(path))
        if (error := next(_VALIDATOR.iter_errors(document), None)) is not None:
            raise SuiteError(f"{path}: {_place(error, document)}{_explain(error)}")
        cases: dict[str, Case] = {}
        for number, raw in enumerate(document["cases"], start=1):
            where = f"{path}: case {raw['id']!r} (number {number}), "
            if raw["id"] in cases:
                raise SuiteError(f"{where}id: an earlier case has it; each needs one of its own.")
            cases[raw["id"]] = _case(where, document["suite"], raw)
    except RecursionError:
        raise SuiteError(f"{path}: is nested too deeply to be read; make it flatter.") from None
    in_order = tuple(cases.values())
    return Suite(document["suite"], document["about"], in_order, _hash(in_order))


def _hash(cases: tuple[Case, ...]) -> str:
    parts = [asdict(case) | {"checker": type(case.check).__name__} for case in cases]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=bytes.decode)
    return hashlib.sha256(text.encode()).hexdigest()


# ── from bytes to a document ────────────────────────────────────────────────────────────────────


class _Loader(yaml.SafeLoader):
    """YAML cut down to what JSON can say: `on`, `12:30` and dates stay text; no aliases or tags."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # filled below, in PyYAML's own way

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = cast(yaml.Event, self.peek_event())  # pyright: ignore[reportUnknownMemberType]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            problem = "aliases (*name) and tags (!name) are not allowed; write the value itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                problem = "a key must be text; put it in quotes"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen:
                problem = f"duplicate key {key.value!r}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for _kind, _regex, _first in (
    ("null", r"null|", ["n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
        f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_regex})\\Z"), _first
    )


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise SuiteError(f"{path}: is not a file; a suite is one .yaml or .json file.")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SuiteError(f"{path}: cannot be read: {error}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise SuiteError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB; split the suite.")
    return data


def _parse(path: Path, data: bytes) -> Any:
    """The document as JSON values, all of whose text can be written as UTF-8."""
    try:
        if path.suffix == ".json":
            document = strict_json(data)
        else:
            document = yaml.load(data.decode(), _Loader)
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8.") from None
    except UnicodeEncodeError:
        raise SuiteError(
            f"{path}: has half of a surrogate pair (\\ud800 to \\udfff); write the character "
            "itself, or in YAML \\U0001F600."
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SuiteError(f"{path}: {line}{error.problem or 'is not YAML'}.") from None
    except (yaml.YAMLError, ValueError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        reason = " ".join(str(error).split())
        raise SuiteError(f"{path}: is not {kind} that can be read: {reason}.") from None
    return document


# ── the document's shape ────────────────────────────────────────────────────────────────────────
# A leaf's description completes "it must be …" in an error message.


def _leaf(words: str, **schema: Any) -> dict[str, Any]:
    return {"description": words, **schema}


def _mapping(required: str, optional: str = "", /, **properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping with these keys and no others; `required` and `optional` name them."""
    assert properties.keys() == {*required.split(), *optional.split()}
    words = f"a mapping with {', '.join(properties)}"
    keys = {"additionalProperties": False, "required": required.split(), "properties": properties}
    return _leaf(words, type="object", **keys)


def _one_of(**properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping with exactly one of these keys."""
    words = f"a mapping with exactly one of {', '.join(properties)}"
    keys = {"additionalProperties": False, "properties": properties}
    return _leaf(words, type="object", **keys, minProperties=1, maxProperties=1)


_TEXT = _leaf("text, not empty", type="string", minLength=1)
_NAME = _leaf("text of a-z, 0-9 and _ only", type="string", pattern=r"\A[a-z0-9_]+\Z")
_MAP = _leaf("a JSON Schema, written as a mapping", type="object")
_MAP_OR_TRUE = _leaf(
    "a JSON Schema, written as a mapping, or true for the grammar's own",
    anyOf=[{"type": "object"}, {"const": True}],
)
_CASE = _mapping(
    "id prompt grammar check",
    "max_tokens invalid_grammar",
    id=_NAME,
    prompt=_TEXT,
    grammar=_one_of(lark=_TEXT, json=_MAP),
    check=_one_of(literal=_TEXT, regex=_TEXT, json=_MAP_OR_TRUE),
    max_tokens=_leaf("a whole number, 1 to 4096", type="integer", minimum=1, maximum=4096),
    invalid_grammar=_leaf("true or false", type="boolean"),
)
_CASES = _leaf("a list of at least one case", type="array", minItems=1, items=_CASE)
SCHEMA = _mapping("suite about cases", suite=_NAME, about=_TEXT, cases=_CASES)
"""JSON Schema of a suite file."""

_VALIDATOR: Validator = Draft202012Validator(SCHEMA)


def _place(error: ValidationError, document: Any) -> str:
    """Where in the file: `cases/0/grammar/lark` as "case 'founding' (number 1), grammar.lark: "."""
    path = list(error.absolute_path)
    where: list[str] = []
    if len(path) > 1:  # inside the list of cases
        case = document["cases"][path[1]]
        name = cast(dict[str, Any], case).get("id") if isinstance(case, dict) else None
        number = f"number {int(path[1]) + 1}"
        where = [f"case {name!r} ({number})" if isinstance(name, str) else f"case {number}"]
        path = path[2:]
    if path:
        where.append(".".join(str(part) for part in path))
    return ", ".join(where) + ": " if where else ""


def _explain(error: ValidationError) -> str:
    """What is wrong at this place, and what is allowed there."""
    shape = cast(dict[str, Any], error.schema)
    value = cast(Any, error.instance)
    match error.validator:
        case "additionalProperties":
            unknown = next(key for key in value if key not in shape["properties"])
            return f"unknown key {unknown!r}; it must be {shape['description']}."
        case "required":
            missing = next(key for key in shape["required"] if key not in value)
            wanted = shape["properties"][missing]["description"]
            return f"{missing} is missing; it must be {wanted}."
        case "minProperties" | "maxProperties":
            return f"has {' and '.join(value) or 'no key'}; it must be {shape['description']}."
        case _:
            shown = json.dumps(value, ensure_ascii=False)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            return f"is {shown}; it must be {shape['description']}."


# ── one case ────────────────────────────────────────────────────────────────────────────────────


def _case(where: str, suite: str, raw: dict[str, Any]) -> Case:
    """Build one case whose shape is right; `where` begins every error message."""
    invalid: bool = raw.get("invalid_grammar", False)
    schema: dict[str, Any] | None = raw["grammar"].get("json")
    if schema is None:
        grammar = Grammar("lark", raw["grammar"]["lark"])
    else:
        grammar = Grammar("json", json.dumps(schema, separators=(",", ":"), ensure_ascii=False))
        if not invalid and (reason := schema_fault(schema)):
            raise SuiteError(f"{where}grammar.json: {reason}.")
    limit = int(raw.get("max_tokens", DEFAULT_MAX_TOKENS))
    ((kind, wanted),) = raw["check"].items()
    if wanted is True:
        if schema is None or invalid:
            raise SuiteError(
                f"{where}check.json: is true, but there is no valid grammar.json to take the "
                "schema from; write the schema here."
            )
        wanted = schema
    check = _check(kind, wanted)
    if reason := fault(check):
        raise SuiteError(f"{where}check.{kind}: {reason}.")
    return Case(suite, raw["id"], raw["prompt"], grammar, check, limit, invalid)


def _check(kind: str, wanted: Any) -> Check:
    if kind == "literal":
        return Literal(wanted.encode())
    return Pattern(wanted) if kind == "regex" else Json(wanted)
