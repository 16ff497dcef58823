"""
Has salt-master rotated its AES key since keys were revoked?

A file in the cachedir says that a rotation is due (:mod:`.revoke`). Salt's process Maintenance
looks for it once in ``loop_interval`` seconds, and removes it. So the file stays where Maintenance
hangs, as with a git_pillar remote that does not answer; and where Maintenance waits, at its hourly
restart, for a job of ``schedule:`` to end. Salt ignores a file with another mode, or with the id of
another master.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from saltext_ha.common.beat import rest

DUE = ".dfn"
"""The file, as Salt calls it (3006 to 3008)."""
EVERY = 30.0  # seconds between two looks
LATE = 300.0
"""Seconds that a rotation may take, besides those between two looks of salt-master."""


def overdue(opts: Mapping[str, Any], now: float) -> str:
    """
    A note for operators; empty if no rotation is overdue. Blocks.

    :param now: in Unix seconds.
    """
    try:
        waits = now - Path(opts["cachedir"], DUE).stat().st_mtime
    except OSError:
        return ""
    if waits < LATE + opts.get("loop_interval", 60):
        return ""
    return (
        f"keys were revoked {waits / 60:.0f} minutes ago, and salt-master has not rotated its AES "
        "key yet, so their minions may still hear jobs: its process Maintenance hangs, or waits "
        "for a long job of schedule: (its log says more); restart salt-master"
    )


async def watch(opts: Mapping[str, Any], notes: MutableMapping[str, str]) -> None:
    """Keep the note of :func:`overdue` among *notes*, while the engine runs."""
    while True:
        notes["rotation"] = await asyncio.to_thread(overdue, opts, time.time())
        await rest(EVERY)
