"""The engine itself: builds the parts, connects them, and keeps them going until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from saltext_ha import master_key, version
from saltext_ha.config import HaConfig
from saltext_ha.errors import ConfigError, HaError
from saltext_ha.peering import handover, succession
from saltext_ha.peering import identity as identities
from saltext_ha.peering.admission import Admission
from saltext_ha.peering.client import certificates_of, introduce
from saltext_ha.peering.identity import Identity
from saltext_ha.peering.invites import Invite, Invites
from saltext_ha.peering.listener import PeerListener
from saltext_ha.peering.membership import Membership
from saltext_ha.peering.standing import Standing
from saltext_ha.peering.trust import Peer, Trust
from saltext_ha.replication.record import Record
from saltext_ha.service import hints, knowledge
from saltext_ha.service.actors import WheelCalls
from saltext_ha.service.announce import Announcer
from saltext_ha.service.answers import Answers
from saltext_ha.service.balancing import ProxyConfig
from saltext_ha.service.bound import Bound
from saltext_ha.service.checking import Checking, Telling
from saltext_ha.service.claims import Claims
from saltext_ha.service.connections import is_ours
from saltext_ha.service.control import ControlServer
from saltext_ha.service.core import Core
from saltext_ha.service.decisions import Decisions
from saltext_ha.service.differences import Differences
from saltext_ha.service.doors import Doors
from saltext_ha.service.drain import Drain
from saltext_ha.service.ear import Ear
from saltext_ha.service.figures import Figures
from saltext_ha.service.group import Command, Group
from saltext_ha.service.health import Watcher
from saltext_ha.service.heard import Heard
from saltext_ha.service.jobs import Jobs
from saltext_ha.service.link import Link
from saltext_ha.service.linting import Linting
from saltext_ha.service.members import Members
from saltext_ha.service.opening import open_keeper
from saltext_ha.service.past import Past, prune_regularly
from saltext_ha.service.reach import Reach
from saltext_ha.service.retention import Retention
from saltext_ha.service.returns import Returns
from saltext_ha.service.safe import Safe
from saltext_ha.service.seeker import Seeker
from saltext_ha.service.sharing import Sharing
from saltext_ha.service.views import Views
from saltext_ha.service.watching import Watch
from saltext_ha.web.listener import RETRY, StatusListener
from saltext_ha.web.pages import Pages

log = logging.getLogger(__name__)

FOLDER_INTERVAL = 1.0
MEMBERS_INTERVAL = 60.0
EXPIRES_SOON = datetime.timedelta(days=60)
# A master that was killed leaves its engine behind for a moment.
TAKEOVER = 10.0
STOPPING = 5.0  # seconds that tasks get to end before the process ends without them


class Service:
    """
    The ha engine of one master.

    :param opts: the running master's configuration, as engines get it in ``__opts__``.
    """

    def __init__(self, opts: Mapping[str, Any], config: HaConfig) -> None:
        self.opts = opts
        self.config = config
        self.identity = identities.load_or_create(config.state_dir, config.name)
        self.trust = Trust(config.state_dir, {peer.name: peer.url for peer in config.peers})
        self.membership = Membership(
            self.identity,
            self.trust,
            config.name,
            config.url,
            config.group,
            timeout=config.peer_timeout,
        )
        self.admission = Admission(
            self.membership,
            self.trust,
            Invites(config.state_dir),
            share=lambda i: handover.take(opts, i.shares) if i.shares else handover.show(opts),
            outlook=self._outlook,
            standing=Standing(
                config.state_dir, config.group, config.share_master_key, config.secret
            )
            if config.secret
            else None,
        )
        self.retention = Retention(self)
        self.sharing = Sharing(self)
        self.claims = Claims(config.name)
        self.links: dict[str, Link] = {}
        self.notes: dict[str, str] = {}
        """What an operator should know, by subject."""
        self.in_cluster = ""
        """Why it does not beside Salt's own cluster; empty without one, or with ``repair``."""
        self.only_reports = ""
        """Why this master never writes its key store; empty when it does."""
        self.draining = False
        """Whether an operator takes this master out of service: no more callers, then."""
        self.minions: Command | None = None
        """Tells on which masters minions hang, as ``ha.minions`` does; None: nobody knows."""
        self.figures = Figures()
        self.ear = Ear()
        self.health = Watcher(self, config.health)
        self.group = Group(self)
        self.views = Views(self.group)
        self._status: StatusListener | None = None
        if config.status:
            pages = Pages(self).by_path()
            self._status = StatusListener(config.status, pages, source=config.source)
        self.heard = Heard(functools.partial(is_ours, opts))
        self.returns = Returns()
        self._calls = WheelCalls()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hints: list[hints.Hint] = []
        self._hinted = asyncio.Event()
        self._stopped = asyncio.Event()
        if config.name in self.trust.pinned():
            raise ConfigError(
                f"{config.source}: ha: name: {config.name!r} is the name of a pinned peer; every "
                "master of a group needs a name of its own"
            )

    async def run(self) -> None:
        """
        Until :meth:`stop`, or until the master that started this process is gone.

        :raises HaError: it cannot start: port taken, state folder or replica unusable.
        """
        self.announce = Announcer(self.opts)
        self.watch = Watch(
            self.config.state_dir,
            self.config.name,
            self.announce,
            self.config.consistency.interval,
        )
        keeper = open_keeper(self, announce=self.announce, who=self._calls.who)
        self.core = Core(keeper, self._publish)
        group = self.group
        telling = Telling(group)
        checking = Checking(group, telling)
        linting, members, doors = Linting(group), Members(group), Doors(group)
        safe, proxy = Safe(group, doors, checking), ProxyConfig(group)
        self.jobs = Jobs(group)
        self.bound = Bound(group, self.jobs)
        self.minions = self.bound.minions
        drain = Drain(group, self.jobs, self.bound)
        handlers = self.membership.handlers()
        for peers_part in (
            Answers(self),
            self.retention,
            self.sharing,
            group,
            linting,
            members,
            telling,
            self.jobs,
            self.bound,
            drain,
            doors,
            safe,
            proxy,
        ):
            handlers.update(peers_part.for_peers())
        self.listener = PeerListener(
            self.identity,
            self.trust,
            handlers,
            self.config.listen_host,
            self.config.port,
            strangers=self.admission.handlers(),
        )
        commands: dict[str, Command] = {}
        for part in (
            self.views,
            checking,
            Differences(group),
            linting,
            Decisions(group),
            members,
            Past(group),
            self.bound,
            Reach(self.jobs, self.bound),
            drain,
            doors,
            safe,
            proxy,
        ):
            commands.update(part.commands())
        control = self.control = ControlServer(self.config.control_socket, commands)
        over = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            # What happened while this engine was away is recorded before any peer is heard, with
            # what an operator could know then.
            await self.core.scan()
            await self._take_over(self.listener.start)
            await control.start()
            threading.Thread(
                target=hints.listen,
                args=(
                    self.opts,
                    lambda h: loop.call_soon_threadsafe(self._hint, h),
                    self._calls,
                    over,
                    self._hear,
                ),
                daemon=True,
            ).start()
            self._start("follow hints", self._follow_hints())
            self._start("watch folders", self._watch_folders())
            self._start("scan", self._scan_regularly())
            self._start("newcomers", self.bound.run())
            self._start("members", self._follow_members())
            self._start("retention", self.retention.run())
            self._start("seek masters", Seeker(self).run())
            self._start("consistency", self.watch.run(checking.answer))
            self._start("health", self.health.run())
            self._start("status page", self._serve_status())
            self._start("prune", prune_regularly(self.core, self.config.keep_history))
            log.info(
                "ha engine running: name=%s group=%s mode=%s node=%s",
                self.config.name,
                self.config.group,
                self.mode,
                self.core.replica.node,
            )
            await self._watch_parent(os.getppid())
        finally:
            over.set()
            for link in self.links.values():
                await link.close()
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait([*self._tasks.values()], timeout=STOPPING)
            await control.stop()
            if self._status:
                await self._status.stop()
            await self.listener.stop()
            self.core.close()
            self.announce.stop()

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

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped.set()

    # -- starting

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

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception:
                # A part that is gone is worse than an engine that is started anew.
                log.exception("ha engine: %s failed", name)
                self.stop()

        self._tasks[name] = asyncio.ensure_future(guarded())

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

    # -- from this master to the peers

    def _publish(self, records: Sequence[Record]) -> None:
        for link in self.links.values():
            link.push(records)

    def _hear(self, tag: str, data: Any) -> None:
        self.heard(tag, data)
        self.returns(tag, data)
        self.ear.heard(tag, data)

    def _hint(self, hint: hints.Hint) -> None:
        self._hints.append(hint)
        self._hinted.set()

    async def _follow_hints(self) -> None:
        while True:
            await self._hinted.wait()
            self._hinted.clear()
            found, self._hints = self._hints, []
            await self.core.hinted(found)

    async def _watch_folders(self) -> None:
        while True:
            await asyncio.sleep(FOLDER_INTERVAL)
            if await self.core.run(self.core.keeper.store.touched) or self.core.keeper.missed:
                await self.core.scan()

    async def _scan_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_interval)
            await self.core.scan()

    async def _watch_parent(self, parent: int) -> None:
        while not self._stopped.is_set() and os.getppid() == parent:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 1.0)

    # -- links

    async def _follow_members(self) -> None:
        seen: tuple[int, Identity] | None = None
        # At once: a crash may have kept a removal from being told.
        due = asyncio.get_running_loop().time()
        while True:
            if seen != (self.trust.generation(), self.identity):
                seen = self.trust.generation(), self.identity
                await self._relink()
            if self.core.keeper.adopting:
                await self._adopt()
            if asyncio.get_running_loop().time() >= due:
                await self.membership.exchange(brief=True)
                await self.sharing.check_all()
                due = asyncio.get_running_loop().time() + MEMBERS_INTERVAL
            elif self.sharing.due:
                await self.sharing.check_all()
            await asyncio.sleep(0.5)

    async def _relink(self) -> None:
        """One link to every pinned peer, under its present address and certificate."""
        peers = dict(self.trust.peers())
        for name, link in list(self.links.items()):
            if peers.get(name) != link.peer or link.identity is not self.identity:
                del self.links[name]
                await link.close()
                self._tasks.pop(f"link {name}").cancel()
        for name, peer in peers.items():
            if name not in self.links:
                self.links[name] = Link(
                    peer,
                    self.identity,
                    self.core,
                    claims=self.claims,
                    figures=self.figures,
                    greeting=self.describe,
                    announce=self.announce,
                    met=self.sharing.check,
                    mistrusted=self._reconcile,
                    interval=self.config.sync_interval,
                    timeout=self.config.peer_timeout,
                )
                self._start(f"link {name}", self.links[name].run())

    async def _reconcile(self, peer: Peer) -> bool:
        """
        A peer and this master do not know each other's certificates: each may have renewed its.

        :return: whether that was all, and another call is worth while.
        """
        timeout = self.config.peer_timeout
        try:
            if self.trust.renew(peer.name, await certificates_of(peer, timeout)):
                log.info("ha peer renewed its certificate: name=%s", peer.name)
                peer = self.trust.peers()[peer.name]
            if not self.identity.former:
                return False
            await introduce(self.identity, peer, self.config.name, timeout)
        except HaError as exc:
            log.debug("ha peer %s stays unknown, or we to it: %s", peer.name, exc)
            return False
        return True

    def renew(self) -> Identity:
        """
        Take a new certificate and show it from now on.

        :raises TrustError: the present one cannot vouch for it.
        """
        self.identity = identities.succeed(self.config.state_dir, self.config.name)
        self.membership.identity = self.identity
        self.listener.show(self.identity)
        return self.identity

    def certificate_notes(self) -> list[str]:
        """That this master's certificate ends soon, in good time."""
        end = succession.expiry(self.identity.certificate)
        left = end - datetime.datetime.now(datetime.timezone.utc)
        if left > EXPIRES_SOON:
            return []
        if left > datetime.timedelta():
            return [f"its certificate ends on {end:%Y-%m-%d}; run there: salt-run ha.renew"]
        return [
            f"its certificate ended on {end:%Y-%m-%d}: salt-run ha.leave there, ha.remove_peer and "
            "ha.invite on another member, ha.join there"
        ]

    def describe(self) -> dict[str, Any]:
        """What this master says about itself when it meets a peer."""
        return {
            "name": self.config.name,
            "url": self.config.url,
            "group": self.config.group,
            "mode": self.mode,
            "one_denied": self.core.keeper.store.one_denied,
            "salt": version.salt(),
            "version": version.ours(),
        }

    async def _outlook(self, invite: Invite, after: bytes) -> dict[str, Any]:
        """What a master hears that asks what joining would do: states of keys, no keys."""
        if not after:
            await self.core.scan()
        return {
            "writes_not": self.notes.get("paused", "") or self.only_reports,
            "one_denied": self.core.keeper.store.one_denied,
            "public": handover.show(self.opts),
            "shares": list(invite.shares),
            "page": await self.core.run(knowledge.page, self.core.replica, after),
        }

    async def _adopt(self) -> None:
        """After a lost replica: first pull from a peer, then take in what the store shows."""
        peers = [link for link in self.links.values() if link.up]
        if self.trust.peers() and not peers:
            return
        try:
            if peers:
                await self.retention.pull(peers[0])
            await self.core.adopt()
        except HaError as exc:
            log.warning("ha replica: not rebuilt yet: %s", exc)
        if not self.core.keeper.adopting:
            source = peers[0].peer.name if peers else "no peer"
            log.info("ha replica: rebuilt from %s and the key store", source)
