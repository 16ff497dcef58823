"""
What may one master of the group have another one publish? These three jobs, and nothing else.

An order names one of :data:`FUNCTIONS`, and minions by a plain glob or by their ids; a peer can
choose neither function nor arguments. What minions answer is cut to what the commands need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha import binding, minion_key
from saltext_ha.errors import InvalidRecord
from saltext_ha.history import sqlite_glob

PING, WHERE, MOVE = "ping", "where", "move"
FUNCTIONS = {PING: "test.ping", WHERE: "ha.current_master", MOVE: "ha.failover"}

MAX_IDS = 1_000
MAX_TEXT = 300
LONGEST = 300.0
JID = re.compile(r"[0-9]{20}")
GLOB = re.compile(r"(?![A-Z]@)[\w.*?\[\]!@:+-]+")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}(:[0-9]{1,5})?")
SIX = re.compile(r"\[([0-9A-Fa-f:.]+)\](:[0-9]{1,5})?|([0-9A-Fa-f:.]+)")
_ANSWERS = {
    WHERE: ("address", "masters", "type", "connected", "note"),
    MOVE: ("from", "to", "result", "comment"),
}


@dataclass(frozen=True)
class Order:
    """
    A job for the minions that match ``glob``, or for those of ``ids``.

    ``to`` and ``test`` belong to a move: where to (an entry of the minion's configuration; empty:
    the next master that answers), and whether it only is to be said what would be done.
    """

    what: str
    glob: str = ""
    ids: tuple[str, ...] = ()
    to: str = ""
    test: bool = False

    def __post_init__(self) -> None:
        if self.what not in FUNCTIONS:
            raise InvalidRecord(f"takes one of: {', '.join(FUNCTIONS)}")
        if bool(self.glob) == bool(self.ids):
            raise InvalidRecord("takes either a glob or ids")
        if self.glob:
            check_glob(self.glob)
        if len(self.ids) > MAX_IDS:
            raise InvalidRecord(f"takes at most {MAX_IDS} ids")
        for minion_id in self.ids:
            minion_key.check_id(minion_id)
            if "," in minion_id:
                raise InvalidRecord(f"{minion_id!a} cannot be named in a list: it has a comma")
        if self.to and not is_host(self.to):
            raise InvalidRecord(f"to: {self.to!a} is no host")
        if self.what == MOVE and self.glob:
            raise InvalidRecord("only named minions are moved")

    def job(self) -> tuple[str, str | list[str], str, list[dict[str, Any]]]:
        """Function, target, kind of target and arguments, as Salt publishes them."""
        arguments: list[dict[str, Any]] = []
        if self.what == MOVE:
            # Said in any case: a minion's own  test: True  must not turn a move into a trial.
            arguments = [{"__kwarg__": True, "test": self.test, "to": self.to or None}]
        target = self.glob or list(self.ids)
        return FUNCTIONS[self.what], target, "glob" if self.glob else "list", arguments

    def to_wire(self) -> dict[str, Any]:
        """As a peer is told."""
        return {
            "what": self.what,
            "glob": self.glob,
            "ids": list(self.ids),
            "to": self.to,
            "test": self.test,
        }

    @classmethod
    def from_wire(cls, raw: Any) -> Order:
        """
        What a peer asks for.

        :raises InvalidRecord: it is none of those that may be.
        """
        if not isinstance(raw, Mapping):
            raise InvalidRecord("an order is a map")
        what, glob, ids, to, test = (raw.get(key) for key in ("what", "glob", "ids", "to", "test"))
        texts = all(isinstance(each, str) for each in (what, glob, to))
        if not texts or not isinstance(ids, list) or not isinstance(test, bool):
            raise InvalidRecord("malformed order")
        if not all(isinstance(each, str) for each in ids):
            raise InvalidRecord("malformed order")
        return cls(str(what), str(glob), tuple(ids), str(to), test)


def check_glob(glob: str) -> str:
    """
    A shell-style glob over minion ids, as both Salt and the replica understand it.

    :raises InvalidRecord: says what may be in one.
    """
    if not GLOB.fullmatch(glob):
        raise InvalidRecord(
            f"{glob[:80]!a}: takes a minion id or a glob over ids, as web*; not compound, grain or "
            "list targets"
        )
    sqlite_glob(glob)
    return glob


def is_host(text: str) -> bool:
    """Whether *text* may stand in a minion's list of masters."""
    if HOST.fullmatch(text):
        return True
    six = SIX.fullmatch(text)
    return six is not None and binding.bare_ip(six[1] or six[3]) is not None


def answer(what: str, value: Any) -> Any:
    """
    What a minion returned, as far as the commands need it: True for a ping; else a mapping, or
    ``{"error": text}`` where the function failed or is not there.
    """
    if what == PING:
        return value is True
    if not isinstance(value, Mapping):
        return {"error": str(value)[:MAX_TEXT]}
    return {key: _plain(value[key]) for key in _ANSWERS[what] if key in value}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [str(each)[:MAX_TEXT] for each in value[:100]]
    if value is None or isinstance(value, bool):
        return value
    return str(value)[:MAX_TEXT]
