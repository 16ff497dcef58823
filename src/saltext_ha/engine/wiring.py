"""Which parts answer operators and peers: all of them are made and registered here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from saltext_ha.commands.cmd import Commands
from saltext_ha.commands.consistency_check import ConsistencyCheck, OwnFacts
from saltext_ha.commands.decisions import Decisions
from saltext_ha.commands.differences import Differences
from saltext_ha.commands.drain import Drain
from saltext_ha.commands.endpoints import Endpoints
from saltext_ha.commands.failover_safe import FailoverSafe
from saltext_ha.commands.history import HistoryCommand
from saltext_ha.commands.linting import Linting
from saltext_ha.commands.members import Members
from saltext_ha.commands.minion_config import MinionConfig
from saltext_ha.commands.minions import Bound
from saltext_ha.commands.proxy_config import ProxyConfig
from saltext_ha.commands.reachability import Reachability
from saltext_ha.commands.removal import Removal
from saltext_ha.commands.rewriting import Rewriting
from saltext_ha.commands.where import Where
from saltext_ha.minions.jobs import Jobs
from saltext_ha.sync.group import Command
from saltext_ha.sync.server import SyncServer
from saltext_ha.transport.listener import Handler

if TYPE_CHECKING:
    from saltext_ha.engine.service import Service

T = TypeVar("T")


class Parts(NamedTuple):
    """
    ``commands`` are what the control socket answers, ``peer_handlers`` what peers may ask; the
    others are used by more than those.
    """

    commands: dict[str, Command]
    peer_handlers: dict[str, Handler]
    jobs: Jobs
    bound: Bound
    checking: ConsistencyCheck


def make(service: Service) -> Parts:
    """Those of the master that *service* runs on; inside the event loop, once its core is there."""
    group = service.group
    jobs = Jobs(group)
    bound = Bound(group, jobs)
    own_facts = OwnFacts(group)
    checking = ConsistencyCheck(group, own_facts)
    drain, where = Drain(group, jobs, bound), Where(group, jobs, bound)
    linting, members, removal = Linting(group), Members(group), Removal(group)
    rewriting = Rewriting(group)
    endpoints, proxy = Endpoints(group), ProxyConfig(group)
    safe = FailoverSafe(group, jobs, endpoints, checking)
    commands = (
        service.views,
        checking,
        Differences(group),
        linting,
        Decisions(group),
        members,
        removal,
        rewriting,
        HistoryCommand(group),
        bound,
        Reachability(jobs, bound),
        where,
        Commands(group, jobs, where),
        drain,
        MinionConfig(group, endpoints),
        safe,
        proxy,
    )
    for_peers = (
        SyncServer(service),
        service.retention,
        service.shared_store,
        group,
        linting,
        members,
        removal,
        own_facts,
        jobs,
        bound,
        drain,
        endpoints,
        safe,
        proxy,
    )
    return Parts(
        _together(part.commands() for part in commands),
        _together([service.membership.handlers(), *(part.for_peers() for part in for_peers)]),
        jobs,
        bound,
        checking,
    )


def _together(tables: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """All of them in one; no name may stand for two things."""
    found: dict[str, T] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
        found.update(table)
    return found
