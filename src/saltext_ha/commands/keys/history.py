"""``ha.history``, and the pruning of what it shows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from saltext_ha.commands import arguments
from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.replica import history_text
from saltext_ha.replica.deployments import DeployedLine
from saltext_ha.replica.history import BEGINNING, BEGINNING_OF_ACCOUNTS, AccountPlace, Line, Place

log = logging.getLogger(__name__)

MAX_LINES = 100_000
PRUNE_INTERVAL = 3600.0


async def history(core: Core, name: str, payload: dict[str, Any]) -> dict[str, Any]:
    """
    ``ha.history``: who did what to which key or tree, when, on which master, and why.

    :param name: this master's.
    """
    limit = arguments.whole_of(payload, "limit", 100, MAX_LINES)
    glob, by = str(payload.get("glob", "*")), str(payload.get("by_whom") or "*")
    span = payload.get("since")
    since = time.time() - arguments.span(span) if span else None

    def read() -> list[Line | DeployedLine]:
        # One line more than is shown, to know whether there are more.
        chosen = glob, limit + 1, since, by
        replica = core.replica
        found: list[Line | DeployedLine] = list(replica.history.lines(*chosen))
        found += replica.deployments.lines(*chosen)
        return sorted(found, key=lambda line: line.received, reverse=True)

    lines = await core.run(read)
    return {
        "kind": "history",
        "writes": [history_text.row(line, name) for line in lines[:limit]],
        "more": len(lines) > limit,
        "retcode": 0,
    }


async def prune_regularly(core: Core, days: float, interval: float = PRUNE_INTERVAL) -> None:
    """Drop what is older than *days*, every *interval* seconds."""
    while True:
        await asyncio.sleep(interval)
        try:
            await prune(core, time.time() - days * 86400)
        except HaError as exc:
            # The status tells of a full disk; the next round may succeed.
            log.debug("ha history: not pruned: %s", exc)


async def prune(core: Core, before: float) -> None:
    """
    Drop history older than *before* (Unix seconds), in short transactions.

    :raises ReplicaError: replica.db cannot be written.
    """
    replica = core.replica

    async def in_transaction(work: Callable[..., Any], *args: Any) -> Any:
        def step() -> Any:
            with replica.transaction():
                return work(*args)

        return await core.run(step)

    place: Place | None = BEGINNING
    while place:
        place = await in_transaction(replica.history.prune, before, place)
    told: AccountPlace | None = BEGINNING_OF_ACCOUNTS
    while told:
        told = await in_transaction(replica.history.prune_accounts, before, told)
    await in_transaction(replica.deployments.prune, before)
