"""The table ``meta`` of replica.db: what a master remembers of itself, apart from keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable


class Meta:
    """
    The table ``meta`` of *db*, an open replica.db; methods that write are called inside a
    transaction.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, name: str) -> str:
        """A value; empty if it was never set."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def set(self, name: str, value: str) -> None:
        """Write a value."""
        self._db.execute("REPLACE INTO meta VALUES (?, ?)", (name, value))

    @property
    def revocation_due(self) -> bool:
        """Whether keys were revoked and the AES key has not been rotated since."""
        return self.get("revocation_due") == "1"

    @revocation_due.setter
    def revocation_due(self, due: bool) -> None:
        self.set("revocation_due", "1" if due else "0")

    @property
    def signatures(self) -> list[str]:
        """[master that signed the key store, token, …]; see :class:`.Provenance`."""
        return self.get("signatures").split()

    @signatures.setter
    def signatures(self, tokens: Iterable[str]) -> None:
        self.set("signatures", " ".join(tokens))

    @property
    def shared_with(self) -> list[str]:
        """The masters that share this master's key store (``sync/shared_store.py``)."""
        return self.get("shared_with").split()

    @shared_with.setter
    def shared_with(self, names: Iterable[str]) -> None:
        self.set("shared_with", " ".join(names))

    @property
    def blank(self) -> bool:
        """Whether the replica is new or out of date, and not all is pulled from the peers yet."""
        return self.get("blank") == "1"

    @blank.setter
    def blank(self, blank: bool) -> None:
        self.set("blank", "1" if blank else "0")

    @property
    def adopted(self) -> bool:
        """Whether the key store was adopted, though the replica is :attr:`blank`."""
        return self.get("adopted") == "1"

    @adopted.setter
    def adopted(self, adopted: bool) -> None:
        self.set("adopted", "1" if adopted else "0")

    @property
    def paused(self) -> bool:
        """
        Whether the store must not be written: an operator paused it, or the configured mode is
        observe and no operator has run ``ha.resume`` since.
        """
        return (self.get("paused") or ("1" if self.mode == "observe" else "0")) == "1"

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.set("paused", "1" if paused else "0")

    @property
    def paused_by(self) -> str:
        """Since when and by whom it is paused, in words; empty if no operator paused it."""
        return self.get("paused_by") if self.get("paused") == "1" else ""

    @paused_by.setter
    def paused_by(self, words: str) -> None:
        self.set("paused_by", words)

    @property
    def mode(self) -> str:
        """The configured mode; a change of it cancels an earlier ``ha.resume``."""
        return self.get("mode")

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode != self.mode and self.get("paused") == "0":
            self.set("paused", "")
        self.set("mode", mode)
