"""The table ``meta`` of replica.db: what a master remembers of itself, apart from keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import TypeVar

from saltext_ha.replica import serializers

T = TypeVar("T")


class _Flag:
    """A value of the table that is true or false; false if it was never set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, meta: Meta, owner: type) -> bool:
        return meta.get(self._name) == "1"

    def __set__(self, meta: Meta, value: bool) -> None:
        meta.set(self._name, "1" if value else "0")


class _Words:
    """A value of the table that is a list of words; empty if it was never set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, meta: Meta, owner: type) -> list[str]:
        return meta.get(self._name).split()

    def __set__(self, meta: Meta, words: Iterable[str]) -> None:
        meta.set(self._name, " ".join(words))


class Meta:
    """
    The table ``meta`` of *db*, an open replica.db; methods that write are called inside a
    transaction.
    """

    revocation_due = _Flag()
    """Whether keys were revoked and the AES key has not been rotated since."""
    blank = _Flag()
    """Whether the replica is new or out of date, and not all is pulled from the peers yet."""
    adopted = _Flag()
    """Whether the key store was adopted, though the replica is :attr:`blank`."""
    signatures = _Words()
    """[master that signed the key store, token, …]; see :class:`.Provenance`."""
    shared_with = _Words()
    """The masters that share this master's key store (``sync/shared_store.py``)."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, name: str) -> str:
        """A value; empty if it was never set."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def read(self, name: str, convert: Callable[[str], T]) -> T:
        """
        What *convert* makes of a value.

        :raises ReplicaDamaged: it makes no sense.
        """
        try:
            return convert(self.get(name))
        except ValueError as exc:
            raise serializers.damage(exc) from exc

    def set(self, name: str, value: str) -> None:
        """Write a value."""
        self._db.execute("REPLACE INTO meta VALUES (?, ?)", (name, value))

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
