"""The field report: every released builder on every vocabulary, and every engine's own masks.

    python scripts/field_report.py --out DIR [--tokenizer NAME …] [--python OTHER …] [--docs]

Writes into DIR the run that `python -m pipeline report run=DIR results_dir=DIR` shows:
`field.parquet` (one row per builder, release and vocabulary), `engine_findings.parquet` (one row
per engine, vocabulary and kind of fault), and `reproducers/` (one suite file per fault and builder,
for `python -m pipeline run`). It also writes `field.md`; `--docs` also updates the tables of
`docs/field.md`. Builders whose package is not installed have the status `not_installed`. Each
`--python` is the interpreter of an environment with other releases; their rows are added. The exit
code is 1 if a run did not finish.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.engines import builders
from pipeline.engines.libraries import engines
from pipeline.engines.libraries.package import Package
from pipeline.model.verdicts import RunStatus, Status
from pipeline.results.tables import parquet, schemas
from pipeline.results.tables.released import known_engine, links
from pipeline.runs.parent import collect
from pipeline.system import provenance
from pipeline.system.text import visible

_ROOT = Path(__file__).parent.parent
_DOCS = _ROOT / "docs" / "field.md"

FOREIGN = (
    "llguidance_llamacpp",
    "llguidance_hf",
    "lmfe",
    "outlines",
    "outlines_core",
    "xgrammar",
    "xgrammar_byte_fallback",
    "xgrammar_byte_level",
    "xgrammar_auto",
)
OURS = ("unfixed", "fixed")
"""llama.cpp's bridge before and after its fix, to compare with."""

TOKENIZERS = (
    "llama_spm",
    "llama_bpe",
    "gemma4",
    "phi3",
    "qwen2",
    "bert_bge",
    "mistral_v3",
    "deepseek_llm",
    "command_r",
    "starcoder",
    "falcon",
    "nomic_bert_moe",
)
ENGINES_ON = ("llama_spm", "phi3")
"""Vocabularies for walks with the engines' own masks: with byte, several end and empty tokens."""
_TOGETHER = {
    "field": ["builder", "version", "tokenizer"],
    "reproducers": ["file"],
    "engines": ["made_by", *schemas.SORT_KEYS["engines"]],
    "engine_findings": ["file"],
}
"""Tables that are concatenated from those of the audits, with the key columns of a row."""


def installed(made: object) -> bool:
    """Whether the package of a released builder or engine is installed."""
    assert isinstance(made, Package)
    try:
        made.made_by()
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def audit(out: Path, name: str, tokenizers: Iterable[str], *settings: str) -> Path:
    """Audit these vocabularies; returns the run's folder. A finished run is reused."""
    folder = out / name
    if (folder / "manifest.json").exists():
        return folder
    command = [sys.executable, "-m", "pipeline", "audit", "-m", *settings]
    command += [f"tokenizer={','.join(tokenizers)}", "audit.strings_suite=null"]
    command += [f"results_dir={out}", f"run.name={name}"]
    subprocess.run(command, cwd=_ROOT, check=False)
    return folder


def together(folders: Iterable[Path], not_here: Iterable[str], out: Path) -> pl.DataFrame:
    """Merge the tables and reproducers of all audits into one run, `out`; returns the field."""
    found = {
        name: pl.concat(
            [parquet.read(folder, name, [*schemas.SCHEMAS[name]]) for folder in folders]
        ).unique(key, keep="first", maintain_order=True)
        for name, key in _TOGETHER.items()
    }
    rows = found["field"].filter(~pl.col("reason").fill_null("").str.ends_with(_NOT_THERE))
    tokenizers = rows["tokenizer"].unique(maintain_order=True).sort()
    missing = pl.DataFrame(
        [
            {"builder": name, "tokenizer": tokenizer, "status": Status.NOT_INSTALLED.value}
            for name in not_here
            for tokenizer in tokenizers
        ],
        schema={"builder": pl.String(), "tokenizer": pl.String(), "status": pl.String()},
    )
    found["field"] = _in_order(pl.concat([rows, missing], how="diagonal"))
    for name, data in found.items():
        parquet.write(data, out / f"{name}.parquet")
    collect.write_reproducers(out)
    manifest = {
        "schema_version": schemas.SCHEMA_VERSION,
        "status": RunStatus.COMPLETE.value,
        "run": out.name,
        "stages": ["audit"],
        "rows": {name: data.height for name, data in found.items()},
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "volatile": {"finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")},
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    return found["field"]


_NOT_THERE = "install it there"
"""Part of the refusal of a builder whose package is missing in another environment."""


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with released builders first, and vocabularies in the order above."""
    by = (("builder", [*FOREIGN, *OURS]), ("tokenizer", [*TOKENIZERS]))
    ranks = [
        pl.col(name).replace_strict({value: n for n, value in enumerate(order)}, default=len(order))
        for name, order in by
    ]
    return rows.sort(ranks[0], "version", ranks[1], "tokenizer", maintain_order=True)


# --- as text --------------------------------------------------------------------------------------


def markdown(rows: pl.DataFrame) -> Iterator[str]:
    """The lines of the field's table, of the refusals, and of the proof of each wrong row."""
    tokenizers = rows["tokenizer"].unique(maintain_order=True).to_list()
    yield f"| builder | release | {' | '.join(tokenizers)} |"
    yield "| --- | --- |" + " --: |" * len(tokenizers)
    for (name, version), group in rows.group_by(["builder", "version"], maintain_order=True):
        cells = [_cell(group.filter(tokenizer=one)) for one in tokenizers]
        missing = (group["status"] == Status.NOT_INSTALLED).all()
        release = "not installed" if missing else version or "ours"
        yield f"| {name} | {release} | {' | '.join(cells)} |"
    refused = rows.filter(pl.col("status") == Status.BUILDER_REFUSED)
    if refused.height:
        yield from ("", "Refusals, with the builder's message:", "")
        for row in refused.iter_rows(named=True):
            yield f"- {row['builder']} on {row['tokenizer']}: {_plain(row['reason'])}"
    head = ("builder", "vocabulary", *_PROOF)
    yield from ("", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}")
    for row in rows.filter(pl.col("n_wrong") > 0).iter_rows(named=True):
        release = f" {row['version']}" if row["version"] else ""
        known = row["known"]
        yield f"| {row['builder']}{release} | {row['tokenizer']} | {_proof(row, known)} |"


def engines_markdown(findings: pl.DataFrame) -> Iterator[str]:
    """The lines of the table of faults in the engines' own masks."""
    head = ("engine", "vocabulary", "kind of token", "total ids", *_PROOF)
    yield from (f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}")
    choices = pl.col("kind").str.starts_with("json_")  # differences, not faults: at the end
    for row in findings.sort(choices, "engine", "verdict", "kind", "tokenizer").iter_rows(
        named=True
    ):
        known = known_engine(row["engine"], row["verdict"], row["kind"])
        kind = row["kind"].replace("_", " ")
        parts = [row["made_by"], row["tokenizer"], kind, f"{row['n_ids']}", _proof(row, known)]
        yield f"| {' | '.join(parts)} |"


_PROOF = (
    "smallest mask that shows it",
    "ids",
    "true bytes",
    "claimed bytes",
    "reproducer",
    "public report",
)


def _proof(row: dict[str, Any], known: str | None) -> str:
    """The cells of `_PROOF`; the bytes are those of the first id."""
    if row["grammar"] is None:
        return f" | | | | | {_linked(known)}"
    after = f" after {', '.join(map(str, row['tokens']))}" if row["tokens"] else ""
    ids = [*map(str, row["ids"][:3]), *(["…"] if len(row["ids"]) > 3 else [])]
    return " | ".join(
        (
            f"{_code(_seen(row['grammar'], 120))}{after}: {row['verdict']}",
            ", ".join(ids),
            _bytes(row["true"]),
            "the same" if row["claimed"] == row["true"] else _bytes(row["claimed"]),
            f"`{Path(row['file']).stem}`",
            _linked(known),
        )
    )


def _bytes(data: bytes | None) -> str:
    return "" if data is None else _code(f"'{_seen(data, 60)}'") if data else "none"


def _seen(text: str | bytes, limit: int) -> str:
    """Visible text; the replacement character is shown as itself."""
    return visible(text, limit).replace("\ufffd", "\\ufffd")


def _code(text: str) -> str:
    """Any text as code in a table cell."""
    fence = "``" if "`" in text else "`"
    pad = " " if fence == "``" or text != text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _plain(text: str) -> str:
    return visible(text, 400).replace("|", "\\|")


def _linked(known: str | None) -> str:
    return ", ".join(f"[{text}]({address})" if address else text for text, address in links(known))


def _cell(found: pl.DataFrame) -> str:
    if not found.height:
        return ""
    row = found.row(0, named=True)
    told = {
        Status.OK: f"{row['n_wrong']}",
        Status.NOT_INSTALLED: "-",
        Status.BUILDER_REFUSED: "refused",
    }
    status = Status(row["status"])
    return told.get(status, status.value)


def put(section: str, lines: list[str]) -> None:
    """Replace the lines between the markers of a section of `docs/field.md`."""
    begin, end = (f"<!-- {section}: {word} -->" for word in ("begin", "end"))
    before, _, rest = _DOCS.read_text("utf-8").partition(begin)
    after = rest.partition(end)[2]
    _DOCS.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n{end}{after}", "utf-8")


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", action="append", metavar="NAME")
    parser.add_argument("--python", action="append", default=[], metavar="OTHER")
    parser.add_argument("--docs", action="store_true", help="write the tables to docs/field.md")
    asked = parser.parse_args()
    tokenizers: list[str] = asked.tokenizer or [*TOKENIZERS]
    walked = [name for name in ENGINES_ON if name in tokenizers]
    out: Path = asked.out.absolute()
    here = [name for name in FOREIGN if installed(builders.get(name))]
    own = [name for name in engines.names() if installed(engines.get(name))]
    folders = [
        audit(out, "here", tokenizers, f"builder=[{','.join([*here, *OURS])}]", "audit.walks=3")
    ]
    if walked:
        masks = f"audit.engines=[{','.join(own)}]"
        folders.append(audit(out, "engines", walked, "builder=fixed", "audit.walks=24", masks))
    for i, python in enumerate(asked.python):
        released = f"builder=[{','.join(FOREIGN)}]", f"builder.python={python}", "audit.walks=3"
        folders.append(audit(out, f"other{i}", tokenizers, *released))
    whole = [folder for folder in folders if (folder / "manifest.json").exists()]
    if not whole:
        return 1
    rows = together(whole, [name for name in FOREIGN if name not in here], out)
    versions = provenance.versions()
    with_what = (
        f"Vocabularies and true bytes are llama-cpp-python {versions['llama-cpp-python']}'s; masks "
        f"over token tables are made by llguidance {versions['llguidance']}."
    )
    sections = {
        "field": [with_what, "", *markdown(rows)],
        "engines": list(engines_markdown(parquet.read(out, "engine_findings"))),
    }
    text = "\n\n".join("\n".join(lines) for lines in sections.values()) + "\n"
    (out / "field.md").write_text(text, "utf-8")
    print(text)
    print(f"As pages: python -m pipeline report run={asked.out} results_dir={asked.out}")
    if asked.docs:
        for section, lines in sections.items():
            put(section, lines)
    return 0 if len(whole) == len(folders) else 1


if __name__ == "__main__":
    sys.exit(main())
