"""Sources of files: every kind of source, and every way in which it can fail."""

import hashlib
import json
import subprocess
import sys
from dataclasses import fields, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.model.errors import SourceError
from pipeline.vocab.files import fetch, verified
from pipeline.vocab.files.resolve import resolve
from pipeline.vocab.files.source import Role, Source, cache_dir
from pipeline.vocab.files.verified import sha256_of
from support.command import ROOT
from support.hub_server import serve_hub

CONF = ROOT / "conf"
GROUPS = [*sorted((CONF / "tokenizer").glob("*.yaml")), *sorted((CONF / "model").glob("*.yaml"))]
SMALL_GGUF = b"GGUF" + bytes(60)
HUB = Source("toy", "hub", repo="someone/toy-GGUF", file="toy.gguf", revision="main")


def from_conf(group: str, name: str) -> Source:
    """The `Source` that a file under `conf/` describes."""
    content: dict[str, Any] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
    content = content.get("model", content)
    content["members"] = tuple(content.get("members", ()))
    return Source(**content)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BYTE_EXACT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip finds no packages."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def refused(source: Source, role: Role = "tokenizer") -> str:
    with pytest.raises(SourceError) as caught:
        resolve(source, role=role, progress=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_conf_files_describe_sources(path: Path) -> None:
    source = from_conf(path.parent.name, path.stem)
    assert source.name == path.stem
    comment = path.read_text().splitlines()[0]
    if path.parent.name == "model" and source.kind != "forge":
        assert comment == "# @package _global_"
        comment = path.read_text().splitlines()[1]
    assert comment.startswith("# ") and len(comment) > 20
    if source.kind in ("sdist", "wheel", "package"):
        assert source.members and len(source.sha256 or "") == 64


def test_all_vocabularies_of_the_sdist_are_there() -> None:
    kinds = [from_conf("tokenizer", p.stem).kind for p in GROUPS if p.parent.name == "tokenizer"]
    assert kinds.count("sdist") == 19


def test_source_is_all_optional_but_name_and_kind() -> None:
    assert [f.name for f in fields(Source)][:2] == ["name", "kind"]
    assert Source("a", "path") == Source(name="a", kind="path", members=(), seed=0)


def test_cache_dir_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTE_EXACT_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("BYTE_EXACT_CACHE")
    assert cache_dir().name == "byte-exact"


# --- package ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mistral_v1", "mistral_v2", "mistral_v3"])
def test_package(name: str) -> None:
    found = resolve(from_conf("tokenizer", name))
    assert found.format == "sentencepiece"
    assert found.origin.startswith("mistral-common ")


def test_package_that_is_not_installed() -> None:
    text = refused(Source("x", "package", package="no_such_thing", members=("a.model",)))
    assert "pip install --upgrade no-such-thing" in text and "tokenizer.path=" in text


def test_package_without_the_member() -> None:
    assert "does not have it" in refused(Source("x", "package", package="numpy", members=("no",)))


def test_package_file_that_changed() -> None:
    source = replace(from_conf("tokenizer", "mistral_v1"), sha256="0" * 64)
    assert "0" * 64 in refused(source) and "dadfd56d" in refused(source)


# --- path ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"<!doctype html>", "web page"),
        (b"PK\x03\x04zip", "it begins with b'PK"),
    ],
)
def test_path_that_is_no_gguf(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    text = refused(Source("path", "path", path=str(path)), "model")
    assert said in text and str(path) in text


def test_path_missing_folder_or_unset(tmp_path: Path) -> None:
    assert "does not exist" in refused(Source("path", "path", path=str(tmp_path / "no.gguf")))
    assert "is a folder" in refused(Source("path", "path", path=str(tmp_path)))
    assert "needs tokenizer.path=" in refused(Source("path", "path"))
    assert "unknown kind of source" in refused(Source("x", "ftp"))
    assert "Choose another model or tokenizer" in refused(Source("own", "own"))


def test_path_wins_over_the_kind_but_not_over_the_pin(tmp_path: Path) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(SMALL_GGUF)
    found = resolve(replace(HUB, path=str(path)), role="model")
    assert (found.path, found.format) == (path, "gguf")
    assert found.sha256 == hashlib.sha256(SMALL_GGUF).hexdigest()
    text = refused(replace(HUB, path=str(path), sha256="1" * 64), "model")
    assert "1" * 64 in text and f"model.sha256={found.sha256}" in text


def test_large_files_are_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    path = tmp_path / "toy.gguf"
    path.write_bytes(SMALL_GGUF)
    monkeypatch.setattr(verified, "HASH_ONCE_BYTES", 1)
    first = sha256_of(path)
    (record,) = (empty_cache / "records" / "sha256").iterdir()
    record.write_text(json.dumps({"sha256": "remembered"}))
    assert sha256_of(path) == "remembered"
    path.write_bytes(SMALL_GGUF + b"more")
    assert sha256_of(path) not in ("remembered", first)


# --- sdist and wheel ----------------------------------------------------------------------------


def test_sdist_through_pip() -> None:
    found = resolve(from_conf("tokenizer", "llama_spm"))
    assert found.path.is_relative_to(cache_dir()) and found.format == "gguf"
    assert found.origin.startswith("llama-cpp-python 0.3.36 sdist: vendor/")
    assert resolve(from_conf("tokenizer", "llama_spm")) == found


def test_sdist_without_an_index(empty_cache: Path, no_index: None) -> None:
    text = refused(from_conf("tokenizer", "phi3"))
    final = empty_cache / "files" / "llama-cpp-python-0.3.36" / "ggml-vocab-phi-3.gguf"
    assert "ggml-vocab-phi-3.gguf from the source distribution of llama-cpp-python" in text
    assert f"put the file at {final}" in text and "tokenizer.path=" in text
    assert not [path for path in empty_cache.rglob("*") if path.suffix == ".gguf"]


def test_damaged_archive_is_removed(empty_cache: Path) -> None:
    archive = empty_cache / "downloads" / "llama_cpp_python-0.3.36.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive")
    assert "was damaged" in refused(from_conf("tokenizer", "phi3"))
    assert not archive.exists()


def test_no_pip(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fetch.importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == "pip" else real(name)

    monkeypatch.setattr(fetch.importlib.util, "find_spec", find_spec)
    assert "no pip" in refused(from_conf("model", "smollm2"), "model")


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")  # even root cannot write below a file
    monkeypatch.setenv("BYTE_EXACT_CACHE", str(tmp_path / "file" / "cache"))
    text = refused(from_conf("tokenizer", "phi3"))
    assert "cannot be written" in text and "BYTE_EXACT_CACHE" in text


def fake_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wheels that pip finds, `part-a` and `part-b` 1.0, each with one half of SMALL_GGUF."""
    import zipfile

    for name, half in (("part_a", SMALL_GGUF[:30]), ("part_b", SMALL_GGUF[30:])):
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/half", half)
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def test_wheels_are_joined(
    tmp_path: Path, empty_cache: Path, no_index: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wheels(tmp_path, monkeypatch)
    source = Source("joined", "wheel", package="part-a", version="1.0")
    source = replace(source, members=("part_a/half", "part-b:part_b/half"))
    found = resolve(source, role="model", progress=False)
    assert found.path.read_bytes() == SMALL_GGUF
    assert found.origin == "part-a 1.0 wheel: part_a/half and 1 more"
    assert not list((empty_cache / "downloads").iterdir())
    assert "part_a/no" in refused(replace(source, name="other", members=("part_a/no",)))


def test_fetched_file_with_the_wrong_hash_is_not_kept(
    tmp_path: Path, empty_cache: Path, no_index: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wheels(tmp_path, monkeypatch)
    source = Source("half", "wheel", package="part-a", version="1.0", members=("part_a/half",))
    text = refused(replace(source, sha256="2" * 64), "model")
    assert "2" * 64 in text and "The download was deleted" in text
    assert not list((empty_cache / "files").rglob("half"))


# --- hub ----------------------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "served.gguf"
    path.write_bytes(SMALL_GGUF)
    return path


def test_hub_file_is_recorded_once_and_checked(
    toy: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_hub({"someone/toy-GGUF/toy.gguf": toy}) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        found = resolve(HUB, role="model", progress=False)
        assert found.path.read_bytes() == SMALL_GGUF and "(commit " in found.origin
        (record,) = (empty_cache / "records" / "hub").rglob("*.json")
        known = json.loads(record.read_text())
        assert known["sha256"] == found.sha256 and known["repo"] == HUB.repo
        toy.write_bytes(SMALL_GGUF + b"changed")  # the cached file does not change
        assert resolve(HUB, role="model", progress=False) == found
        found.path.unlink()
        text = refused(HUB, "model")
        changed = hashlib.sha256(toy.read_bytes()).hexdigest()
        assert found.sha256 in text and changed in text and str(record) in text
        assert not found.path.exists()
        accepted = replace(HUB, sha256=changed)
        assert resolve(accepted, role="model", progress=False).sha256 == changed
    # without the server the cached file is still used, unless it was modified
    assert resolve(accepted, role="model", progress=False).sha256 == changed
    found.path.write_bytes(SMALL_GGUF + b"tampered")
    assert "delete it to download it again" in refused(accepted, "model")


def test_hub_without_the_file(
    toy: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_hub({"someone/toy-GGUF/toy.gguf": toy}) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        text = refused(replace(HUB, file="other.gguf"), "model")
    assert "other.gguf from someone/toy-GGUF" in text and "NotFound" in text


def test_hub_out_of_reach(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_hub({}) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
    text = refused(HUB, "model")
    final = empty_cache / "hub" / "someone--toy-GGUF@main" / "toy.gguf"
    assert "toy.gguf from someone/toy-GGUF" in text and "model.path=" in text
    assert f"put the file at {final}" in text
    final.write_bytes(SMALL_GGUF)
    assert resolve(HUB, role="model", progress=False).path == final


def test_two_processes_at_once(
    toy: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from pipeline.vocab.files.resolve import resolve\n"
        "from pipeline.vocab.files.source import Source\n"
        f"print(resolve({HUB!r}, role='model', progress=False).sha256)"
    )
    with serve_hub({"someone/toy-GGUF/toy.gguf": toy}) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        command = [sys.executable, "-c", code]
        runs = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CONF.parent)
            for _ in range(3)
        ]
        assert len({run.communicate(timeout=60)[0] for run in runs}) == 1
        assert all(run.returncode == 0 for run in runs)
