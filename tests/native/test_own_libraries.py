"""`runtime.llama_lib` and `runtime.llguidance_lib`: the rows name other library versions."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import compose
from pipeline.model.errors import ConfigError
from pipeline.native import llama, llguidance
from pipeline.runs.parent import settings
from support.command import Finished, pipeline

QUICK = ("run", "stages=[generate]", "engine.oracle=off", "grammar.cases=[founding]")
OTHER = "1.8.0"
"""An llguidance with the same C interface as the one under test."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    done = pipeline(tmp_path_factory.mktemp("usual"), *QUICK)
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module")
def other_llguidance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of an older wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*fetch, "-q", "-d", folder, f"llguidance=={OTHER}"], check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if Path(name).name.startswith("_lib.")]
        [library] = [name for name in names if Path(name).suffix in {".so", ".pyd"}]
        return Path(archive.extract(library, folder))


def test_rows_say_which_libraries_made_them(usual: Finished) -> None:
    cells = usual.table("cells")
    assert set(cells["llama_lib_sha256"]) == {sha256(llama.library_path())}
    assert set(cells["llguidance_lib_sha256"]) == {sha256(llguidance.library_path())}
    assert cells["n_engine_errors"].sum() == cells["engine_error"].drop_nulls().len() == 2


def test_another_llguidance(usual: Finished, other_llguidance: Path, tmp_path: Path) -> None:
    """With another version of llguidance the rows name it and have other cell hashes."""
    done = pipeline(tmp_path, *QUICK, f"runtime.llguidance_lib={other_llguidance}")
    assert done.code == 0, done.err
    cells, before = done.table("cells"), usual.table("cells")
    assert {engine.split()[0] for engine in cells["engine"]} == {f"llguidance@{OTHER}"}
    assert set(cells["llguidance_lib_sha256"]) == {sha256(other_llguidance)}
    assert set(cells["llama_lib_sha256"]) == set(before["llama_lib_sha256"])
    assert not set(cells["cell_hash"]) & set(before["cell_hash"])
    assert cells["cell_key"].to_list() == before["cell_key"].to_list()
    assert cells["verdict"].to_list() == before["verdict"].to_list()


def test_another_libllama(usual: Finished, tmp_path: Path) -> None:
    """Another build of llama.cpp; here a copy with one byte appended."""
    ours = llama.library_path()
    shutil.copytree(ours.parent, tmp_path / "lib")
    copy = tmp_path / "lib" / ours.name
    with copy.open("ab") as file:
        file.write(b"\0")
    done = pipeline(tmp_path, *QUICK, f"runtime.llama_lib={copy}")
    assert done.code == 0, done.err
    cells, before = done.table("cells"), usual.table("cells")
    assert set(cells["llama_lib_sha256"]) == {sha256(copy)}
    assert not set(cells["cell_hash"]) & set(before["cell_hash"])
    assert cells["output"].to_list() == before["output"].to_list()


def test_a_library_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(b"not a library")
    done = pipeline(tmp_path, *QUICK, f"runtime.llguidance_lib={file}")
    assert done.code == 2
    assert f"{file} cannot be used" in done.err
    assert not done.folder.exists()


def test_a_library_without_the_interface_is_refused(tmp_path: Path) -> None:
    other = importlib.util.find_spec("_struct") or importlib.util.find_spec("_ctypes")
    assert other is not None
    assert other.origin is not None
    file = Path(other.origin)
    if not file.is_file():
        pytest.skip("this Python has no extension module as a file")
    done = pipeline(tmp_path, *QUICK, f"runtime.llguidance_lib={file}")
    assert done.code == 2
    assert "llg_get_version" in done.err


@pytest.mark.parametrize(
    ("key", "name", "words"),
    [
        ("llama_lib", "missing.so", "is not a file"),
        ("llama_lib", "other.so", "must be named libllama.so"),
        ("llguidance_lib", "missing.so", "is not a file"),
    ],
)
def test_a_path_that_cannot_be_meant(key: str, name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "other.so").touch()
    chosen: dict[str, Any] = {key: str(tmp_path / name)}
    with pytest.raises(ConfigError, match=words):
        compose.check_libraries(settings.RuntimeSettings(**chosen))
