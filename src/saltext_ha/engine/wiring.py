"""Makes and registers the parts that answer operators, peers and callers of the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from saltext_ha.commands.consistency.consistency_check import ConsistencyCheck, OwnFacts
from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.commands.consistency.lint import Lint
from saltext_ha.commands.keys.decisions import Decisions
from saltext_ha.commands.keys.differences import Differences
from saltext_ha.commands.keys.history import HistoryCommand
from saltext_ha.commands.keys.key_section import KeySection
from saltext_ha.commands.keys.keys import Keys
from saltext_ha.commands.keys.rewrite import Rewrite
from saltext_ha.commands.masters.endpoints import Endpoints
from saltext_ha.commands.masters.proxy_config import ProxyConfig
from saltext_ha.commands.masters.restart_masters import RestartMasters
from saltext_ha.commands.masters.status import Status
from saltext_ha.commands.masters.summary import Summary
from saltext_ha.commands.membership.members import Members
from saltext_ha.commands.membership.remove_peer import RemovePeer
from saltext_ha.commands.minions.cmd import Commands
from saltext_ha.commands.minions.drain import Drain
from saltext_ha.commands.minions.failover_safe import FailoverSafe
from saltext_ha.commands.minions.minions import Bound
from saltext_ha.commands.minions.past_jobs import PastJobs
from saltext_ha.commands.minions.reachability import Reachability
from saltext_ha.commands.minions.where import Where
from saltext_ha.commands.once.leader import LeaderCommand
from saltext_ha.commands.once.lock import LockCommand
from saltext_ha.commands.once.once import Once
from saltext_ha.commands.rollout.minion_config import MinionConfig
from saltext_ha.commands.trees.deploy import Deploy
from saltext_ha.commands.trees.tree_states import TreeStates
from saltext_ha.config.mapping import HaConfig
from saltext_ha.engine.parts import Parts
from saltext_ha.health.watcher import Watcher
from saltext_ha.membership.membership import Membership
from saltext_ha.membership.renewal import Renewal
from saltext_ha.minions.arrivals import Arrivals, grains_cache, mine_cache
from saltext_ha.minions.job_cache import JobCache
from saltext_ha.minions.job_specs import MINE, REFRESH, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.mines import Mines
from saltext_ha.minions.own_jobs import OwnJobs
from saltext_ha.minions.presence import Presence
from saltext_ha.once.leader import Leader
from saltext_ha.once.locks import Locks
from saltext_ha.once.reactions import Reactions
from saltext_ha.once.runs import Runs
from saltext_ha.reconciler.core import Core
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.intake import MemoryBudget
from saltext_ha.sync.group import Group
from saltext_ha.sync.hello import Hello
from saltext_ha.sync.line import Line
from saltext_ha.sync.server import SyncServer
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport.control_server import Command
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.trust import Trust
from saltext_ha.web.own_metrics import Own
from saltext_ha.web.pages import Pages
from saltext_ha.web.snapshot import Snapshots

T = TypeVar("T")
Notes = Callable[[], Iterable[str]]
"""Further notes for operators."""


@runtime_checkable
class AnswersOperators(Protocol):
    """A part with commands of the control socket."""

    def commands(self) -> Mapping[str, Command]: ...


@runtime_checkable
class AnswersPeers(Protocol):
    """A part with methods that peers call."""

    def for_peers(self) -> Mapping[str, Handler]: ...


Answers = AnswersOperators | AnswersPeers


class Answering(NamedTuple):
    """
    ``commands`` answer on the control socket, ``peer_handlers`` answer peers, ``pages`` answer
    callers of the status page; the others are parts of these.
    """

    commands: dict[str, Command]
    peer_handlers: dict[str, Handler]
    pages: Pages
    jobs: Jobs
    arrivals: Arrivals | None
    mines: Mines
    bound: Bound
    checking: ConsistencyCheck
    summary: Summary
    status: Status


class OfMinions(NamedTuple):
    """The parts that ask minions, and say what is known of their connections and jobs."""

    bound: Bound
    where: Where
    reachability: Reachability
    cmd: Commands
    past_jobs: PastJobs


class Comparing(NamedTuple):
    """The parts that compare masters."""

    own_facts: OwnFacts
    checking: ConsistencyCheck
    differences: Differences
    lint: Lint


def make(parts: Parts) -> Answering:
    """Make the parts that answer for the engine of *parts*; in the event loop."""
    opts, config, core, group = parts.opts, parts.config, parts.core, parts.group
    own_jobs = OwnJobs(group.name, opts, parts.returns, config.commands, parts.ending.check)
    caches = opts.get("minion_data_cache", True)
    arrivals = _arrivals(opts, own_jobs, parts.bus, parts.noted) if caches else None
    mines = _mines(opts, own_jobs, arrivals, parts.links.lines, parts.bus, parts.noted)
    jobs = Jobs(group, own_jobs, parts.presence.hot)
    minions = _minions(group, core, opts, jobs, parts.presence, parts.room)
    tree_states = TreeStates(group, parts.stager, opts)
    comparing = _comparing(group, core, opts, config, tree_states, parts.watch)
    summary = Summary(
        opts,
        core,
        parts.hello,
        parts.health,
        bound=minions.bound.count,
        mines=mines.told if arrivals else lambda: None,
        unreached=group.unreached,
        notes=parts.all_notes,
        timeout=config.peer_timeout,
    )
    status = Status(
        group,
        config,
        opts,
        core,
        summary=summary,
        watch=parts.watch,
        refusals=parts.refusals,
        leader=parts.leader,
        looks=parts.looks,
    )
    members = _members(
        group,
        core,
        config,
        parts.trust,
        membership=parts.membership,
        renewal=parts.renewal,
        vouching=parts.vouching,
        hello=parts.hello,
        notes=parts.notes,
    )
    answering: tuple[Answers, ...] = (
        status,
        summary,
        Keys(group, core),
        Decisions(group, core),
        HistoryCommand(core, config.name),
        *comparing,
        *members,
        Rewrite(group, core, parts.vouching),
        own_jobs,
        mines,
        *minions,
        *_failover(
            group,
            core,
            opts,
            config,
            jobs=jobs,
            bound=minions.bound,
            checking=comparing.checking,
            summary=summary,
            health=parts.health,
        ),
        Deploy(
            group,
            parts.tree_registers,
            parts.trees,
            parts.stager,
            tree_states,
            config.state_dir / "trees",
            parts.ending.check,
        ),
        parts.tree_registers,
        parts.trees,
        parts.stager,
        *_once(group, parts.leader, parts.runs, parts.locks, parts.reactions),
        SyncServer(
            core, parts.links, parts.hello, parts.vouching, parts.leases, parts.membership.moved
        ),
        parts.retention,
        parts.shared_store,
        group,
    )
    pages = Pages(
        Snapshots(config.name, status, core, parts.failovers, config.peer_timeout),
        parts.health,
        minions.bound.minions,
        Own(
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
    return Answering(
        _together(each.commands() for each in answering if isinstance(each, AnswersOperators)),
        _together(
            [
                parts.membership.handlers(),
                *(each.for_peers() for each in answering if isinstance(each, AnswersPeers)),
            ]
        ),
        pages,
        jobs,
        arrivals,
        mines,
        minions.bound,
        comparing.checking,
        summary,
        status,
    )


def _minions(
    group: Group,
    core: Core,
    opts: Mapping[str, Any],
    jobs: Jobs,
    presence: Presence,
    room: MemoryBudget,
) -> OfMinions:
    bound = Bound(group, jobs, core, opts, presence=presence, room=room)
    where = Where(core, jobs, bound)
    return OfMinions(
        bound,
        where,
        Reachability(jobs, bound),
        Commands(jobs, where, bool(opts.get("order_masters"))),
        PastJobs(group, jobs, JobCache(opts)),
    )


def _comparing(
    group: Group,
    core: Core,
    opts: Mapping[str, Any],
    config: HaConfig,
    tree_states: TreeStates,
    watch: ConsistencyWatch,
) -> Comparing:
    keys = KeySection(group, core)
    own_facts = OwnFacts(opts, config, keys)
    return Comparing(
        own_facts,
        ConsistencyCheck(group, config, core, own_facts, keys, tree_states.explain, watch.note),
        Differences(group, core, keys),
        Lint(group, opts),
    )


def _members(
    group: Group,
    core: Core,
    config: HaConfig,
    trust: Trust,
    *,
    membership: Membership,
    renewal: Renewal,
    vouching: Vouching,
    hello: Hello,
    notes: dict[str, str],
) -> tuple[Members, RemovePeer]:
    members = Members(
        group,
        config,
        core,
        membership=membership,
        renewal=renewal,
        vouching=vouching,
        hello=hello,
        disk=trust.disk,
    )
    by_secret = config.secret is not None
    return members, RemovePeer(group, core, trust, membership, by_secret=by_secret, notes=notes)


def _failover(
    group: Group,
    core: Core,
    opts: Mapping[str, Any],
    config: HaConfig,
    *,
    jobs: Jobs,
    bound: Bound,
    checking: ConsistencyCheck,
    summary: Summary,
    health: Watcher,
) -> tuple[Endpoints, MinionConfig, Drain, FailoverSafe, ProxyConfig, RestartMasters]:
    """The parts about the way of minions and applications to masters, and about restarting one."""
    endpoints = Endpoints(group, core, opts, config.address)
    return (
        endpoints,
        MinionConfig(core, endpoints),
        Drain(group, jobs, bound, health, config.address),
        FailoverSafe(group, jobs, endpoints, checking, summary, config.minions_per_worker),
        ProxyConfig(group, opts, config),
        RestartMasters(group, config.restart, config.state_dir / "restart"),
    )


def _once(
    group: Group, leader: Leader, runs: Runs, locks: Locks, reactions: Reactions | None
) -> tuple[Answers, ...]:
    """The parts that do on one master what must not be done twice."""
    return (
        leader,
        runs,
        locks,
        LeaderCommand(group, leader, runs, reactions),
        Once(leader, runs),
        LockCommand(group.name, leader, locks),
        *([reactions] if reactions else []),
    )


def _arrivals(
    opts: Mapping[str, Any], jobs: OwnJobs, bus: EventBus, noted: list[Notes]
) -> Arrivals:
    """For a master that caches grains, pillar and mine of minions."""
    arrivals = Arrivals(_refresh(jobs), grains_cache(opts))
    bus.add(arrivals)
    noted.append(arrivals.notes)
    return arrivals


def _refresh(jobs: OwnJobs) -> Callable[[tuple[str, ...]], Awaitable[None]]:
    """Has minions refresh their mine, grains and pillar."""

    async def refresh(ids: tuple[str, ...]) -> None:
        for what in (REFRESH, MINE):
            await jobs.tell(JobSpec(what, ids=ids))

    return refresh


def _mines(
    opts: Mapping[str, Any],
    jobs: OwnJobs,
    arrivals: Arrivals | None,
    lines: Mapping[str, Line],
    bus: EventBus,
    noted: list[Notes],
) -> Mines:
    """Answers peers in any case; compares mines only if this master caches them."""
    mines = Mines(
        lines,
        mine_cache(opts),
        busy=arrivals.asks if arrivals else lambda _: False,
        publish=_refresh(jobs),
    )
    if arrivals:
        bus.add(mines)
        noted.append(mines.notes)
    return mines


def _together(tables: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge *tables*; no name may be in two of them."""
    found: dict[str, T] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
        found.update(table)
    return found
