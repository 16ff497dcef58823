"""The engine itself: what its parts share, how it starts, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from saltext_ha.commands import key_pages
from saltext_ha.commands.consistency_watch import ConsistencyWatch
from saltext_ha.commands.history import prune_regularly
from saltext_ha.commands.views import Views
from saltext_ha.common import master_key, version
from saltext_ha.common.complaints import Complaint, LoopErrors
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import ConfigError, HaError
from saltext_ha.common.tasks import Tasks
from saltext_ha.config.mapping import HaConfig
from saltext_ha.engine import wiring
from saltext_ha.engine.startup import open_keeper
from saltext_ha.engine.state_folder import StateFolder
from saltext_ha.health.watcher import Watcher
from saltext_ha.membership import handover
from saltext_ha.membership.admission import Admission
from saltext_ha.membership.auto_join import AutoJoin
from saltext_ha.membership.certificates import Certificates
from saltext_ha.membership.group_secret import Standing
from saltext_ha.membership.invites import Invites
from saltext_ha.membership.membership import Membership
from saltext_ha.minions.connections import is_ours
from saltext_ha.minions.failovers import Failovers
from saltext_ha.minions.presence import Heard
from saltext_ha.minions.returns import Returns
from saltext_ha.reconciler.attribution import WheelCalls
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.hints import Hints
from saltext_ha.reconciler.scanner import Scanner
from saltext_ha.salt_bus import proof
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.intake import Room
from saltext_ha.salt_bus.proof import Proofs
from saltext_ha.sync.group import Command, Group
from saltext_ha.sync.links import Links
from saltext_ha.sync.repair_leases import Claims
from saltext_ha.sync.retention import Retention
from saltext_ha.sync.shared_store import SharedStore
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport import control_client
from saltext_ha.transport import identity as identities
from saltext_ha.transport.control_server import ControlServer
from saltext_ha.transport.listener import PeerListener
from saltext_ha.transport.trust import Trust
from saltext_ha.web.listener import RETRY, StatusListener
from saltext_ha.web.pages import Pages

log = logging.getLogger(__name__)

# A master that was killed leaves its engine behind for a moment.
TAKEOVER = 10.0


class Service:
    """
    The ha engine of one master.

    :param opts: the running master's configuration, as engines get it in ``__opts__``.
    """

    def __init__(self, opts: Mapping[str, Any], config: HaConfig) -> None:
        self.opts = opts
        self.config = config
        self._stopped = asyncio.Event()
        self._tasks = Tasks(failed=self.stop)

        # What others see of this master, and what an operator should know.
        self.notes: dict[str, str] = {}
        """What an operator should know, by subject."""
        self.in_cluster = ""
        """Why it leaves that to Salt's own cluster; empty without one, or with ``repair``."""
        self.only_reports = ""
        """Why this master never writes its key store; empty when it does."""
        self.draining = False
        """Whether an operator takes this master out of service: no more callers, then."""
        self.unknown_to_minions: list[str] = []
        """Masters that no minion is configured with, as ``ha.failover_safe`` found here last."""
        self.minions: Command | None = None
        """Tells on which masters minions hang, as ``ha.minions`` does; None: nobody knows."""
        self.counters = Counters()
        self.state_folder: StateFolder | None = None
        """The folder that this engine began with; None before it has begun."""

        # Peers.
        self.identity = identities.load_or_create(config.state_dir, config.name)
        self.proofs = Proofs(self._event_key())
        """Which events are this master's own."""
        self.trust = Trust(config.state_dir, config.peer_urls, config.max_members)
        self.membership = Membership(
            self.identity,
            self.trust,
            config.name,
            config.url,
            config.group,
            timeout=config.peer_timeout,
        )
        self.admission = self._admission()
        self.certificates = Certificates(self)
        self.links = Links(self, self._tasks)
        self.claims = Claims(config.name)
        self.vouching = Vouching(self)
        self.retention = Retention(self)
        self.shared_store = SharedStore(self)
        self.group = Group(self)
        self.views = Views(self.group)

        # Events, in the order in which each of them is told: a hint takes its name from the calls.
        self._calls = WheelCalls()
        self.heard = Heard(functools.partial(is_ours, opts))
        self.room = Room()
        self.returns = Returns(room=self.room)
        self.failovers = Failovers()
        self.bus = EventBus(opts, (self._calls.heard, self.heard, self.returns, self.failovers))

        self.health = Watcher(self, config.health)
        self._status: StatusListener | None = None
        if config.status:
            pages = Pages(self).by_path()
            self._status = StatusListener(config.status, pages, source=config.source)
        if config.name in self.trust.pinned():
            raise ConfigError(
                f"{config.source}: ha: name: {config.name!r} is the name of a pinned peer; every "
                "master of a group needs a name of its own"
            )

    def _event_key(self) -> bytes:
        try:
            return proof.key_of(self.config.state_dir)
        except (OSError, ValueError) as exc:
            # Keys are to be the same whatever becomes of reactors.
            self.notes["events"] = f"reactors that check ha.genuine ignore all events: {exc}"
            return secrets.token_bytes(proof.KEY_BYTES)

    def _admission(self) -> Admission:
        config, opts = self.config, self.opts
        standing = None
        if config.secret:
            standing = Standing(
                config.state_dir, config.group, config.share_master_key, config.secret
            )
        return Admission(
            self.membership,
            self.trust,
            Invites(config.state_dir),
            share=lambda i: handover.take(opts, i.shares) if i.shares else handover.show(opts),
            preview=functools.partial(key_pages.offer, self),
            standing=standing,
            seen=lambda name: self.links[name].ago() if name in self.links else None,
        )

    # -- what the parts ask of it

    @property
    def mode(self) -> str:
        """What is done with the key store: ``enforce``, ``observe`` or ``paused``."""
        if self.only_reports or ("paused" in self.notes and self.config.mode == "observe"):
            return "observe"
        return "paused" if "paused" in self.notes else "enforce"

    def only_report(self, reason: str) -> None:
        """
        From now on this master never writes its key store; without a *reason* it does, unless it
        is a member of Salt's own cluster.
        """
        self.only_reports = self.in_cluster or reason
        self.core.keeper.enforce = not self.only_reports

    @functools.cached_property
    def master_key(self) -> str:
        """The fingerprint of the key that minions know the running master by; empty: unknown."""
        shown = master_key.describe(self.opts)["fingerprint"]
        return shown if isinstance(shown, str) else ""

    def master_key_in_files(self) -> str:
        """The fingerprint of the key that it would have after a restart; empty: unknown."""
        return master_key.public_fingerprint(self.opts)

    def damage(self) -> str:
        """
        What keeps this engine from being of use though it runs; empty when nothing does. Whoever
        says how this master does, in a table, a page or a metric, asks this.
        """
        return self.state_folder.problem() if self.state_folder else ""

    def describe(self) -> dict[str, Any]:
        """What this master says about itself when it meets a peer."""
        return {
            "name": self.config.name,
            "url": self.config.url,
            "group": self.config.group,
            "mode": self.mode,
            "one_denied": self.core.keeper.store.one_denied,
            "parts": True,
            "commands": True,
            "salt": version.salt(),
            "version": version.ours(),
        }

    def greet(self) -> dict[str, Any]:
        """What both sides say in ``hello``."""
        return {**self.describe(), "vouched": self.vouching.own()}

    # -- from start to end

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped.set()

    async def run(self) -> None:
        """
        Until :meth:`stop`, or until the master that started this process is gone.

        :raises HaError: it cannot start: port taken, state folder or replica unusable.
        """
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        self.announce = Announcer(self.opts, self.proofs)
        try:
            await self._serve()
        finally:
            self.announce.stop()

    async def _serve(self) -> None:
        config = self.config
        self.watch = ConsistencyWatch(
            config.state_dir,
            config.name,
            self.announce,
            config.consistency.interval,
            members=lambda: {config.name, *self.trust.peers()},
            up=lambda: {config.name, *(name for name, link in self.links.items() if link.up)},
        )
        keeper = open_keeper(self, announce=self.announce, who=self._calls.who)
        self.core = Core(keeper, self.links.push)
        self.state_folder = StateFolder(config.state_dir)
        made = wiring.make(self)
        self.jobs, self.bound, self.minions = made.jobs, made.bound, made.bound.minions
        self.listener = PeerListener(
            self.identity,
            self.trust,
            made.peer_handlers,
            config.listen_host,
            config.port,
            strangers=self.admission.handlers(),
        )
        self.control = ControlServer(config.control_socket, made.commands)
        hints = Hints(self._calls)
        self.bus.add(hints)
        try:
            # What happened while this engine was away is recorded before any peer is heard, with
            # what an operator could know then.
            await self.core.begin()
            await self._take_over(self.listener.start)
            await self.control.start()
            control_client.tell_why(config.control_socket, "")
            self.bus.start()
            Scanner(self.core, hints, config.scan_interval).start(self._tasks)
            for name, work in (
                ("members", self.links.run()),
                ("retention", self.retention.run()),
                ("expired invitations", self.admission.tidy()),
                ("seek masters", AutoJoin(self).run()),
                ("minions that were heard", self.bound.settle_regularly()),
                ("consistency", self.watch.run(made.checking.answer)),
                ("health", self.health.run()),
                ("status page", self._serve_status()),
                ("prune", prune_regularly(self.core, config.keep_history)),
            ):
                self._tasks.start(name, work)
            log.info(
                "ha engine running: name=%s group=%s mode=%s node=%s",
                config.name,
                config.group,
                self.mode,
                self.core.replica.node,
            )
            await self._watch_parent(os.getppid())
        finally:
            self.bus.stop()
            await self.links.close()
            await self._tasks.stop()
            await self.control.stop()
            if self._status:
                await self._status.stop()
            await self.listener.stop()
            self.core.close()

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

    async def _serve_status(self) -> None:
        """Keys are to be the same whatever becomes of this: a port that is taken is tried again."""
        said = ""
        while self._status:
            try:
                await self._status.start()
            except HaError as exc:
                self.notes["status page"] = str(exc)
                if str(exc) != said:
                    log.error("ha %s", exc)
                    said = str(exc)
                await asyncio.sleep(RETRY)
            else:
                self.notes.pop("status page", None)
                return

    async def _watch_parent(self, parent: int) -> None:
        complaint = Complaint(
            lambda problem: log.error("ha state: %s", problem),
            lambda: log.info("ha state: as it was again"),
        )
        while not self._stopped.is_set() and os.getppid() == parent:
            complaint.note(self.damage())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 1.0)
