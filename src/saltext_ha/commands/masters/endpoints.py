"""How minions reach and recognise each master of the group, as the masters themselves say."""

from __future__ import annotations

import functools
import re
import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common import master_key
from saltext_ha.common.errors import NO_SENSE, HaError, InvalidRecord
from saltext_ha.health import fitness
from saltext_ha.minion import binding
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.group import Group, read_each
from saltext_ha.transport import fingerprints
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

READING = "its key could not be read in time"
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}")


@dataclass(frozen=True)
class MinionEndpoint:
    """
    One master as minions see it.

    ``finger`` is the fingerprint of its key, ``sign_finger`` of its signing key; empty: it has
    none. ``workers`` and ``open_files`` are its resources for minions, ``max_minions`` is how many
    minions it accepts (0: any number). If it was not ``reached``, only its address is known, and
    its ports are taken to be those of this master.
    """

    name: str
    address: str
    request_port: int = binding.DEFAULT_REQUEST_PORT
    publish_port: int = binding.DEFAULT_PUBLISH_PORT
    finger: str = ""
    sign_finger: str = ""
    transport: str = "zeromq"
    workers: int = 0
    open_files: int = 0
    reached: bool = True
    max_minions: int = 0

    def to_wire(self) -> dict[str, Any]:
        """For a peer that asks."""
        told = asdict(self)
        del told["name"], told["reached"]  # the peer that asks knows them
        return told


def own(name: str, address: str, opts: Mapping[str, Any]) -> MinionEndpoint:
    """
    The endpoint of this master.

    :raises HaError: its keys cannot be read.
    """
    keys = master_key.describe(opts)
    for key in ("fingerprint", "sign_fingerprint"):
        if isinstance(keys[key], dict):
            raise HaError(str(keys[key]["unknown"]))
    return MinionEndpoint(
        name,
        address,
        int(opts.get("ret_port") or binding.DEFAULT_REQUEST_PORT),
        int(opts.get("publish_port") or binding.DEFAULT_PUBLISH_PORT),
        str(keys["fingerprint"] or ""),
        str(keys["sign_fingerprint"] or ""),
        str(opts.get("transport") or "zeromq"),
        _workers(opts),
        # The engine is a child of the master, which has raised the limit to max_open_files.
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        max_minions=int(opts.get("max_minions") or 0),
    )


def from_wire(name: str, raw: Mapping[str, Any]) -> MinionEndpoint:
    """
    The endpoint of the peer *name*, from its own description, checked as if from a stranger.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        host = str(raw["address"])
        if not _HOST.fullmatch(host):
            raise ValueError("no host")
        found = MinionEndpoint(
            name,
            host,
            int(raw["request_port"]),
            int(raw["publish_port"]),
            str(raw["finger"]),
            str(raw["sign_finger"]),
            str(raw["transport"]),
            int(raw["workers"]),
            int(raw["open_files"]),
            max_minions=int(raw["max_minions"]),
        )
        if not all(0 < port < 65536 for port in (found.request_port, found.publish_port)):
            raise ValueError("no port")
        fingers = filter(None, (found.finger, found.sign_finger))
        if not all(map(fingerprints.PATTERN.fullmatch, fingers)):
            raise ValueError("no fingerprint")
        if not found.transport.isalnum():
            raise ValueError("no transport")
        return found
    except NO_SENSE as exc:
        raise InvalidRecord(f"its answer makes no sense: {exc!r:.100}") from None


def _workers(opts: Mapping[str, Any]) -> int:
    """The number of worker threads; Salt 3008 can have them in several pools."""
    pools = opts.get("worker_pools")
    if opts.get("worker_pools_enabled") and isinstance(pools, Mapping) and pools:
        counts = [pool.get("worker_count") for pool in pools.values() if isinstance(pool, Mapping)]
        return sum(count for count in counts if isinstance(count, int))
    return int(opts.get("worker_threads") or 0)


class Endpoints:
    """The endpoints of all masters of the group. :param host: where others reach this one."""

    def __init__(self, group: Group, core: Core, opts: Mapping[str, Any], host: str) -> None:
        self._group, self._core = group, core
        self._opts, self._host = opts, host

    def for_peers(self) -> dict[str, Handler]:
        return {"endpoint": self._answer}

    async def all(self) -> tuple[list[MinionEndpoint], dict[str, str]]:
        """
        All masters by name, and why some could not be asked.

        :raises HaError: the keys of this master cannot be read.
        """
        answers, errors = await self._group.ask("endpoint")
        here = await self._own(fitness.HANGS)
        found = [here, *read_each(answers, errors, from_wire).values()]
        for name, peer in self._group.peers.items():
            if name in errors:
                host = str(urlsplit(peer.url).hostname)
                ports = here.request_port, here.publish_port
                found.append(MinionEndpoint(name, host, *ports, reached=False))
        return sorted(found, key=lambda endpoint: endpoint.name), errors

    async def _own(self, patience: float) -> MinionEndpoint:
        """
        :raises HaError: the keys of this master cannot be read, or not within *patience* seconds:
            they lie beside those of minions, on a file system that may hang.
        """
        read = functools.partial(own, self._group.name, self._host, self._opts)
        found = await self._core.glance(read, patience)
        if found is None:
            raise HaError(fitness.hangs(self._core.busy) or READING)
        return found

    async def _answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return (await self._own(self._group.timeout / 2)).to_wire()
