"""Every builder on every vocabulary: which tokens it enters with wrong bytes, by release.

    python scripts/field_report.py --out DIR [--tokenizer NAME …] [--python OTHER …] [--docs]

Writes `DIR/field.parquet` (one row for a builder, release and vocabulary) and `DIR/field.md`; with
`--docs` the tables of `docs/field.md` too. Builders whose package is not installed have the status
`not_installed`. Each `--python` is the interpreter of an environment with other releases, whose
rows stand beside ours. Exit code 1 where a run did not come to its end.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import builders
from pipeline.foreign import Foreign

_ROOT = Path(__file__).parent.parent
_DOCS = _ROOT / "docs" / "field.md"
_BEGIN, _END = "<!-- field: begin -->", "<!-- field: end -->"

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

KNOWN = {
    "unfixed": "google-ai-edge/LiteRT-LM#3510, ggml-org/llama.cpp `common/llguidance.cpp`",
    "lmfe": "noamgat/lm-format-enforcer#92, abetlen/llama-cpp-python#1375",
    "outlines": "dottxt-ai/outlines#1830, #820",
    "xgrammar_byte_fallback": "by its use, where the vocabulary is of another kind",
    "xgrammar_byte_level": "by its use, where the vocabulary is of another kind",
}
"""Where a builder's fault is told in public, or whose it is."""

SCHEMA = {
    "builder": pl.String(),
    "version": pl.String(),
    "tokenizer": pl.String(),
    "n_normal": pl.Int64(),
    "n_wrong": pl.Int64(),
    "status": pl.String(),
    "reason": pl.String(),
    "reproducer": pl.String(),
    "known": pl.String(),
}
"""`n_normal`: tokens that a runtime renders; `n_wrong`: those of them with other bytes."""


def installed(name: str) -> bool:
    """Whether the package of a released builder is here."""
    builder = builders.get(name)
    assert isinstance(builder, Foreign)
    try:
        builder.made_by()
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def run(out: Path, name: str, names: list[str], tokenizers: list[str], python: str | None) -> Path:
    """One audit of all these builders and vocabularies; its folder."""
    folder = out / name
    if (folder / "manifest.json").exists():
        return folder
    command = [sys.executable, "-m", "pipeline", "audit", "-m"]
    command += [f"tokenizer={','.join(tokenizers)}", f"builder=[{','.join(names)}]"]
    command += ["audit.walks=3", "audit.strings_suite=null", f"results_dir={out}"]
    command += [f"run.name={name}", *([f"builder.python={python}"] if python else [])]
    subprocess.run(command, cwd=_ROOT, check=False)
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    """The field's rows of one audit."""
    found: list[dict[str, Any]] = []
    shown = pl.read_parquet(folder / "reproducers.parquet").filter(
        ~pl.col("kind").is_in(["special", "forced"])
    )
    tokens = pl.scan_parquet(folder / "tokens.parquet")
    for row in pl.read_parquet(folder / "tokenizers.parquet").iter_rows(named=True):
        whose = {"tokenizer": row["tokenizer"], "builder": row["builder"]}
        mine = shown.filter(**whose).sort(pl.col("grammar").str.len_bytes())
        proof = None
        if row["n_normal_wrong"]:
            proof = (
                _mask(mine.row(0, named=True)) if mine.height else _token(tokens.filter(**whose))
            )
        package, _, version = (row["made_by"] or "").partition(" ")
        if row["builder"] in FOREIGN and not version:  # a refusal names the release
            package = builders.get(row["builder"]).__getattribute__("package")
            words = row["reason"].removeprefix(package).split()
            version = words[0].rstrip(":") if row["reason"].startswith(package) else ""
        found.append(
            {
                "builder": row["builder"],
                "version": version or None,
                "tokenizer": row["tokenizer"],
                "n_normal": row["n_normal"],
                "n_wrong": row["n_normal_wrong"],
                "status": row["status"],
                "reason": row["reason"] or None,
                "reproducer": proof,
                "known": KNOWN.get(row["builder"]) if row["n_normal_wrong"] else None,
            }
        )
    return found


def _token(wrong: pl.LazyFrame) -> str:
    """The shortest wrong token, where no mask of the few walks met one."""
    rendered = ~pl.col("attribute").is_in(["CONTROL", "UNKNOWN"])
    odd = wrong.filter(rendered & (pl.col("true") != pl.col("claimed"))).collect()
    row = odd.sort(pl.col("true").bin.size(), "token").row(0, named=True)
    return f"token {row['token']}: `{row['true']!r}` entered as `{row['claimed']!r}`"


def _mask(row: dict[str, Any]) -> str:
    after = f" after {row['tokens']}" if row["tokens"] else ""
    return f"`{row['grammar']}`{after}: {row['verdict']}, ids {row['ids'][:3]}"


def markdown(field: pl.DataFrame) -> str:
    """The table of the field, then what each wrong row is shown by."""
    tokenizers = field["tokenizer"].unique(maintain_order=True).to_list()
    lines = [
        f"| builder | release | {' | '.join(tokenizers)} |",
        "| --- | --- |" + " --: |" * len(tokenizers),
    ]
    for (name, version), group in field.group_by(["builder", "version"], maintain_order=True):
        cells = [_cell(group.filter(tokenizer=one)) for one in tokenizers]
        lines.append(f"| {name} | {version or 'ours'} | {' | '.join(cells)} |")
    refused = field.filter(pl.col("status") != "ok")
    if refused.height:
        lines += ["", "Refused, in their own words:", ""]
        for row in refused.iter_rows(named=True):
            lines.append(f"- {row['builder']} on {row['tokenizer']}: {row['reason']}")
    lines += [
        "",
        "| wrong row | smallest mask, or token, that shows it | told in public |",
        "| --- | --- | --- |",
    ]
    for row in field.filter(pl.col("n_wrong") > 0).iter_rows(named=True):
        shown = row["reproducer"].replace("|", "\\|")
        lines.append(f"| {row['builder']} on {row['tokenizer']} | {shown} | {row['known'] or ''} |")
    return "\n".join(lines) + "\n"


def _cell(found: pl.DataFrame) -> str:
    if not found.height:
        return ""
    row = found.row(0, named=True)
    return f"{row['n_wrong']}" if row["status"] == "ok" else row["status"].removeprefix("builder_")


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", action="append", metavar="NAME")
    parser.add_argument("--python", action="append", default=[], metavar="OTHER")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/field.md")
    asked = parser.parse_args()
    tokenizers: list[str] = asked.tokenizer or [*TOKENIZERS]
    out: Path = asked.out.absolute()
    here = [name for name in FOREIGN if installed(name)]
    folders = [run(out, "here", [*here, *OURS], tokenizers, None)]
    for i, python in enumerate(asked.python):
        folders.append(run(out, f"other{i}", list(FOREIGN), tokenizers, python))
    whole = [folder for folder in folders if (folder / "manifest.json").exists()]
    found = [row for folder in whole for row in rows(folder)]
    found = [row for row in found if not (row["reason"] or "").endswith("install it there")]
    missing = {"status": "not_installed"}
    found += [
        dict.fromkeys(SCHEMA) | missing | {"builder": name, "tokenizer": tokenizer}
        for name in FOREIGN
        if name not in here
        for tokenizer in tokenizers
    ]
    order = [*FOREIGN, *OURS]
    found.sort(
        key=lambda row: (
            order.index(row["builder"]),
            row["version"] or "",
            tokenizers.index(row["tokenizer"]),
        )
    )
    field = pl.DataFrame(found, schema=SCHEMA)
    field.write_parquet(out / "field.parquet")
    text = markdown(field)
    (out / "field.md").write_text(text, "utf-8")
    print(text)
    if asked.docs:
        before, _, rest = _DOCS.read_text("utf-8").partition(_BEGIN)
        after = rest.partition(_END)[2]
        _DOCS.write_text(f"{before}{_BEGIN}\n{text}{_END}{after}", "utf-8")
    return 0 if len(whole) == len(folders) else 1


if __name__ == "__main__":
    sys.exit(main())
