"""Asks this master questions whose answers come over Salt's event bus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.proof import Proofs

ECHO = "salt/ha/health"

Announce = Callable[[str, Mapping[str, Any]], None]


class Echoes:
    """
    Questions to the master *name*.

    :param announce: fires an event, marked by *proofs* as this master's own.
    """

    def __init__(self, name: str, bus: EventBus, announce: Announce, proofs: Proofs) -> None:
        self._name, self._bus = name, bus
        self._announce, self._proofs = announce, proofs
        self._turn = 0

    async def of_an_event(self) -> str:
        """Fire an event, and receive it again; returns an empty text."""
        self._turn += 1
        mine = {"master": self._name, "turn": self._turn}
        with self._bus.subscribe(ECHO) as waiting:
            self._announce("health", mine)
            # In Salt's own cluster, events of the other masters come, too.
            await waiting.until(
                lambda tag, data: mine.items() <= data.items() and self._proofs.is_ours(tag, data)
            )
        return ""

    async def of_a_runner(self, run: Callable[[], Awaitable[str]]) -> str:
        """
        Receive the return of the job whose id *run* returns; empty: it came; otherwise why not.
        """
        # Subscribe before it starts: its return may come before the answer that names it.
        with self._bus.subscribe("salt/run/") as waiting:
            try:
                jid = await run()
            except RuntimeError as exc:
                return str(exc)
            await waiting.until(lambda tag, _: tag == f"salt/run/{jid}/ret")
        return ""
