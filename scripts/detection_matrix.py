"""Which suite detects which deliberately broken builder: one Markdown table per vocabulary.

    python scripts/detection_matrix.py [--tokenizer llama_spm] [--json]

Needs a clone (the broken builders are in `tests/`) with the extra `test` installed. The exit code
is 1 if some broken builder is detected by no suite.
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
"""broken builder → suite → detected; None if the fault does not exist on the vocabulary."""


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
    """Broken builders that no suite detects on some vocabulary, or that break none of them."""
    names = list(next(iter(found.values())))
    missed: list[str] = []
    for name in names:
        rows = [row for row in (rows[name] for rows in found.values()) if row is not None]
        if not rows or not all(any(row.values()) for row in rows):
            missed.append(name)
    return missed


def main() -> int:
    """Measure and print; returns 0 if the suites detect every broken builder, else 1."""
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
