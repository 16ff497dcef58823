"""Makes and registers the parts that answer operators, peers and callers of the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from saltext_ha.commands.consistency.consistency_check import ConsistencyCheck, OwnFacts
from saltext_ha.commands.consistency.lint import Lint
from saltext_ha.commands.keys.decisions import Decisions
from saltext_ha.commands.keys.differences import Differences
from saltext_ha.commands.keys.history import history
from saltext_ha.commands.keys.key_section import KeySection
from saltext_ha.commands.keys.keys import keys
from saltext_ha.commands.keys.pausing import Pausing
from saltext_ha.commands.keys.rewrite import Rewrite
from saltext_ha.commands.masters.endpoints import Endpoints
from saltext_ha.commands.masters.own_summary import OwnSummary
from saltext_ha.commands.masters.proxy_config import ProxyConfig
from saltext_ha.commands.masters.restart_masters import RestartMasters
from saltext_ha.commands.masters.status import Status
from saltext_ha.commands.membership.members import Members
from saltext_ha.commands.membership.remove_peer import RemovePeer
from saltext_ha.commands.minions.cmd import CmdCommand
from saltext_ha.commands.minions.drain import Drain
from saltext_ha.commands.minions.failover_safe import FailoverSafe
from saltext_ha.commands.minions.minions import BoundMinions, accepted_of
from saltext_ha.commands.minions.past_jobs import PastJobs
from saltext_ha.commands.minions.reachability import reachability
from saltext_ha.commands.minions.where import Where
from saltext_ha.commands.once.leader import LeaderCommand
from saltext_ha.commands.once.lock import LockCommand
from saltext_ha.commands.once.once import Once
from saltext_ha.commands.rollout.minion_config import SHA256, minion_config
from saltext_ha.commands.trees.deploy import Deploy
from saltext_ha.commands.trees.tree_states import TreeStates
from saltext_ha.engine.parts import Parts
from saltext_ha.minions import minion_cache
from saltext_ha.minions.arrivals import Arrivals, Written, cached
from saltext_ha.minions.job_cache import JobCache
from saltext_ha.minions.job_specs import MINE, REFRESH, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.mines import Mines
from saltext_ha.minions.minion_cache import GRAINS, MinionCache, why_not
from saltext_ha.minions.own_jobs import OwnJobs
from saltext_ha.minions.shared_mines import OFF, SharedMines
from saltext_ha.sync.server import SyncServer
from saltext_ha.transport.control_server import Command
from saltext_ha.transport.listener import Handler
from saltext_ha.web.own_metrics import OwnSources
from saltext_ha.web.pages import Pages
from saltext_ha.web.snapshot import Snapshots

T = TypeVar("T")


class AnswersPeers(Protocol):
    """A part with methods that peers call."""

    def for_peers(self) -> Mapping[str, Handler]: ...


P = TypeVar("P", bound=AnswersPeers)


class Answering:
    """
    The parts that answer for one engine, each made after those that it uses; in the event loop.

    :param parts: those that these use, some of which answer, too.
    :ivar commands: on the control socket.
    :ivar peer_handlers: for peers.
    :ivar pages: for callers of the status page.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.commands: dict[str, Command] = {}
        self.peer_handlers: dict[str, Handler] = {}
        self._add(parts.membership)
        self._add(parts.group)
        self._exchange()
        self._minions()
        self._comparing()
        self._masters()
        self._keys()
        self._rollout()
        self._once()
        self.pages = self._pages()

    def _add(self, part: P) -> P:
        """Have *part* answer peers."""
        merge(self.peer_handlers, part.for_peers())
        return part

    def _on_socket(self, **commands: Command) -> None:
        """Have the control socket answer *commands*."""
        merge(self.commands, commands)

    def _exchange(self) -> None:
        """The parts for which there are no commands: what engines tell each other."""
        parts = self._parts
        self._add(parts.retention)
        self._add(parts.shared_store)
        moved = parts.membership.moved
        self._add(
            SyncServer(parts.core, parts.links, parts.hello, parts.vouching, parts.leases, moved)
        )

    def _minions(self) -> None:
        """The parts that ask minions, and say what is known of their connections and jobs."""
        parts = self._parts
        group, core, opts = parts.group, parts.core, parts.opts
        commands = parts.config.commands
        own_jobs = OwnJobs(group.name, opts, parts.returns, commands, parts.ending.check)
        self._add(own_jobs)
        self.shared_mines = self._add(_shared_mines(parts))
        self.arrivals = _arrivals(parts, own_jobs, self.shared_mines)
        self.mines = self._add(_mines(parts, own_jobs, self.arrivals))
        self.jobs = jobs = Jobs(group, own_jobs, parts.presence.hot)
        self.bound = self._add(
            BoundMinions(group, jobs, core, opts, presence=parts.presence, memory=parts.memory)
        )
        where = Where(core, jobs, self.bound)
        cmd = CmdCommand(jobs, where, bool(opts.get("order_masters")))
        past = self._add(PastJobs(group, jobs, JobCache(opts)))
        self._on_socket(
            minions=self.bound.minions,
            where=where.where,
            reachability=partial(reachability, jobs, self.bound),
            cmd=cmd.cmd,
            cmd_more=cmd.more,
            cmd_progress=cmd.progress,
            jobs=past.jobs,
            lookup_jid=past.lookup,
        )

    def _comparing(self) -> None:
        """The parts that compare masters, and deploy what is to be the same."""
        parts = self._parts
        group, core, opts = parts.group, parts.core, parts.opts
        config, stager = parts.config, parts.stager
        tree_states = TreeStates(group, stager, opts)
        self._key_section = keys = KeySection(group, core)
        facts = self._add(OwnFacts(opts, config, keys, parts.master_key))
        note = parts.watch.note
        self.checking = ConsistencyCheck(
            group, config, core, facts, keys, tree_states.explain, note
        )
        lint = self._add(Lint(group, opts))
        registers, trees = self._add(parts.tree_registers), self._add(parts.trees)
        folder, check = config.state_dir / "trees", parts.ending.check
        deploy = Deploy(group, registers, trees, self._add(stager), tree_states, folder, check)
        self._on_socket(
            check=self.checking.check,
            lint=lint.lint,
            deploy=deploy.background.begins(deploy.deploy),
            rollback=deploy.background.begins(deploy.rollback),
            deploy_progress=deploy.background.progress,
            deployments=deploy.deployments,
        )

    def _masters(self) -> None:
        """The parts about masters themselves, and who is one."""
        parts = self._parts
        group, core, opts = parts.group, parts.core, parts.opts
        config = parts.config
        self.summary = self._add(
            OwnSummary(
                opts,
                core,
                parts.hello,
                parts.health,
                key=parts.master_key,
                bound=self.bound.count,
                mines=self.mines.told if self.arrivals else lambda: None,
                unreached=group.unreached,
                notes=parts.all_notes,
                timeout=config.peer_timeout,
            )
        )
        self.status = Status(
            group,
            config,
            opts,
            core,
            summary=self.summary,
            watch=parts.watch,
            refusals=parts.refusals,
            leader=parts.leader,
            looks=parts.looks,
        )
        members = Members(
            group,
            config,
            core,
            membership=parts.membership,
            renewal=parts.renewal,
            vouching=parts.vouching,
            hello=parts.hello,
            disk=parts.trust.disk,
        )
        removal = self._add(
            RemovePeer(
                group,
                core,
                parts.trust,
                parts.membership,
                by_secret=config.secret is not None,
                notes=parts.notes,
            )
        )
        restart = self._add(RestartMasters(group, config.restart, config.state_dir / "restart"))
        self._on_socket(
            status=self.status.status,
            peers=members.peers,
            leave=members.leave,
            renew=members.renew,
            remove_peer=removal.remove_peer,
            restart=restart.restart,
        )

    def _keys(self) -> None:
        group, core = self._parts.group, self._parts.core
        differences, decisions = Differences(group, core, self._key_section), Decisions(group, core)
        pausing = self._add(Pausing(group, core))
        self._on_socket(
            keys=partial(keys, group, core),
            history=partial(history, core, self._parts.config.name),
            sync=differences.sync,
            knowledge=differences.knowledge,
            resolve=decisions.resolve,
            restore=decisions.restore,
            release=decisions.release,
            refill=decisions.refill,
            left=decisions.left,
            pause=pausing.pause,
            resume=pausing.resume,
            rewrite=Rewrite(group, core, self._parts.vouching).rewrite,
        )

    def _rollout(self) -> None:
        """The parts about the way of minions and applications to masters."""
        parts, group, core = self._parts, self._parts.group, self._parts.core
        config, jobs, host = parts.config, self.jobs, parts.config.address
        endpoints = self._add(Endpoints(group, core, parts.opts, host))
        hash_type = str(parts.opts.get("hash_type") or SHA256)
        drain = self._add(Drain(group, jobs, self.bound, parts.health, host))
        per_worker = config.minions_per_worker
        safe = self._add(
            FailoverSafe(group, jobs, endpoints, self.checking, self.summary, per_worker)
        )
        self._on_socket(
            minion_config=partial(minion_config, core, endpoints, hash_type),
            may_drain=drain.may_drain,
            drain=drain.drain,
            rebalance=drain.rebalance,
            failover_safe=safe.failover_safe,
            proxy_config=self._add(ProxyConfig(group, parts.opts, config)).proxy_config,
        )

    def _once(self) -> None:
        """The parts that do on one master what must not be done twice."""
        parts, group = self._parts, self._parts.group
        leader, runs, locks = self._add(parts.leader), self._add(parts.runs), self._add(parts.locks)
        if parts.reactions:
            self._add(parts.reactions)
        once, lock = Once(group, leader, runs), LockCommand(group.name, leader, locks)
        self._on_socket(
            leader=self._add(LeaderCommand(group, leader, runs, parts.reactions)).leader,
            once=once.once,
            once_end=once.end,
            lock=lock.lock,
            unlock=lock.unlock,
        )

    def _pages(self) -> Pages:
        parts, config, core = self._parts, self._parts.config, self._parts.core
        return Pages(
            Snapshots(config.name, self.status, core, parts.failovers, config.peer_timeout),
            parts.health,
            self.bound.minions,
            OwnSources(
                config.name,
                config.group,
                core.mode,
                parts.health,
                lambda: parts.identity,
                parts.counters,
                parts.failovers,
                lambda: parts.refusals.counts,
            ),
        )


def merge(found: dict[str, T], more: Mapping[str, T]) -> None:
    """Add *more* to what was *found*; no name may be in both."""
    if twice := found.keys() & more.keys():
        raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
    found.update(more)


def _shared_mines(parts: Parts) -> SharedMines:
    """Answers peers in any case; takes no part where that is not wanted, or cannot be."""
    core, wanted = parts.core, parts.config.share_mines
    shared = SharedMines(
        parts.links.contacts,
        MinionCache(parts.opts),
        accepted=lambda ids: core.run(accepted_of, core.replica, ids),
        keys=lambda: core.replica.placements.root,
        off=why_not(parts.opts) if wanted else OFF,
    )
    if wanted:
        parts.later_notes.append(shared.notes)
    return shared


def _arrivals(parts: Parts, jobs: OwnJobs, shared: SharedMines) -> Arrivals | None:
    """None if this master does not cache grains, pillar and mine of minions."""
    if not parts.opts.get("minion_data_cache", True):
        return None
    arrivals = Arrivals(_refresh(jobs), _sent_by_minions(cached(parts.opts, GRAINS), shared))
    parts.bus.add(arrivals)
    parts.later_notes.append(arrivals.notes)
    return arrivals


def _sent_by_minions(of_grains: Written, shared: SharedMines) -> Written:
    """The same; grains of a peer count as never cached, because no pillar came with them."""

    def written(ids: Iterable[str]) -> dict[str, float]:
        found = of_grains(ids)
        return {i: 0.0 if shared.sent_by_peer(i, at) else at for i, at in found.items()}

    return written


def _refresh(jobs: OwnJobs) -> Callable[[tuple[str, ...]], Awaitable[None]]:
    """Has minions refresh their mine, grains and pillar."""

    async def refresh(ids: tuple[str, ...]) -> None:
        for what in (REFRESH, MINE):
            await jobs.tell(JobSpec(what, ids=ids))

    return refresh


def _mines(parts: Parts, jobs: OwnJobs, arrivals: Arrivals | None) -> Mines:
    """Answers peers in any case; compares mines only if this master caches them."""
    mines = Mines(
        parts.links.contacts,
        cached(parts.opts, minion_cache.MINE),
        busy=arrivals.asks if arrivals else lambda _: False,
        publish=_refresh(jobs),
    )
    if arrivals:
        parts.bus.add(mines)
        parts.later_notes.append(mines.notes)
    return mines
