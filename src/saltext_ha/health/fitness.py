"""
Could a master take over from the others? Judged by its row of ``ha.status``; pure.

The keys that it shows its minions count, not those that its replica knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HANGS = 30.0
"""
Seconds of work on one batch after which a master is no longer ready. Batches are so small that each
ends within a few seconds, even with very many keys on a slow disk.
"""


def unfit(row: Mapping[str, Any]) -> str:
    """
    Why the master of a *row* of ``ha.status`` could not take over; empty when it could.

    :param row: ``state``, ``behind``, ``health``, ``busy``, ``held`` and ``doubt`` are used.
    """
    if row.get("state") != "running":
        return "it does not answer"
    if reason := untrue(row.get("held") or 0, row.get("doubt") or ""):
        return reason
    if reason := hangs(row.get("busy") or 0.0):
        return reason
    if row["behind"] is None:
        return "it is not known how far behind it is"
    if row["behind"]:
        return f"{counted(row['behind'])} behind"
    health = row["health"]
    if health.get("ready") is not True:
        return str(health.get("reason") or "it does not say that it is ready")
    return ""


def untrue(count: int, doubt: str) -> str:
    """
    Why a key store does not show what the replica knows; empty when it does.

    :param count: how many keys are held there. :param doubt: why the store is not believed at all.
    """
    return doubt or (held(count) if count else "")


def hangs(busy: float) -> str:
    """
    Says that a master has been busy with its keys for *busy* seconds; empty for a normal time.
    """
    return f"busy with its keys for {busy:.0f} s: its key store is slow, or hangs" if busy else ""


def held(count: int) -> str:
    """Says that *count* keys are held."""
    verb = "is" if count == 1 else "are"
    return f"its key store does not show what is known: {counted(count)} {verb} held back"


def counted(count: int) -> str:
    """``1 key``, ``2 keys``."""
    return f"{count} key{'' if count == 1 else 's'}"
