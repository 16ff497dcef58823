"""Makes and registers the parts that answer operators, peers and callers of the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from saltext_ha.commands.consistency.consistency_check import ConsistencyCheck, OwnFacts
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
from saltext_ha.engine.parts import Parts
from saltext_ha.minions.arrivals import Arrivals, grains_cache, mine_cache
from saltext_ha.minions.job_cache import JobCache
from saltext_ha.minions.job_specs import MINE, REFRESH, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.mines import Mines
from saltext_ha.minions.own_jobs import OwnJobs
from saltext_ha.sync.server import SyncServer
from saltext_ha.transport.control_server import Command
from saltext_ha.transport.listener import Handler
from saltext_ha.web.own_metrics import Own
from saltext_ha.web.pages import Pages
from saltext_ha.web.snapshot import Snapshots

T = TypeVar("T")


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
    arrivals = _arrivals(parts, own_jobs)
    mines = _mines(parts, own_jobs, arrivals)
    jobs = Jobs(group, own_jobs, parts.presence.hot)
    minions = _minions(parts, jobs)
    tree_states = TreeStates(group, parts.stager, opts)
    comparing = _comparing(parts, tree_states)
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
    answering: tuple[Answers, ...] = (
        status,
        summary,
        Keys(group, core),
        Decisions(group, core),
        HistoryCommand(core, config.name),
        *comparing,
        *_members(parts),
        Rewrite(group, core, parts.vouching),
        own_jobs,
        mines,
        *minions,
        *_failover(parts, jobs, minions.bound, comparing.checking, summary),
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
        *_once(parts),
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


def _minions(parts: Parts, jobs: Jobs) -> OfMinions:
    core, group, opts = parts.core, parts.group, parts.opts
    bound = Bound(group, jobs, core, opts, presence=parts.presence, room=parts.room)
    where = Where(core, jobs, bound)
    return OfMinions(
        bound,
        where,
        Reachability(jobs, bound),
        Commands(jobs, where, bool(opts.get("order_masters"))),
        PastJobs(group, jobs, JobCache(opts)),
    )


def _comparing(parts: Parts, tree_states: TreeStates) -> Comparing:
    core, group, opts, config = parts.core, parts.group, parts.opts, parts.config
    keys = KeySection(group, core)
    own_facts = OwnFacts(opts, config, keys)
    note = parts.watch.note
    return Comparing(
        own_facts,
        ConsistencyCheck(group, config, core, own_facts, keys, tree_states.explain, note),
        Differences(group, core, keys),
        Lint(group, opts),
    )


def _members(parts: Parts) -> tuple[Members, RemovePeer]:
    return (
        Members(
            parts.group,
            parts.config,
            parts.core,
            membership=parts.membership,
            renewal=parts.renewal,
            vouching=parts.vouching,
            hello=parts.hello,
            disk=parts.trust.disk,
        ),
        RemovePeer(
            parts.group,
            parts.core,
            parts.trust,
            parts.membership,
            by_secret=parts.config.secret is not None,
            notes=parts.notes,
        ),
    )


def _failover(
    parts: Parts, jobs: Jobs, bound: Bound, checking: ConsistencyCheck, summary: Summary
) -> tuple[Endpoints, MinionConfig, Drain, FailoverSafe, ProxyConfig, RestartMasters]:
    """The parts about the way of minions and applications to masters, and about restarting one."""
    core, group, opts, config = parts.core, parts.group, parts.opts, parts.config
    endpoints = Endpoints(group, core, opts, config.address)
    return (
        endpoints,
        MinionConfig(core, endpoints),
        Drain(group, jobs, bound, parts.health, config.address),
        FailoverSafe(group, jobs, endpoints, checking, summary, config.minions_per_worker),
        ProxyConfig(group, opts, config),
        RestartMasters(group, config.restart, config.state_dir / "restart"),
    )


def _once(parts: Parts) -> tuple[Answers, ...]:
    """The parts that do on one master what must not be done twice."""
    group, leader, runs, locks = parts.group, parts.leader, parts.runs, parts.locks
    return (
        leader,
        runs,
        locks,
        LeaderCommand(group, leader, runs, parts.reactions),
        Once(group, leader, runs),
        LockCommand(group.name, leader, locks),
        *([parts.reactions] if parts.reactions else []),
    )


def _arrivals(parts: Parts, jobs: OwnJobs) -> Arrivals | None:
    """None if this master does not cache grains, pillar and mine of minions."""
    if not parts.opts.get("minion_data_cache", True):
        return None
    arrivals = Arrivals(_refresh(jobs), grains_cache(parts.opts))
    parts.bus.add(arrivals)
    parts.noted.append(arrivals.notes)
    return arrivals


def _refresh(jobs: OwnJobs) -> Callable[[tuple[str, ...]], Awaitable[None]]:
    """Has minions refresh their mine, grains and pillar."""

    async def refresh(ids: tuple[str, ...]) -> None:
        for what in (REFRESH, MINE):
            await jobs.tell(JobSpec(what, ids=ids))

    return refresh


def _mines(parts: Parts, jobs: OwnJobs, arrivals: Arrivals | None) -> Mines:
    """Answers peers in any case; compares mines only if this master caches them."""
    mines = Mines(
        parts.links.lines,
        mine_cache(parts.opts),
        busy=arrivals.asks if arrivals else lambda _: False,
        publish=_refresh(jobs),
    )
    if arrivals:
        parts.bus.add(mines)
        parts.noted.append(mines.notes)
    return mines


def _together(tables: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge *tables*; no name may be in two of them."""
    found: dict[str, T] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
        found.update(table)
    return found
