"""
Could a master take over from the others? Judged by its row of ``ha.status``; pure.

The keys that it shows its minions count, not those that its replica knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

HANGS = 30.0
"""
Seconds of work on one batch after which a master is no longer ready. Batches are so small that each
ends within a few seconds, even with very many keys on a slow disk.
"""


def unfit(row: Mapping[str, Any]) -> str:
    """
    Why the master of a *row* of ``ha.status`` could not take over; empty when it could.

    :param row: ``state``, ``behind`` and ``health`` are used, and ``busy``, ``held`` and ``doubt``,
        which a master of an older release may lack.
    """
    health = row.get("health")
    health = health if isinstance(health, Mapping) else {}
    if row.get("state") != "running":
        return "it does not answer"
    if reason := untrue(row.get("held"), row.get("doubt")):
        return reason
    if reason := hangs(row.get("busy")):
        return reason
    behind = row.get("behind")
    if not isinstance(behind, int):
        return "it is not known how far behind it is"
    if behind:
        return f"{counted(behind)} behind"
    if health.get("ready") is not True:
        return str(health.get("reason") or "it does not say that it is ready")
    return ""


def unused(told: Iterable[Mapping[str, Any]]) -> list[str]:
    """
    Masters that no minion is configured with, by the latest ``ha.failover_safe``.

    :param told: the summaries of masters. From each, ``unused`` is read: ``masters``, and ``at``
        (Unix seconds, 0: the master has not looked); an older release lacks it.
    """
    masters: list[str] = []
    last = 0.0
    for each in told:
        found = each.get("unused")
        found = found if isinstance(found, Mapping) else {}
        at, names = found.get("at"), found.get("masters")
        if isinstance(at, (int, float)) and isinstance(names, list) and at > last:
            masters, last = [name for name in names if isinstance(name, str)], at
    return masters


def untrue(count: Any, doubt: Any) -> str:
    """
    Why a key store does not show what the replica knows; empty when it does.

    :param count: how many keys are held there. :param doubt: why the store is not believed at all.
    """
    if isinstance(doubt, str) and doubt:
        return doubt
    return held(count) if isinstance(count, int) and count else ""


def hangs(busy: Any) -> str:
    """
    Says that a master has been busy with its keys for *busy* seconds; empty for a normal time.
    """
    past = seconds(busy)
    return f"busy with its keys for {past:.0f} s: its key store is slow, or hangs" if past else ""


def seconds(busy: Any) -> float:
    """*busy* as a master tells it, in seconds; 0 if missing or invalid."""
    sensible = isinstance(busy, (int, float)) and 0 < busy < math.inf
    return float(busy) if sensible else 0.0


def held(count: int) -> str:
    """Says that *count* keys are held."""
    verb = "is" if count == 1 else "are"
    return f"its key store does not show what is known: {counted(count)} {verb} held back"


def counted(count: int) -> str:
    """``1 key``, ``2 keys``."""
    return f"{count} key{'' if count == 1 else 's'}"
