"""Finds bytes that crash `llama_tokenize`. Uncertain ones are tried in a child that may die."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ...native import llama
from ...system import processes
from ...vocab.vocabulary import Vocabulary

_AT_ONCE = 200
"""Texts for one child; they are arguments of its command line."""
_ENOUGH = 12
"""Crashes after which no more texts are tried, because each costs a process."""


@dataclass
class Survival:
    """Tells whether `llama_tokenize` of some bytes returns, and caches the answer."""

    file: Path
    vocabulary: Vocabulary
    _known: dict[bytes, bool] = field(default_factory=dict[bytes, bool])

    def __call__(self, data: bytes) -> bool:
        """Whether `llama_tokenize` of these bytes returns, instead of crashing."""
        if not self.tried(data):
            self._known[data] = survives(self.file, data)
        return self._known.get(data, True)

    def tried(self, data: bytes) -> bool:
        """Whether the answer about these bytes is known."""
        return data in self._known or not self.vocabulary.may_throw(data)

    def try_all(self, texts: Sequence[bytes]) -> None:
        """Try many texts in few children. Each child reports how many returned before it died.

        After `_ENOUGH` crashes the remaining texts stay untried (see `tried`).
        """
        left = [text for text in texts if self.vocabulary.may_throw(text)]
        left = [text for text in dict.fromkeys(left) if text not in self._known]
        while left and list(self._known.values()).count(False) < _ENOUGH:
            batch = left[:_AT_ONCE]
            done = _survivors(self.file, batch)
            self._known.update(dict.fromkeys(batch[:done], True))
            if done < len(batch):
                self._known[batch[done]] = False
            left = left[done + (done < len(batch)) :]


def survives(file: Path, data: bytes) -> bool:
    """Whether one tokenization returns, tried in a child for any vocabulary."""
    return _survivors(file, [data]) == 1


def _survivors(file: Path, texts: Sequence[bytes]) -> int:
    """The number of texts, in order, that returned before the child died. Raises FileNotFoundError
    if the file is gone.
    """
    child = subprocess.run(
        processes.own("runs.worker", "tokenize", os.fspath(file), *(text.hex() for text in texts)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    if child.returncode:
        file.stat()
    return child.stdout.count(b".")


def tokenize_each(file: str, texts: Sequence[bytes]) -> None:
    """The program of the child: it prints a dot for each text on which `llama_tokenize` returns."""
    llama.start()
    with closing(llama.Model(Path(file), vocab_only=True)) as model:
        for text in texts:
            model.vocab.tokenize(text, add_special=False, parse_special=True)
            os.write(1, b".")
