"""Random grammars and schemas: valid and invalid ones, deep, wide, circular and huge.

Each is a case of a suite file, marked `stress`: it may fail to compile, and the outcome is then its
result.
"""

from __future__ import annotations

import random
from typing import Any

_PATTERNS = (
    "[a-z]+",
    "(a|b)*c",
    "(a+)+b",
    "(a|a)*",
    "[^\\x00-\\x7f]{1,3}",
    "\\d{1,1000}",
    "(ab?){0,200}",
    ".*",
    "a{5000}",
    "[\\s\\S]{1,9}",
    "(?i)abc",
    "\\p{L}+",
    "[a",
    "(?=a)b",
    "\\1",
    "",
    "^a$",
    "[😀-🙏]",
    "((((((((a))))))))",
)
_LITERALS = ('"a"', '""', '"hello world"', '"\\""', '"\\x00"', '"\\u2581"', '"é"', '"<s>"', '"')


def lark(rng: random.Random) -> str:
    """A Lark grammar of a few rules."""
    names = [f"r{i}" for i in range(rng.choice((0, 1, 3, 10)))]
    rules = [f"start: {_expression(rng, names, 0)}"]
    rules += [f"{name}: {_expression(rng, names, 0)}" for name in names]
    if rng.random() < 0.1:
        words = (f'"w{i}"' for i in range(rng.choice((100, 5000))))
        rules.append(f"wide: {' | '.join(words)}")
        rules[0] = "start: wide"
    if rng.random() < 0.1:
        rules[0] = "start: " + "(" * 200 + '"a"' + ")" * 200
    if rng.random() < 0.15:
        text = list("\n".join(rules))
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice('":|()[]{}/\\~%@<>,.\n\x00é')
        return "".join(text)
    return "\n".join(rules)


def _expression(rng: random.Random, names: list[str], depth: int) -> str:
    kind = rng.randrange(9) if depth < 4 else rng.randrange(3)
    inner = depth + 1
    match kind:
        case 0:
            return rng.choice(_LITERALS)
        case 1:
            return f"/{rng.choice(_PATTERNS)}/"
        case 2 if names:
            return rng.choice(names)
        case 3:
            some = [_expression(rng, names, inner) for _ in range(rng.randint(1, 4))]
            return " ".join(some)
        case 4:
            some = [_expression(rng, names, inner) for _ in range(rng.randint(1, 4))]
            return "(" + " | ".join(some) + ")"
        case 5:
            return f"({_expression(rng, names, inner)}){rng.choice('*+?')}"
        case 6:
            low = rng.choice((0, 1, 3, 100, 100_000))
            return f"({_expression(rng, names, inner)}){{{low},{low + rng.choice((0, 1, 50))}}}"
        case 7:
            return rng.choice(
                ("<[5]>", "<[0-100]>", "<|eot_id|>", "missing", "%json {}", '"a".."z"')
            )
        case _:
            return '"x"'


def schema(rng: random.Random) -> dict[str, Any]:
    """A JSON Schema, valid as such."""
    made: dict[str, Any] = _schema(rng, 0)
    if rng.random() < 0.15:
        made = {"$ref": rng.choice(("#", "#/$defs/a", "#/$defs/none", "https://127.0.0.1:9/x"))}
    if rng.random() < 0.3:
        made["$defs"] = {"a": rng.choice(({"$ref": "#/$defs/a"}, {"$ref": "#"}, _schema(rng, 2)))}
    if rng.random() < 0.05:
        for _ in range(60):
            made = {"type": "array", "items": made}
    return made


def _schema(rng: random.Random, depth: int) -> dict[str, Any]:
    inner = depth + 1
    match rng.randrange(14 if depth < 3 else 6):
        case 0:
            return {"type": rng.choice(("string", "integer", "number", "boolean", "null"))}
        case 1:
            values: list[Any] = [
                "a",
                "",
                "é😀",
                '"',
                1,
                1e308,
                None,
                [],
                {"a": [1]},
                "\u0000",
                "x" * 2000,
            ]
            return {"enum": rng.sample(values, rng.randint(1, 5))}
        case 2:
            low = rng.choice((-(10**18), -1, 0, 3, 10**15))
            return {"type": "integer", "minimum": low, "maximum": low + rng.choice((-1, 0, 10**9))}
        case 3:
            low = rng.choice((0, 1, 100, 100_000))
            return {
                "type": "string",
                "minLength": low,
                "maxLength": low + rng.choice((0, 5, 10**6)),
            }
        case 4:
            formats = ("date", "email", "uuid", "ipv6", "unknown", "regex", "uri")
            return {"type": "string", "format": rng.choice(formats)}
        case 5:
            right = [p for p in _PATTERNS if p not in ("[a", "\\p{L}+", "\\1")]
            return {"type": "string", "pattern": rng.choice(right)}
        case 6 | 7 | 8:
            names = [rng.choice(("a", "b c", "é", "", "$ref", "x" * 50)) + str(i) for i in range(4)]
            some = {name: _schema(rng, inner) for name in names[: rng.randint(0, 4)]}
            required = rng.sample(sorted(some), rng.randint(0, len(some)))
            more = rng.choice((True, False, {"type": "integer"}))
            return {
                "type": "object",
                "properties": some,
                "required": required,
                "additionalProperties": more,
            }
        case 9 | 10:
            low = rng.choice((0, 1, 3, 1000))
            return {"type": "array", "items": _schema(rng, inner), "minItems": low}
        case 11:
            return {"multipleOf": rng.choice((0.1, 3, 1e-9)), "type": "number"}
        case _:
            some = [_schema(rng, inner) for _ in range(rng.randint(1, 3))]
            return {rng.choice(("anyOf", "oneOf", "allOf")): some}


def case(rng: random.Random, name: str) -> dict[str, Any]:
    """One entry of a suite file."""
    grammar = {"lark": lark(rng) or " "} if rng.random() < 0.5 else {"json": schema(rng)}
    return {
        "id": name,
        "prompt": "Hello",
        "grammar": grammar,
        "check": {"regex": "[\\s\\S]*"},
        "max_tokens": 8,
        "stress": True,
    }
