"""A released engine behind the engine protocol; it runs in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Mask
from ..table import Material, TokenTable
from .client import Session, SessionEnded
from .package import Given, table_of


class ForeignEngine:
    """One library for one vocabulary (`protocol.Engine`). Raises `BuilderRefused`.

    `table` is the token table that the library makes; `compile` accepts no other table.
    """

    def __init__(self, name: str, material: Material) -> None:
        self.name = name
        given = Given.of(material).to_json()
        self._session = Session("engine", name, given, material.outside)
        self.table = table_of(self._session, name, material.vocabulary.n_tokens)
        self.version = self.table.made_by

    def compile(self, table: TokenTable, kind: str, grammar: str) -> ForeignMatcher:
        """See `Engine.compile`; `kind` is `regex` or `json`."""
        assert table is self.table
        return ForeignMatcher(self._session, "compile", kind, grammar)

    def close(self) -> None:
        """Does nothing: the process ends with this object."""


class ForeignMatcher:
    """The state of one grammar (`protocol.Matcher`)."""

    raised = None
    """See `Matcher.raised`; a library tokenizes in its own process."""

    def __init__(self, session: Session, *asked: object) -> None:
        self._session = session
        self.error: str | None = None
        self._number = self._ask("number", *asked)

    def mask(self) -> Mask | None:
        """See `Matcher.mask`."""
        said = self._ask("mask", "mask", self._number)
        return None if said is None else np.frombuffer(said.encode("latin-1"), np.uint32).copy()

    def consume(self, token: int) -> bool:
        """See `Matcher.consume`."""
        if not self._ask("yes", "consume", self._number, token):
            self.error = self.error or f"the engine refused the token {token}"
        return self.error is None

    def accepting(self) -> bool:
        """See `Matcher.accepting`."""
        return bool(self._ask("yes", "accepting", self._number))

    def stopped(self) -> bool:
        """Only whether it has failed; the next mask shows whether the text must end."""
        return self.error is not None

    def forced(self) -> list[int]:
        """Always empty: these libraries force no tokens. Some force text, tokenized elsewhere."""
        return []

    def clone(self) -> ForeignMatcher:
        """See `Matcher.clone`."""
        return ForeignMatcher(self._session, "clone", self._number)

    def close(self) -> None:
        """Free the matcher in the library's process."""
        if self._number is not None:
            self._ask("", "close", self._number)
            self._number = None

    def _ask(self, wanted: str, *asked: object) -> Any:
        """One field of the answer; None, and `error` set, if the library or its process failed."""
        if self.error is not None:
            return None
        try:
            said = self._session.request(*asked)
        except SessionEnded as ended:
            said = {"refused": str(ended)}
        if "refused" in said:
            self.error = said["refused"]
            return None
        return said.get(wanted)
