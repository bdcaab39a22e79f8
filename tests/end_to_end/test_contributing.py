"""CONTRIBUTING is enough to add an extension: a toy of each kind is added and works.

A toy is added to a copy of the project. It changes exactly the files that CONTRIBUTING names for
its kind. Then the real command uses it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from support.command import ROOT

pytestmark = pytest.mark.slow

QUIET = ("tokenizer=llama_spm", "builder=fixed", "audit.walks=0", "audit.strings_suite=null")

BUILDER = '''"""`toy`: true bytes, and the first of them that begins with a space without it."""

from __future__ import annotations

from dataclasses import replace

from ..table import Material, TokenTable
from . import bridge, register


@register
class Toy:
    """See the module."""

    name = "toy"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See `Builder.build`."""
        table = bridge.true_table(material)
        claimed = list(table.claimed)
        first = next(i for i, true in enumerate(claimed) if true[:1] == b" " and len(true) > 2)
        claimed[first] = claimed[first][1:]
        return replace(table, claimed=claimed)
'''

ENGINE = '''"""`toy`: an engine that allows everything, always."""

from __future__ import annotations

from dataclasses import dataclass

from ..probe import Compile, Probe, bits
from . import engines
from .package import Claim, Given, Library


@engines.register
class Toy(Library):
    """Of no package of its own."""

    name = "toy"
    package = "numpy"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See `Library.claim`."""
        claim = Claim(given.true_bytes, given.hidden, given.eos)
        return claim, lambda kind, text: _Everything(len(given.texts))


@dataclass
class _Everything:
    n_tokens: int

    def mask(self) -> bytes:
        return bits(range(self.n_tokens), self.n_tokens)

    def consume(self, token: int) -> bool:
        return True

    def accepting(self) -> bool:
        return True

    def clone(self) -> Probe:
        return self
'''

LAYOUT = '''"""`toy`: a regular expression, then a text that it accepts on each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..case import Grammar
from . import Entry, Instance, Item, register


@register
class Toy:
    """See the module."""

    name = "toy"
    suffixes = (".toy",)
    prompted = False

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item a file."""
        yield Item(stem, file, size=file.stat().st_size)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        pattern, *texts = item.file.read_text("utf-8").splitlines()
        instances = tuple(Instance(str(i), text.encode(), True) for i, text in enumerate(texts))
        return Entry(Grammar("lark", f"start: /{pattern}/"), instances)
'''

TARGET = '''"""`toy`: a server that answers every case with `yes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ...model.names import Row
from ...model.verdicts import End
from ..servers.answer import Answer
from ..settings import TargetSettings
from . import register

if TYPE_CHECKING:  # loads native libraries, which the parent must not
    from ..generating import Generated, Generation, Inputs
    from ..request import Request


@register
class ToyTarget:
    """See `target.Target`."""

    name = "toy"
    shows_tables = False
    exact_bytes = True
    samples = False

    def check(self, settings: TargetSettings, time_limit: float) -> None:
        """Nothing of these settings is used."""

    def carries(self, kind: str) -> bool:
        """All of them."""
        return True

    def label(self, settings: TargetSettings) -> str:
        """See `target.Target`."""
        return "toy"

    def opened(
        self, inputs: Inputs, requests: Sequence[Request]
    ) -> AbstractContextManager[Generation]:
        """See `generating.GeneratingTarget`."""
        return nullcontext(Yes(inputs))


class Yes:
    """See `generating.Generation`."""

    device = "toy"
    version = ("toy", 1)

    def __init__(self, inputs: Inputs) -> None:
        self.made_by: Row = {"server": "toy 1"}
        self._inputs = inputs

    def generate(self, requests: Sequence[Request]) -> Iterator[Generated]:
        """See `generating.Generation`."""
        from .. import judge_answer  # loads native libraries
        from ..generating import Generated  # as above

        for request in requests:
            grammar = self._inputs.languages[request.case].grammar
            rendered = self._inputs.vocabulary.rendered
            bench = judge_answer.Bench(grammar, self._inputs.oracle, rendered, True, True)
            answer = Answer(End.STOP_ID, 200, "yes", n_tokens=1)
            judged = judge_answer.judge_answer(request.case, answer, bench)
            yield Generated(request, judged, columns={"ended": answer.end.value, "n_tokens": 1})

    def timings(self) -> Row | None:
        """See `generating.Generation`."""
        return None
'''

SECTION = '''"""A page that says how many cells there are."""

from __future__ import annotations

from collections.abc import Iterator

from .sections import ReportData, register
from .site import Page


@register
class Toy:
    """See `sections.Section`."""

    name, file, title, place = "toy", "toy.html", "Toys", 75

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield Page("toy.html", "toy.html", "Toys", {"n": data.run.cells.height})
'''

TEMPLATE = (
    '{% extends "base.html" %}\n{% block main %}<p id="toy">{{ n }} cells</p>{% endblock %}\n'
)


class Copy:
    """A copy of the project. It records which files a toy has touched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._touched: set[str] = set()
        for folder in ("pipeline", "conf", "datasets"):
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, root / folder, ignore=skipped)

    def add(self, file: str, text: str) -> None:
        path = self.root / file
        assert not path.exists()
        path.write_text(text, "utf-8")
        self._touched.add(file)

    def change(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text("utf-8")
        assert text.count(old) == 1, f"{file} must contain {old!r} exactly once: choose other text"
        path.write_text(text.replace(old, new), "utf-8")
        self._touched.add(file)

    def make(self, file: str, code: str) -> None:
        """Run Python code in the copy, and write its output to a file of the copy."""
        (self.root / file).write_text(self._python("-c", code).stdout, "utf-8")
        self._touched.add(file)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self._python("-m", "pipeline", *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def table(self, run: str, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.root / "results" / run / f"{name}.parquet")

    def touched_as_told(self, kind: str) -> None:
        """Assert that the touched files are exactly those that CONTRIBUTING names for the kind."""
        told = files_told()[kind]
        assert len(told) == len(self._touched), (told, self._touched)
        for pattern in told:
            shape = re.escape(pattern).replace("<name>", r"\w+").replace("<stage>", r"\w+")
            shape = shape.replace("<package>", r"\w+")
            assert any(re.fullmatch(shape, file) for file in self._touched), pattern

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )


def files_told() -> Mapping[str, list[str]]:
    """CONTRIBUTING's table of extensions: kind → files."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## What an extension touches")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")]
    return {kind.strip(): re.findall(r"`([^`]+)`", files) for kind, files, *_ in rows[2:]}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_the_table_names_every_kind() -> None:
    kinds = {"setting", "builder", "engine", "layout", "target", "table column", "report page"}
    assert set(files_told()) == kinds


def test_a_setting(copy: Copy) -> None:
    """A setting is defined once and read once: it is in the help, has a bound, reaches a table."""
    copy.change(
        "pipeline/audit/settings.py",
        "    seed: int = 0\n",
        '    toys: int = setting(3, least=1)\n    """How many toys."""\n    seed: int = 0\n',
    )
    copy.change(
        "pipeline/runs/worker/token_tables.py",
        '"reason": table.note}',
        '"reason": f"{session.job.audit.toys} toys"}',
    )
    copy.make(
        "pipeline/runs/protocol.schema.json",
        "from pipeline.runs import protocol; print(protocol.schema(), end='')",
    )
    assert '"toys"' in (copy.root / "pipeline/runs/protocol.schema.json").read_text("utf-8")
    copy.touched_as_told("setting")
    help_ = copy.run("run", "--help")
    assert re.search(r"audit\.toys=3 +How many toys\.", help_)
    assert "audit.toys=0 is too small" in copy.run("audit", *QUIET, "audit.toys=0", code=2)
    copy.run("audit", *QUIET, "audit.toys=5", "run.name=toy")
    assert copy.table("toy", "tokenizers")["reason"].to_list() == ["5 toys"]


def test_a_builder(copy: Copy) -> None:
    copy.add("pipeline/engines/builders/toy.py", BUILDER)
    copy.add("conf/builder/toy.yaml", "# @package builder.use.toy\n# a toy\nname: toy\n")
    copy.touched_as_told("builder")
    copy.run("audit", *QUIET, "builder=toy", "run.name=toy")
    row = copy.table("toy", "tokenizers").row(0, named=True)
    assert (row["builder"], row["status"], row["n_wrong"]) == ("toy", "ok", 1)


def test_an_engine(copy: Copy) -> None:
    copy.add("pipeline/engines/libraries/toy.py", ENGINE)
    copy.touched_as_told("engine")
    said = copy.run("audit", *QUIET, "audit.engines=[toys]", code=2)
    assert "Unknown engine 'toys'" in said
    assert "toy, xgrammar." in said
    copy.run("audit", *QUIET, "audit.walks=2", "audit.engines=[toy]", "run.name=toy")
    masks = copy.table("toy", "engines")
    assert masks.height > 0
    assert set(masks["verdict"]) <= {"unsound", "stop_too_early", "after_divergence"}


def test_a_layout(copy: Copy) -> None:
    copy.add("pipeline/grammars/importers/toy.py", LAYOUT)
    copy.add(
        "conf/grammar/toy.yaml",
        "# @package grammar.suites.toy\n# toys\nlayout: toy\nfile: ${grammar.path}\n",
    )
    copy.touched_as_told("layout")
    folder = copy.root / "toys"
    folder.mkdir()
    (folder / "one.toy").write_text("(yes|no) sir\nyes sir\nno sir\n", "utf-8")
    chosen = ("grammar=toy", "grammar.path=toys", "stages=[replay]", "run.name=toy")
    copy.run("run", *QUIET, *chosen)
    replayed = copy.table("toy", "replay")
    assert set(replayed["schema"]) == {"one"}
    assert set(replayed["verdict"]) == {"ok"}
    assert replayed["instance"].n_unique() == 2


def test_a_target(copy: Copy) -> None:
    """Its cells are judged like those of other targets, and no other code depends on its name."""
    copy.add("pipeline/generation/targets/toy.py", TARGET)
    copy.add("conf/target/toy.yaml", "# a toy\nname: toy\n")
    copy.touched_as_told("target")
    asked = ("target=toy", "tokenizer=llama_spm", "grammar=forced_literal", "run.name=toy")
    copy.run("run", *asked)
    cells = copy.table("toy", "cells")
    assert cells.height > 0
    assert set(cells["target"]) == {"toy"}
    assert set(cells["builder"]) == {"toy"}
    assert set(cells["server"]) == {"toy 1"}
    assert not set(cells["verdict"]) & {"ok", "crashed", "load_refused"}
    said = copy.run("run", *asked, "sampling.temperature=1", "run.name=two", code=2)
    assert "Sampling needs target=inprocess" in said


def test_a_table_column(copy: Copy) -> None:
    """A run fills the new column."""
    copy.change(
        "pipeline/results/tables/schemas.py",
        '        "made_by": _S,\n    },\n    "tokens"',
        '        "made_by": _S,\n        "n_toys": _I,\n    },\n    "tokens"',
    )
    copy.change(
        "pipeline/runs/worker/token_tables.py",
        '"reason": table.note}',
        '"reason": table.note, "n_toys": 7}',
    )
    copy.touched_as_told("table column")
    copy.run("audit", *QUIET, "run.name=toy")
    assert copy.table("toy", "tokenizers")["n_toys"].to_list() == [7]


def test_a_report_page(copy: Copy) -> None:
    copy.add("pipeline/results/report/toy.py", SECTION)
    copy.add("pipeline/results/report/templates/toy.html", TEMPLATE)
    copy.touched_as_told("report page")
    copy.run("run", *QUIET, "grammar=enum", "grammar.limit=2", "stages=[generate]", "run.name=toy")
    copy.run("report", "run=toy")
    pages = copy.root / "results" / "report"
    assert '<p id="toy">2 cells</p>' in (pages / "toy.html").read_text("utf-8")
    assert re.search(r'href="toy\.html"[^>]*>\s*Toys', (pages / "index.html").read_text("utf-8"))
