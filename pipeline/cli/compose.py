"""Hydra's schema of the settings, and the checks of the composed settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ..engines.libraries import engines
from ..generation import targets
from ..generation.target import Target
from ..model.errors import ConfigError
from ..model.settings import faults
from ..runs.parent.settings import Settings
from ..runs.protocol import adapter
from ..runs.settings import RuntimeSettings


def register(*, typed: bool = True) -> None:
    """Register the schema in Hydra; `conf/config.yaml` extends it.

    An untyped schema contains no class of this package. Launchers need that: they pickle the
    schema, and unpickling a class would import this package by its name.
    """
    schema = _schema()
    node: Any = schema if typed else OmegaConf.to_container(schema)
    ConfigStore.instance().store(name="schema", node=node)


def _schema() -> DictConfig:
    """OmegaConf's schema of the settings. It makes frozen dataclasses read-only; this undoes it."""
    schema = OmegaConf.structured(Settings)
    _unlock(schema)
    return schema


def _unlock(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, None)
    for key in node:
        below = node._get_node(key)  # pyright: ignore[reportPrivateUsage]
        if isinstance(below, DictConfig):
            _unlock(below)


def typed(composed: DictConfig) -> DictConfig:
    """Settings composed with the untyped schema, checked against the typed one.

    Raises ConfigError.
    """
    try:
        checked = OmegaConf.merge(_schema(), composed)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from None
    assert isinstance(checked, DictConfig)
    return checked


def settings(composed: DictConfig) -> Settings:
    """The typed settings of a composed configuration. Raises ConfigError."""
    try:
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = str(error.full_key)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        raise ConfigError(f"{key} is required: add {key}=… to the command.") from None
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from None
    made: Settings = adapter(Settings).validate_python(values)
    check(made)
    return made


def check(made: Settings) -> None:
    """Raise ConfigError for values that are not allowed or contradict each other."""
    for fault in faults(made):
        raise ConfigError(fault)
    for engine in made.audit.engines:
        engines.get(engine)
    if not made.grammar.prompt:
        raise ConfigError("grammar.prompt is empty; a model needs a prompt of at least one token.")
    if made.shard.index >= made.shard.count:
        raise ConfigError(
            f"shard.index={made.shard.index} is not one of {made.shard.count} shards: they are "
            "numbered from 0."
        )
    target = targets.get(made.target.name)
    _check_sampling(made, target)
    target.check(made.target, made.engine.time_limit)
    check_libraries(made.runtime)


def _check_sampling(made: Settings, target: Target) -> None:
    """Check that repeats are sampled, and that the target can sample. Raises ConfigError."""
    if not 0 < made.sampling.top_p <= 1:
        raise ConfigError(f"sampling.top_p={made.sampling.top_p} must be above 0 and at most 1.")
    sampled = made.sampling.temperature > 0
    if made.repeats > 1 and not sampled:
        raise ConfigError(
            f"repeats={made.repeats} without sampling gives the same text each time; "
            "add sampling.temperature=0.8."
        )
    if sampled and not target.samples:
        raise ConfigError("Sampling needs target=inprocess: servers always decode greedily here.")


def check_libraries(runtime: RuntimeSettings) -> None:
    """Check that user libraries exist and that llama.cpp's has its usual name.

    Raises ConfigError.
    """
    for key in ("llama_lib", "llguidance_lib"):
        file = getattr(runtime, key)
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"runtime.{key}={file} is not a file.")
    names = ("libllama.so", "libllama.dylib", "llama.dll")
    if runtime.llama_lib is not None and Path(runtime.llama_lib).name not in names:
        raise ConfigError(
            f"runtime.llama_lib={runtime.llama_lib} must be named {' or '.join(names)}. Its ggml "
            "libraries must be in the same folder, as after a build of llama.cpp."
        )
