"""jsonschema as a witness about labels: it answers where it is reliable, and only there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.grammars.label_witness import is_instance


@pytest.mark.parametrize(
    ("schema", "text", "answer"),
    [
        ({"items": {"type": "string"}}, b"1", True),  # `items` says nothing about a number
        ({"const": 12}, b"13", False),
        (False, b"1", False),
        ({"type": "string", "format": "date"}, b'"x"', None),
        ({"properties": {"a": {"pattern": "\\d"}}}, b'{"a": "x"}', None),
        ({"multipleOf": 0.01}, b"19.99", None),
        ({"$ref": "https://example.org/other"}, b"1", None),
        ({"dependencies": {"a": ["b"]}}, b'{"a": 1}', None),  # not in Draft 2020-12
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}},
            b'{"a": 1}',
            False,
        ),
        ({"$schema": "urn:unknown", "const": 1}, b"1", None),
        ({"type": 5}, b"1", None),
        ({}, b'{"a": 1, "a": 2}', None),
        ({}, b"\xff", None),
    ],
)
def test_the_answer_or_none(schema: Any, text: bytes, answer: bool | None) -> None:
    assert is_instance(json.dumps(schema), text) is answer
