"""The help of `run` and `audit`: an overview on one screen, and every setting by its dataclass."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from ..model.settings import MISSING
from ..runs.parent.settings import Settings
from ..system.resources import options
from ..vocab.files import source

_GROUPS = (
    *("model", "tokenizer", "grammar", "builder", "target", "runtime", "experiment", "debug"),
)
_WIDTH = 108
_NAMED = 40
"""Width of the column with a setting's name and default; its meaning is in the next column."""


def overview(exit_codes: str) -> str:
    """The whole program on one screen."""
    return f"""byte-exact: does constrained generation obey its grammar, to the byte?

  python -m pipeline run   [model=…] [tokenizer=…] [grammar=[…]] [builder=[…]] [key=value …]
  python -m pipeline audit [tokenizer=…] …         check the token tables only; needs no weights
  python -m pipeline run -m tokenizer=a,b,c        every combination (multirun), one results folder
  python -m pipeline run resume=RUN                finish an interrupted run
  python -m pipeline collect run=RUN               merge the results of all shards
  python -m pipeline compare before.run=… after.run=…   show what got worse; see compare --help
  python -m pipeline baseline save|show            record verdicts to compare against
  python -m pipeline report                        build the HTML dashboard

RUN is a folder, a run's name under results_dir, or latest: the newest run; for resume, the newest
that is not complete.

Groups and their options:
{_groups()}

`python -m pipeline run --help` lists all settings. `--cfg job` shows the settings of a command.

Cache (BYTE_EXACT_CACHE moves it; delete the folder to empty it): {source.cache_dir()}
{exit_codes}"""


def settings(exit_codes: str) -> str:
    """The help text with every setting, its default and its meaning."""
    return f"""python -m pipeline run|audit [group=option …] [key=value …]

Groups and their options ([a,b] selects several grammars or builders; -m and a,b start a multirun):
{_groups()}

Settings and their defaults (null: none; a|b: choose one, the first is the default):
{chr(10).join(_settings())}

Cache (BYTE_EXACT_CACHE moves it; delete the folder to empty it): {source.cache_dir()}
{exit_codes}"""


def _groups() -> str:
    launchers = _wrapped("  hydra/launcher ", ", ".join(options("hydra/launcher")) + " (with -m)")
    groups = (_wrapped(f"  {group:14} ", ", ".join(options(group))) for group in _GROUPS)
    return "\n".join([*groups, launchers])


def _settings() -> Iterator[str]:
    for key, default, meaning in described(Settings):
        named = f"  {key}={default}"
        if len(named) < _NAMED:
            yield _wrapped(f"{named:{_NAMED}}", meaning)
        else:
            yield named
            yield _wrapped(" " * _NAMED, meaning)


def described(kind: type, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, default or allowed words, meaning) of every setting of a dataclass and its parts."""
    meanings = {name: text for each in reversed(kind.__mro__) for name, text in _meanings(each)}
    for field in dataclasses.fields(kind):
        made: Any = field.default_factory
        if isinstance(made, type) and dataclasses.is_dataclass(made):
            yield from described(made, f"{prefix}{field.name}.")
        else:
            words = () if "tuple" in str(field.type) else field.metadata.get("one_of", ())
            default = "|".join(words) or _default(field)
            yield f"{prefix}{field.name}", default, meanings.get(field.name, "")


def _meanings(kind: type) -> Iterator[tuple[str, str]]:
    """(name, text) of each dataclass field that is followed by a docstring."""
    if not dataclasses.is_dataclass(kind):
        return
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for named, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(named, ast.AnnAssign) and isinstance(text, ast.Expr):
            name, said = ast.unparse(named.target), ast.literal_eval(text.value)
            yield name, " ".join(said.split())


def _default(field: dataclasses.Field[Any]) -> str:
    """A default in the syntax of the command line."""
    if field.default is dataclasses.MISSING:
        return "{}" if "dict" in str(field.type) else "[]"
    if field.default == ():
        return "[]"
    if field.default == MISSING:
        return "…"
    if field.default is None or isinstance(field.default, bool):
        return {None: "null", True: "true", False: "false"}[field.default]
    return f"{field.default:g}" if isinstance(field.default, float) else f"{field.default}"


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )
