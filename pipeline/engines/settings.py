"""The settings of the group `builder`: which builders to test, and limits for released ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from ..model.errors import ConfigError
from ..model.settings import MISSING, setting


@dataclass  # not frozen: OmegaConf creates an instance first and sets its fields later
class BuilderChoice:
    """One builder under test."""

    name: str = MISSING
    """Its name, as in `engines/builders/` or `engines/libraries/`."""


@dataclass(frozen=True)
class BuilderSettings:
    """The chosen builders, by name; each file in `conf/builder` adds one."""

    use: dict[str, BuilderChoice] = field(default_factory=dict[str, BuilderChoice])
    """The chosen builders by name; set with builder=[a,b]."""
    python: str | None = None
    """Python interpreter of another environment, in which released packages build their tables."""
    tokenizer_json: str | None = None
    """The model's own tokenizer.json, for builders that read one; null derives it from the GGUF."""
    time_limit: float = setting(300.0, least=0.1)
    """Time limit of a released package for one table, in seconds."""
    memory_limit: float = setting(8.0, least=0.25)
    """Memory limit of a released package, in GiB."""

    def located(self) -> BuilderSettings:
        """A copy with absolute paths. Raises ConfigError if a file does not exist."""
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
