"""What this master tells of itself, for the status of the group."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from saltext_ha.common import master_key
from saltext_ha.health.watcher import DRAINED, Watcher
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.record import SHOWN
from saltext_ha.sync.group import MAX_SHOWN
from saltext_ha.sync.hello import Hello
from saltext_ha.sync.summary import MasterSummary, Unused
from saltext_ha.transport.listener import Handler

KEEPER_WITHIN = 2.0  # seconds for which a status waits for the keeper
BUSY = (
    "busy with its keys for {busy:.0f} s: very many, or the key store is slow, or hangs; "
    "the numbers are {age}"
)
OLDER_KEY = (
    "runs with an older master key than the one in its files: minions that know the new one refuse "
    "it; restart salt-master there"
)
DRAINED_NOTE = f"{DRAINED}: it is not ready for callers until salt-run ha.rebalance, or its restart"


class OwnSummary:
    """
    What one master says of itself in ``ha.status``.

    :param key: the fingerprint of the key by which minions know the running master; empty: unknown.
    :param bound: counts the minions that are connected to it.
    :param mines: how many minions that came here have an older mine here than elsewhere.
    :param unreached: returns the masters that this one does not reach, and why.
    :param notes: returns further notes for operators.
    :param timeout: seconds within which the caller needs the answer.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        core: Core,
        hello: Hello,
        health: Watcher,
        *,
        key: str,
        bound: Callable[[], Awaitable[int | None]],
        mines: Callable[[], Mapping[str, int] | None],
        unreached: Callable[[], Mapping[str, str]],
        notes: Callable[[], Iterable[str]],
        timeout: float,
    ) -> None:
        self._opts, self._core = opts, core
        self._hello, self._health = hello, health
        self._key = key
        self._bound, self._mines, self._notes = bound, mines, notes
        self._unreached = unreached
        self.unused = Unused()
        self._patience = min(KEEPER_WITHIN, timeout / 2)
        self._numbers: tuple[float, dict[str, Any]] | None = None
        """When the keeper was last asked for numbers and answered, and the numbers."""

    def for_peers(self) -> dict[str, Handler]:
        return {"summary": lambda _, __: self.told()}

    async def get(self) -> MasterSummary:
        """The same as :meth:`told`, as peers read it."""
        return MasterSummary.read(await self.told())

    async def told(self) -> dict[str, Any]:
        """
        Counts, digests and troubles of this master. While its key store is slow, the numbers are
        the last known ones (none, if there are none yet), ``busy`` says for how many seconds, and a
        note says the same.
        """
        core, keeper = self._core, self._core.keeper

        def read() -> dict[str, Any]:
            in_files = master_key.public_fingerprint(self._opts)
            counts = core.replica.shown_counts()
            # Nothing was read yet, or what is there is not believed.
            states = () if core.mode.adopting or core.mode.doubt else SHOWN
            return {
                **{state: counts.get(state, 0) for state in states},
                "conflicts": core.replica.conflicts()[:MAX_SHOWN],
                "held": core.replica.held.count,
                "dirty": len(core.replica.dirty()),
                # With a signing key, minions accept masters with any key.
                "master_key": "" if self._opts.get("master_sign_pubkey") else in_files,
                "older_key": bool(self._key and in_files and self._key != in_files),
            }

        numbers, busy, slow = await self._known(read)
        notes = (
            *self._notes(),
            DRAINED_NOTE if self._health.draining else "",
            core.mode.lost_note,
            core.problem,
            "" if core.problem or core.mode.lost else core.unseen,
            core.mode.doubt,
            keeper.refused.note(),
            keeper.newcomers.note(),
            OLDER_KEY if numbers.get("older_key") else "",
            slow,
        )
        return {
            **self._hello.describe(),
            **numbers,
            "busy": busy,
            "bound": await self._bound(),
            "unused": {"masters": list(self.unused.masters), "at": self.unused.at},
            "mines": self._mines(),
            "unreached": dict(self._unreached()),
            "root": core.replica.records.root,
            "placements": core.replica.placements.root,
            "doubt": core.mode.doubt,
            "unseen": core.unseen,
            "notes": [note for note in notes if note],
            "health": self._health.told(),
        }

    async def _known(self, read: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float, str]:
        """The result of *read*, or its last one; how long the keeper has been busy; a note."""
        now = time.monotonic()
        numbers = await self._core.glance(read, self._patience)
        if numbers is not None:
            self._numbers = now, numbers
            return numbers, 0.0, ""
        at, numbers = self._numbers or (None, {})
        age = "not known yet" if at is None else f"{time.monotonic() - at:.0f} s old"
        busy = max(self._patience, self._core.busy)
        return numbers, round(busy, 1), BUSY.format(busy=busy, age=age)
