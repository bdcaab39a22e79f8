"""Which suite detects which deliberately broken builder, as a Markdown table a vocabulary.

    python scripts/detection_matrix.py [--tokenizer llama_spm] [--json]

Needs a clone (the broken builders live in `tests/`) with the extra `test` installed. Exit code 1
if a broken builder is detected by no suite.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

_Rows = dict[str, dict[str, bool] | None]
"""broken builder → suite → detected; None where the vocabulary has nothing to break."""


def markdown(vocabulary: str, suites: tuple[str, ...], rows: _Rows) -> str:
    """The matrix of one vocabulary."""
    lines = [
        f"| on `{vocabulary}` | {' | '.join(suite.replace('_', ' ') for suite in suites)} |",
        "| --- |" + " :-: |" * len(suites),
    ]
    for name, row in rows.items():
        cells = ["" if row is None else "yes" if row[suite] else "–" for suite in suites]
        lines.append(f"| {name if row else name + ' (nothing to break)'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def unseen(found: dict[str, _Rows]) -> list[str]:
    """Broken builders that no suite detects somewhere, or that break nothing anywhere."""
    names = list(next(iter(found.values())))
    missed: list[str] = []
    for name in names:
        rows = [row for row in (rows[name] for rows in found.values()) if row is not None]
        if not rows or not all(any(row.values()) for row in rows):
            missed.append(name)
    return missed


def main() -> int:
    """Measure, print, and say by the exit code whether the harness sees everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--tokenizer", action="append", help="default: llama_spm and llama_bpe", metavar="NAME"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    asked = parser.parse_args()
    detection: Any = import_module("support.detection")
    found: dict[str, _Rows] = detection.matrix(asked.tokenizer or detection.VOCABULARIES)
    print("\n\n".join(markdown(name, detection.SUITES, rows) for name, rows in found.items()))
    missed = unseen(found)
    if missed:
        print(f"\nDetected by no suite: {', '.join(missed)}", file=sys.stderr)
    if asked.json:
        print(json.dumps({"matrix": found, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
