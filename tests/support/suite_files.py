"""Valid and invalid suite files."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.grammars.suites import load
from pipeline.model.errors import SuiteError
from support.command import ROOT

DATASETS = ROOT / "datasets"
SHIPPED = ("forced_literal", "enum", "half_free")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"b": {}, "a": {}}}


def a_case(**changes: Any) -> dict[str, Any]:
    """A valid case with changes; a field changed to None is left out."""
    case: dict[str, Any] = {
        "id": "one",
        "prompt": "Hello",
        "grammar": {"lark": 'start: "a"'},
        "check": {"literal": "a"},
    }
    return {k: v for k, v in (case | changes).items() if v is not None}


def write(folder: Path, *cases: Any, **top: Any) -> Path:
    path = folder / "some.json"
    document = {"suite": "some", "about": "a test", "cases": cases} | top
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return path


def refusal(path: Path) -> str:
    """The error message without the path; checks that it is one line that begins with the path."""
    with pytest.raises(SuiteError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert message.endswith(".")
    return message.removeprefix(f"{path}: ")
