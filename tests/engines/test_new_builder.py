"""A library's author adds a builder as CONTRIBUTING says, in a copy of the project.

The toy library has two releases; the first has a fault. Other toy builders fail in various ways.
The tests run the command in the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from support.command import ROOT

LIBRARY = '''
def table(true_bytes):
    """Token bytes; the first release strips the space of one token."""
    made = list(true_bytes)
    if {fault}:
        first = next(i for i, true in enumerate(made) if true[:1] == b" " and len(true) > 2)
        made[first] = made[first][1:]
    return made
'''

BUILDER = '''"""`{name}`: a toy."""

from __future__ import annotations

from ..builders import register
from .package import Claim, Foreign, Given, library


@register
class Toy(Foreign):
    """toylib."""

    name = "{name}"
    package = "{package}"
    extra = "toy"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        claimed = library("toylib").table(given.true_bytes)
        {body}
        special = [bool(hidden and true) for hidden, true in zip(given.hidden, claimed)]
        return Claim(claimed, special, given.eos)
'''

BODIES = {
    "toy": "print('chatter', flush=True)",
    "toy_raises": "raise ValueError('cannot\\nread this')",
    "toy_hangs": "__import__('time').sleep(600)",
    "toy_eats": "claimed = [b'x' * 2**20 for _ in range(4000)]",
    "toy_dies": "__import__('os').abort()",
    "toy_short": "claimed = claimed[:-1]",
}


@dataclass(frozen=True)
class Copy:
    """A copy of the project with the toy builders, and the toy library's releases beside it."""

    root: Path

    def release(self, version: str) -> Path:
        return self.root / f"toylib-{version}"

    def audit(self, name: str, *arguments: str, code: int = 0) -> tuple[pl.DataFrame, str]:
        """Run the audit in the copy with toylib 1.0 installed; returns (`tokenizers`, stderr)."""
        quiet = ("audit.walks=0", "audit.strings_suite=null", "tokenizer=llama_spm")
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", "audit", *quiet, *arguments, f"run.name={name}"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": f"{self.root}{os.pathsep}{self.release('1.0')}"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stderr
        table = self.root / "results" / name / "tokenizers.parquet"
        return pl.read_parquet(table) if table.exists() else pl.DataFrame(), done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    root = tmp_path_factory.mktemp("copy")
    for folder in ("pipeline", "conf", "datasets"):
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=skipped)
    for version, fault in (("1.0", True), ("2.0", False)):
        release = root / f"toylib-{version}"
        about = release / f"toylib-{version}.dist-info"
        about.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: toylib\nVersion: {version}\n"
        (about / "METADATA").write_text(text, "utf-8")
        (release / "toylib.py").write_text(LIBRARY.format(fault=fault), "utf-8")
    for name, body in (*BODIES.items(), ("toy_missing", "pass")):
        package = "no-such-package" if name == "toy_missing" else "toylib"
        source = BUILDER.format(name=name, body=body, package=package)
        (root / "pipeline" / "engines" / "libraries" / f"{name}.py").write_text(source, "utf-8")
        config = f"# @package builder.use.{name}\n# a toy\nname: {name}\n"
        (root / "conf" / "builder" / f"{name}.yaml").write_text(config, "utf-8")
    return Copy(root)


def test_one_file_and_one_config_make_a_row(copy: Copy) -> None:
    """The library's prints do not disturb the protocol; its one wrong token is found."""
    found, _ = copy.audit("one", "builder=toy")
    row = found.row(0, named=True)
    assert (row["builder"], row["status"], row["made_by"]) == ("toy", "ok", "toylib 1.0")
    assert (row["n_wrong"], row["tokenize"]) == (1, "greedy")


def test_a_bad_day_ends_only_its_own_row(copy: Copy) -> None:
    """An exception, a hang, too much memory, a crash, a short table: each has its own reason.

    `fixed` is not affected."""
    found, _ = copy.audit(
        "bad",
        "builder=[toy_raises,toy_hangs,toy_eats,toy_dies,toy_short,fixed]",
        "builder.time_limit=20",
        "builder.memory_limit=0.5",
    )
    said = dict(found.select("builder", "reason").iter_rows())
    status = dict(found.select("builder", "status").iter_rows())
    assert status.pop("fixed") == "ok"
    assert set(status.values()) == {"builder_refused"}
    assert said["toy_raises"] == "toylib 1.0: ValueError: cannot read this"
    assert said["toy_hangs"] == "no answer within 20 s"
    assert said["toy_eats"] == "toylib 1.0 needed more than 0.5 GiB of memory"
    assert said["toy_dies"].startswith("its process ended with code -6")
    assert said["toy_short"] == "toylib 1.0 made 31999 entries for 32000 tokens"


def test_a_missing_package_names_its_extra(copy: Copy) -> None:
    found, said = copy.audit("missing", "builder=[fixed,toy_missing]", code=2)
    assert found.is_empty()
    assert "toy_missing needs the package no-such-package, which is not installed" in said
    assert "pip install 'byte-exact[toy]'" in said
    assert "Traceback" not in said


def test_two_releases_are_two_rows(copy: Copy) -> None:
    """The other environment has only the library: neither llama.cpp nor numpy."""
    environment = copy.root / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    shutil.copytree(copy.release("2.0"), site, dirs_exist_ok=True)
    python = environment / "bin" / "python"
    before, _ = copy.audit("before", "builder=toy")
    after, _ = copy.audit("after", "builder=toy", f"builder.python={python}")
    rows = [found.select("made_by", "n_wrong").row(0) for found in (before, after)]
    assert rows == [("toylib 1.0", 1), ("toylib 2.0", 0)]


def test_an_environment_without_the_package_says_so(copy: Copy) -> None:
    environment = copy.root / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    found, _ = copy.audit("empty", "builder=toy_missing", f"builder.python={python}")
    assert found["reason"][0] == f"{python} has no no-such-package: install it there"


def test_an_interpreter_that_is_not_there_is_a_usage_error(copy: Copy) -> None:
    _, said = copy.audit("nowhere", "builder=toy", "builder.python=/no/such/python", code=2)
    assert "builder.python=/no/such/python is not a file" in said
