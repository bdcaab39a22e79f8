"""Real vocabularies by name, opened in this process, and the installed released packages."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import yaml

from pipeline.audit.masks import MaskJudge
from pipeline.audit.token_oracle import TokenOracle
from pipeline.engines import builders
from pipeline.engines.libraries.package import Package
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Material, TokenTable
from pipeline.native import llama
from pipeline.vocab.files import forge, resolve, source
from pipeline.vocab.vocabulary import Vocabulary
from support.command import ROOT


@cache
def vocabulary_file(name: str) -> Path:
    """The GGUF of a tokenizer of `conf/tokenizer`, downloaded if necessary."""
    fields = yaml.safe_load((ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    found = resolve.resolve(
        source.Source(**fields | {"members": tuple(fields["members"])}), progress=False
    )
    if found.format == "sentencepiece":
        return forge.vocabulary_of(found.path, source.cache_dir())
    return found.path


@dataclass(frozen=True)
class Opened:
    """A vocabulary opened in this process, and an engine for its tables."""

    model: llama.Model
    vocabulary: Vocabulary
    engine: Llguidance

    @cached_property
    def judge(self) -> MaskJudge:
        """A judge of its masks without a time budget."""
        return MaskJudge(self.vocabulary, TokenOracle(self.vocabulary.rendered), budget=1e9)

    @property
    def material(self) -> Material:
        return Material(self.vocabulary, self.model.vocab, lambda _: True)

    def table(self, builder: str) -> TokenTable:
        return builders.get(builder).build(self.material)


def present(get: Callable[[str], object], *names: str) -> list[str]:
    """The builders or engines whose package is installed, or that need none."""
    found: list[str] = []
    for name in names:
        made = get(name)
        try:
            if isinstance(made, Package):
                made.made_by()
            found.append(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found
