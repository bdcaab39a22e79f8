"""The settings of the group `builder`: which builders, and how those of released packages run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from ..model.errors import ConfigError
from ..model.settings import MISSING, setting


@dataclass  # not frozen: OmegaConf makes these one by one, and then could not set a field
class BuilderChoice:
    """One builder under test."""

    name: str = MISSING
    """Its name, as in `engines/builders/` or `engines/libraries/`."""


@dataclass(frozen=True)
class BuilderSettings:
    """The builders chosen, by name; each file of `conf/builder` adds one."""

    use: dict[str, BuilderChoice] = field(default_factory=dict[str, BuilderChoice])
    """The chosen builders by name; set with builder=[a,b]."""
    python: str | None = None
    """The interpreter of another environment, in which released packages make their tables."""
    tokenizer_json: str | None = None
    """The model's own tokenizer.json, for builders that read one; else one of the GGUF."""
    time_limit: float = setting(300.0, least=0.1)
    """Time limit of a released package for one table, in seconds."""
    memory_limit: float = setting(8.0, least=0.25)
    """Memory limit of a released package, in GiB."""

    def located(self) -> BuilderSettings:
        """The same with absolute paths. Raises ConfigError for a file that is not there."""
        for key in ("python", "tokenizer_json"):
            path: str | None = getattr(self, key)
            if path is not None and not Path(path).is_file():
                raise ConfigError(f"builder.{key}={path} is not a file.")
        return replace(
            self,
            python=None if self.python is None else str(Path(self.python).absolute()),
            tokenizer_json=(
                None if self.tokenizer_json is None else str(Path(self.tokenizer_json).absolute())
            ),
        )
