"""
What a master tells of itself, checked once, where it arrives. A master that answers nonsense counts
as one that does not answer: otherwise it could break the status of the group for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.transport import wire

_FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("name", "group", "mode", "salt", "version"), str),
    **dict.fromkeys(("accepted", "pending", "rejected", "denied"), int),
    **dict.fromkeys(("held", "dirty", "bound"), int),
    **dict.fromkeys(("doubt", "unseen", "master_key"), str),
    **dict.fromkeys(("root", "placements"), bytes),
    **dict.fromkeys(("conflicts", "notes"), list),
    **dict.fromkeys(("unreached", "mines", "unused", "health"), dict),
    "busy": float,
}
_HEALTH: Mapping[str, type] = {
    **dict.fromkeys(("asked", "healthy", "ready", "draining"), bool),
    **dict.fromkeys(("reason", "problem", "url"), str),
    "since": float,
    "checks": list,
}
_CHECK: Mapping[str, type] = {
    **dict.fromkeys(("name", "problem"), str),
    "ok": bool,
    **dict.fromkeys(("seconds", "at"), float),
}


@dataclass(frozen=True)
class Unused:
    """
    Masters that no minion is configured with, as one master found in ``ha.failover_safe``.

    :ivar at: when, in Unix seconds; 0: it has not looked.
    """

    masters: Sequence[str] = ()
    at: float = 0.0


@dataclass(frozen=True)
class MasterSummary:
    """
    What one master tells of itself. None: it does not know for now.

    :ivar name: as it calls itself. :ivar group: as in its configuration.
    :ivar mode: whether it writes its key store.
    :ivar accepted: how many accepted keys it shows; likewise ``pending``, ``rejected``, ``denied``.
    :ivar held: how many of its keys are held back. :ivar dirty: how many are still to be written.
    :ivar bound: how many minions are connected to it.
    :ivar doubt: why its key store is not believed; empty if it is.
    :ivar unseen: why it is not known what that shows; empty if it is.
    :ivar master_key: the fingerprint of the key by which minions know it, as it is in its files;
        empty if that does not matter.
    :ivar root: the digest of its records; ``placements``: of what its key store shows.
    :ivar conflicts: ids with several accepted keys. :ivar notes: for operators.
    :ivar unreached: master → why it does not reach that one.
    :ivar mines: of minions that came to it: how many mines are ``older`` there than elsewhere, and
        of how many this is ``unknown``.
    :ivar unused: masters without minions, as it last found.
    :ivar health: as :meth:`.health.watcher.Watcher.told` tells it; an older release may tell less.
    :ivar busy: for how many seconds its numbers could not be had; 0: they are of now.
    """

    name: str = ""
    group: str = ""
    mode: str = ""
    salt: str | None = None
    version: str | None = None
    accepted: int | None = None
    pending: int | None = None
    rejected: int | None = None
    denied: int | None = None
    held: int | None = None
    dirty: int | None = None
    bound: int | None = None
    doubt: str = ""
    unseen: str = ""
    master_key: str | None = None
    root: bytes | None = None
    placements: bytes | None = None
    conflicts: Sequence[str] = ()
    notes: Sequence[str] = ()
    unreached: Mapping[str, str] = field(default_factory=dict)
    mines: Mapping[str, int] | None = None
    unused: Unused = Unused()
    health: Mapping[str, Any] = field(default_factory=dict)
    busy: float = 0.0

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> MasterSummary:
        """
        A master's *answer*; what a later release may add is left out.

        :raises InvalidRecord: something in it has another type than it should have.
        """
        told = {name: value for name, value in _only(_FIELDS, answer).items() if value is not None}
        for name in told.keys() & {"conflicts", "notes"}:
            told[name] = wire.texts(told, name)
        if "unreached" in told:
            unreached = told["unreached"]
            told["unreached"] = {name: wire.field(unreached, name, str) for name in unreached}
        if "mines" in told:
            told["mines"] = {n: wire.field(told["mines"], n, int) for n in ("older", "unknown")}
        if "unused" in told:
            found = _only({"masters": list, "at": float}, told["unused"])
            told["unused"] = Unused(wire.texts(found, "masters"), found.get("at") or 0.0)
        if "health" in told:
            told["health"] = health = _only(_HEALTH, told["health"])
            checks = health.get("checks") or []
            if not all(isinstance(check, dict) for check in checks):
                raise InvalidRecord("malformed checks: a list of maps was expected")
            health["checks"] = [_only(_CHECK, check) for check in checks]
        return cls(**told)


def _only(kinds: Mapping[str, type], told: Mapping[str, Any]) -> dict[str, Any]:
    """What *kinds* name of *told*, of these types or None; numbers are finite and not below 0."""
    found = {name: told[name] for name in kinds if name in told}
    for name, value in found.items():
        if value is None:
            continue
        wire.field(found, name, kinds[name])
        if kinds[name] in (int, float) and not 0 <= value < math.inf:
            raise InvalidRecord(f"malformed {name}: a number from 0 on was expected")
    return found
