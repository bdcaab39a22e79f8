"""Hydra's schema of the settings, and the checks of the composed settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ..engines.libraries import NAMES as ENGINES
from ..model.errors import ConfigError
from ..model.names import IN_PROCESS
from ..runs.parent.settings import CHOICES, STAGES, RuntimeConfig, Settings


def register(*, typed: bool = True) -> None:
    """Register the schema in Hydra; `conf/config.yaml` extends it.

    An untyped schema contains no class of this package. Launchers need that: they pickle the
    schema, and unpickling a class would import this package by its name.
    """
    schema = OmegaConf.structured(Settings)
    node: Any = Settings if typed else OmegaConf.to_container(schema)
    ConfigStore.instance().store(name="schema", node=node)


def typed(composed: DictConfig) -> DictConfig:
    """Settings composed with the untyped schema, checked against the typed one.

    Raises ConfigError.
    """
    try:
        checked = OmegaConf.merge(OmegaConf.structured(Settings), composed)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from None
    assert isinstance(checked, DictConfig)
    return checked


def settings(composed: DictConfig) -> Settings:
    """The typed settings of a composed configuration. Raises ConfigError."""
    try:
        made: Any = OmegaConf.to_object(composed)
    except MissingMandatoryValue as error:
        key = str(error.full_key)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        raise ConfigError(f"{key} is required: add {key}=… to the command.") from None
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from None
    assert isinstance(made, Settings)
    for key, allowed in CHOICES.items():
        group, name = key.split(".")
        value = getattr(getattr(made, group), name)
        if value not in allowed:
            raise ConfigError(f"{key}={value} is not known; choose from {', '.join(allowed)}.")
    for engine in made.audit.engines:
        if engine not in ENGINES:
            raise ConfigError(
                f"audit.engines: {engine!r} is not known; choose from {', '.join(ENGINES)}."
            )
    for stage in made.stages or ():
        if stage not in STAGES:
            raise ConfigError(f"stages: {stage!r} is not known; choose from {', '.join(STAGES)}.")
    for key, value, least in (
        ("runtime.n_seq", made.runtime.n_seq, 0),
        ("runtime.n_threads", made.runtime.n_threads, 0),
        ("audit.walks", made.audit.walks, 0),
        ("engine.max_tokens", made.engine.max_tokens, 1),
        ("grammar.limit", made.grammar.limit, 1),
        ("grammar.sample", made.grammar.sample, 1),
        ("shard.count", made.shard.count, 1),
        ("shard.index", made.shard.index, 0),
        ("shard.gpus", made.shard.gpus, 0),
        ("engine.time_limit", made.engine.time_limit, 0.1),
        ("engine.case_limit", made.engine.case_limit, 0),
        ("runtime.memory_limit", made.runtime.memory_limit, 0.25),
        ("run.budget", made.run.budget, 0.1),
        ("repeats", made.repeats, 1),
        ("sampling.temperature", made.sampling.temperature, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{key}={value} is too small; the minimum is {least}.")
    if not made.grammar.prompt:
        raise ConfigError("grammar.prompt is empty; a model needs a prompt of at least one token.")
    if made.shard.index >= made.shard.count:
        raise ConfigError(
            f"shard.index={made.shard.index} is not one of {made.shard.count} shards: they are "
            "numbered from 0."
        )
    if made.runtime.n_seq > 256:
        raise ConfigError(f"runtime.n_seq={made.runtime.n_seq} exceeds llama.cpp's limit of 256.")
    _check_sampling(made)
    made.target.check(made.engine.time_limit)
    check_libraries(made.runtime)
    return made


def _check_sampling(made: Settings) -> None:
    """Check that repeats are sampled, and that a server target is not. Raises ConfigError."""
    if not 0 < made.sampling.top_p <= 1:
        raise ConfigError(f"sampling.top_p={made.sampling.top_p} must be above 0 and at most 1.")
    sampled = made.sampling.temperature > 0
    if made.repeats > 1 and not sampled:
        raise ConfigError(
            f"repeats={made.repeats} without sampling gives the same text each time; "
            "add sampling.temperature=0.8."
        )
    if sampled and made.target.name != IN_PROCESS:
        raise ConfigError("Sampling needs target=inprocess: servers always decode greedily here.")


def check_libraries(runtime: RuntimeConfig) -> None:
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
