"""Suite files: parse a file and check its structure; errors are one paragraph.

There are two kinds: a file of `cases`, and a file of `grammars` with strings. `suites` checks the
content: whether a schema is valid, whether a regex compiles.
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator

from ..model.errors import SuiteError
from .checkers import strict_json

__all__ = [
    "CASE_FILE",
    "STRING_FILE",
    "SUFFIXES",
    "not_too_deep",
    "read",
    "shown",
]

_MAX_FILE_BYTES = 4 * 1024 * 1024
SUFFIXES = (".yaml", ".yml", ".json")


def read(path: Path, shape: Validator) -> dict[str, Any]:
    """The document in `path`, checked against `CASE_FILE` or `STRING_FILE`. Raises SuiteError."""
    with not_too_deep(path):
        document = _parse(path, _read(path))
        if (error := next(shape.iter_errors(document), None)) is not None:
            raise SuiteError(f"{path}: {_place(error, document)}{_explain(error)}")
    return document


@contextmanager
def not_too_deep(path: Path) -> Generator[None, None, None]:
    """Turn a RecursionError from a deeply nested document into a SuiteError."""
    try:
        yield
    except RecursionError:
        raise SuiteError(f"{path}: is nested too deeply to be read; make it flatter.") from None


# ── from bytes to a document ────────────────────────────────────────────────────────────────────


class _Loader(yaml.SafeLoader):
    """YAML with JSON's values only: `on`, `12:30` and dates stay text; no aliases or tags."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # filled below through PyYAML's own method

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
            data = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SuiteError(f"{path}: cannot be read: {error}.") from None
    if len(data) > _MAX_FILE_BYTES:
        raise SuiteError(f"{path}: is larger than {_MAX_FILE_BYTES >> 20} MiB; split the suite.")
    return data


def _parse(path: Path, data: bytes) -> Any:
    """The document as JSON values; all its text can be encoded as UTF-8."""
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
        raise SuiteError(f"{path}: is not valid {kind}: {reason}.") from None
    return document


# ── the document's shape ────────────────────────────────────────────────────────────────────────
# The description of a leaf completes "it must be …" in an error message.


def _leaf(words: str, **schema: Any) -> dict[str, Any]:
    return {"description": words, **schema}


def _mapping(required: str, optional: str = "", /, **properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping with exactly the keys that `required` and `optional` name."""
    assert properties.keys() == {*required.split(), *optional.split()}
    words = f"a mapping with {', '.join(properties)}"
    keys = {"additionalProperties": False, "required": required.split(), "properties": properties}
    return _leaf(words, type="object", **keys)


def _one_of(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping with exactly one of these keys."""
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
_GRAMMAR = _one_of(lark=_TEXT, json=_MAP)
_STRING = _leaf(
    'text, or {hex: "ff00"} for raw bytes',
    anyOf=[
        {"type": "string"},
        {
            "type": "object",
            "properties": {"hex": {"type": "string", "pattern": r"\A([0-9a-f]{2})+\Z"}},
            "required": ["hex"],
            "additionalProperties": False,
        },
    ],
)


def _file(**entries: dict[str, Any]) -> Validator:
    """The validator of a whole file: its name, its description, and one list of entries."""
    ((key, entry),) = entries.items()
    several = _leaf(f"a list of at least one {key[:-1]}", type="array", minItems=1, items=entry)
    shape = _mapping(f"suite about {key}", suite=_NAME, about=_TEXT, **{key: several})
    return Draft202012Validator(shape)


CASE_FILE = _file(
    cases=_mapping(
        "id prompt grammar check",
        "layout max_tokens invalid_grammar stress tokens",
        id=_NAME,
        prompt=_TEXT,
        grammar=_GRAMMAR,
        check=_one_of(literal=_TEXT, regex=_TEXT, json=_MAP_OR_TRUE),
        layout=_leaf("compact", const="compact"),
        max_tokens=_leaf("a whole number, 1 to 4096", type="integer", minimum=1, maximum=4096),
        invalid_grammar=_leaf("true or false", type="boolean"),
        stress=_leaf("true or false", type="boolean"),
        tokens=_leaf("a list of token ids", type="array", items={"type": "integer", "minimum": 0}),
    )
)
STRING_FILE = _file(
    grammars=_mapping(
        "id grammar accept reject",
        "regex",
        id=_NAME,
        grammar=_GRAMMAR,
        accept=_leaf("a list of at least one string", type="array", minItems=1, items=_STRING),
        reject=_leaf("a list of strings, which may be empty", type="array", items=_STRING),
        regex=_TEXT,
    )
)


def _place(error: ValidationError, document: Any) -> str:
    """The place of an error, for example "case 'founding' (number 1), grammar.lark: "."""
    path = list(error.absolute_path)
    where: list[str] = []
    if len(path) > 1:  # inside the list of entries
        noun = str(path[0])[:-1]
        entry = document[path[0]][path[1]]
        name = cast(dict[str, Any], entry).get("id") if isinstance(entry, dict) else None
        number = f"number {int(path[1]) + 1}"
        where = [f"{noun} {name!r} ({number})" if isinstance(name, str) else f"{noun} {number}"]
        path = path[2:]
    if path:
        steps = (f" number {part + 1}" if isinstance(part, int) else f".{part}" for part in path)
        where.append("".join(steps).removeprefix("."))
    return ", ".join(where) + ": " if where else ""


def _explain(error: ValidationError) -> str:
    """What is wrong, and what is allowed at this place."""
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
            return f"is {shown(value)}; it must be {shape['description']}."


def shown(value: Any) -> str:
    """A value of the document as JSON, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
