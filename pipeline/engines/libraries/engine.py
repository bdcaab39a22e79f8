"""A released engine behind the engine protocol: its masks, asked for across its process."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Mask
from ..table import Material, TokenTable
from .client import SessionEnded, Session
from .package import Given, table_of


class ForeignEngine:
    """One library over one vocabulary (`protocol.Engine`). Raises `BuilderRefused`.

    `table` is what the library itself makes of the vocabulary; it compiles over no other.
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
        """The process ends with this object."""


class ForeignMatcher:
    """One grammar in one state (`protocol.Matcher`)."""

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
            self.error = self.error or f"it refused the token {token}"
        return self.error is None

    def accepting(self) -> bool:
        """See `Matcher.accepting`."""
        return bool(self._ask("yes", "accepting", self._number))

    def stopped(self) -> bool:
        """Not told apart: the next mask shows it."""
        return self.error is not None

    def forced(self) -> list[int]:
        """None of these libraries forces tokens; some force text, which is tokenized outside."""
        return []

    def clone(self) -> ForeignMatcher:
        """See `Matcher.clone`."""
        return ForeignMatcher(self._session, "clone", self._number)

    def close(self) -> None:
        """Let the library forget it."""
        if self._number is not None:
            self._ask("", "close", self._number)
            self._number = None

    def _ask(self, wanted: str, *asked: object) -> Any:
        """One field of the answer; None and `error` where the library or its process failed."""
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
