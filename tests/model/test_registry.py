"""The registry: looking up a name imports one file, the right one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.model.errors import ConfigError
from pipeline.model.registry import Registry

PLUGIN = """
from registered import found

@found.register
class Plugin:
    name = {name!r}
"""


class Named:
    name: str = ""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Named]]:
    """A registry of three files: `xg` with two plug-ins, `xg_auto` with one, `helper` with none."""
    package = tmp_path / "registered"
    package.mkdir()
    (package / "__init__.py").write_text("found = None\n", "utf-8")
    two = PLUGIN.format(name="xg") + PLUGIN.format(name="xg_raw").replace("Plugin", "Raw")
    (package / "xg.py").write_text(two, "utf-8")
    (package / "xg_auto.py").write_text(PLUGIN.format(name="xg_auto"), "utf-8")
    (package / "helper.py").write_text("raise ImportError('nobody asked for this')\n", "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    registry: Registry[Named] = Registry("plug-in", "registered")
    monkeypatch.setattr("registered.found", registry)
    yield registry
    for module in [name for name in sys.modules if name.partition(".")[0] == "registered"]:
        del sys.modules[module]


@pytest.mark.parametrize(("name", "file"), [("xg", "xg"), ("xg_raw", "xg"), ("xg_auto", "xg_auto")])
def test_the_file_of_the_name_or_of_its_beginning_is_imported_and_no_other(
    found: Registry[Named], name: str, file: str
) -> None:
    assert found.get(name).name == name
    loaded = {module for module in sys.modules if module.startswith("registered.")}
    assert loaded == {f"registered.{file}"}


@pytest.mark.parametrize("name", ["xgr", "x", "raw", "auto", "xg_", ""])
def test_a_name_that_nobody_registers_is_refused_with_those_there_are(
    found: Registry[Named], name: str, tmp_path: Path
) -> None:
    (tmp_path / "registered" / "helper.py").write_text("", "utf-8")
    with pytest.raises(
        ConfigError, match=rf"Unknown plug-in '{name}'; choose from xg, xg_auto, xg_raw\."
    ):
        found.get(name)


def test_all_names_are_sorted(found: Registry[Named], tmp_path: Path) -> None:
    (tmp_path / "registered" / "helper.py").write_text("", "utf-8")
    assert found.names() == ["xg", "xg_auto", "xg_raw"]
