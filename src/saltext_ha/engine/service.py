"""The engine itself: how it starts, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from saltext_ha.commands.keys.history import prune_regularly
from saltext_ha.common.beat import rest
from saltext_ha.common.complaints import Complaint, LoopErrors
from saltext_ha.common.errors import HaError
from saltext_ha.common.tasks import Tasks
from saltext_ha.config.mapping import HaConfig
from saltext_ha.engine import startup, wiring
from saltext_ha.engine.member_loop import follow_members
from saltext_ha.engine.parts import Parts
from saltext_ha.keystore import rotation
from saltext_ha.membership.auto_join import AutoJoin
from saltext_ha.reconciler.scanner import Scanner
from saltext_ha.replica import opening
from saltext_ha.replica.replica import REPLICA_FILE
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.transport import control_client
from saltext_ha.transport.control_server import ControlServer
from saltext_ha.transport.listener import PeerListener
from saltext_ha.web.listener import RETRY, StatusListener
from saltext_ha.web.pages import Pages

log = logging.getLogger(__name__)

# A master that was killed leaves its engine behind for a moment.
TAKEOVER = 10.0


class Service:
    """
    The ha engine of one master.

    :param opts: the running master's configuration, as engines get it in ``__opts__``.
    :param stopping: called once when the engine begins to stop, whatever the reason.
    :ivar failed: whether a part of it failed.
    :raises ConfigError: the configuration contradicts the state folder. :raises HaError: the state
        folder cannot be used.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        config: HaConfig,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._stopping = config, stopping
        self._stopped = asyncio.Event()
        self.failed = False
        self._tasks = Tasks(failed=self._fail)
        self.parts = Parts(opts, config, self._tasks)
        self._status = (
            StatusListener(config.status, source=config.source) if config.status else None
        )

    # -- from start to end

    def stop(self) -> None:
        """Make :meth:`run` return."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._stopping()

    def _fail(self) -> None:
        self.failed = True
        self.stop()

    async def run(self) -> None:
        """
        Until :meth:`stop`, or until the master that started this process is gone.

        :raises HaError: it cannot start: port taken, state folder or replica unusable.
        """
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        announce = Announcer(self.parts.opts, self.parts.proofs)
        try:
            self._build(announce)
            await self._serve()
        finally:
            announce.stop()
            self.parts.looks.close()

    def _build(self, announce: Announcer) -> None:
        try:
            self.parts.build(announce)
        except Exception as exc:
            if opening.is_damage(exc):
                self._move_aside(str(exc))
            raise

    def _move_aside(self, damage: str) -> None:
        """Have the next start make replica.db, which is closed, anew."""
        with contextlib.suppress(OSError):
            startup.move_aside(self._config.state_dir / REPLICA_FILE, damage)

    async def _serve(self) -> None:
        parts, config = self.parts, self._config
        made = self.made = wiring.Answering(parts)
        self.listener = PeerListener(
            parts.identity,
            parts.trust,
            made.peer_handlers,
            config.listen_host,
            config.port,
            strangers=parts.admission.handlers(),
            refusals=parts.refusals,
        )
        parts.renewal.shown_by.append(self.listener.show)
        self.control = ControlServer(config.control_socket, made.commands)
        try:
            # Before hearing any peer, record what changed while this engine was stopped: the
            # operator who changed it cannot have known what peers say now.
            await parts.core.begin()
            await self._take_over(self.listener.start)
            await self.control.start()
            control_client.tell_why(config.control_socket, "")
            parts.bus.start()
            self._start_tasks(made)
            log.info(
                "ha engine running: name=%s group=%s mode=%s node=%s",
                config.name,
                config.group,
                parts.core.mode.name,
                parts.core.replica.node,
            )
            await self._stopped.wait()
        finally:
            parts.ending.begin()
            parts.bus.stop()
            await parts.links.close()
            await self._tasks.stop()
            await self.control.stop()
            if self._status:
                await self._status.stop()
            await self.listener.stop()
            parts.core.close()
            if parts.core.damage:
                self._move_aside(parts.core.damage)

    def _start_tasks(self, made: wiring.Answering) -> None:
        parts, config = self.parts, self._config
        Scanner(parts.core, parts.hints, config.scan_interval).start(self._tasks)
        following = follow_members(
            parts.damage, parts.links, parts.rebuilding, parts.membership, parts.shared_store
        )
        seeking = AutoJoin(config, parts.trust, lambda: parts.identity, parts.notes)
        for name, work in (
            ("parent", self._watch_parent(os.getppid())),
            ("replica", parts.core.until_damaged()),
            ("members", following),
            ("retention", parts.retention.run()),
            ("expired invitations", parts.admission.tidy()),
            ("seek masters", seeking.run()),
            *([("arrivals", made.arrivals.run())] if made.arrivals else []),
            ("mines", made.mines.run()),
            ("shared mines", made.shared_mines.run()),
            ("minions that were heard", made.bound.settle_regularly()),
            ("consistency", parts.watch.run(made.checking.answer)),
            ("health", parts.health.run()),
            ("trees", parts.trees.run()),
            ("leader", parts.leader.run()),
            ("runs", parts.runs.run()),
            *([("reactor", parts.reactions.run())] if parts.reactions else []),
            ("rotation", rotation.watch(parts.opts, parts.notes)),
            ("status page", self._serve_status(made.pages)),
            ("prune", prune_regularly(parts.core, config.keep_history)),
        ):
            self._tasks.start(name, work)

    async def _take_over(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start the listener; the engine of a killed master may hold the port a moment longer."""
        give_up = asyncio.get_running_loop().time() + TAKEOVER
        while True:
            try:
                return await start()
            except HaError:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
                await asyncio.sleep(0.5)

    async def _serve_status(self, pages: Pages) -> None:
        """Serve the page. Keys do not depend on it: if its port is taken, try again later."""
        said = ""
        while self._status:
            try:
                await self._status.start(pages.by_path())
            except HaError as exc:
                self.parts.notes["status page"] = str(exc)
                if str(exc) != said:
                    log.error("ha %s", exc)
                    said = str(exc)
                await asyncio.sleep(RETRY)
            else:
                self.parts.notes.pop("status page", None)
                return await self._status.renew()

    async def _watch_parent(self, parent: int) -> None:
        complaint = Complaint(
            lambda problem: log.error("ha state: %s", problem),
            lambda: log.info("ha state: the state folder is again the one of the start"),
        )
        while os.getppid() == parent:
            complaint.note(self.parts.damage(lately=True))
            await rest(1.0)
        self.stop()
