"""What minions need to know of each master: asked of the peers, for ``ha.minion_config``."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from saltext_ha import binding, drop_in, master_key
from saltext_ha.errors import HaError, InvalidRecord
from saltext_ha.lint import check
from saltext_ha.lint.model import INFO
from saltext_ha.peering.trust import Peer
from saltext_ha.service.group import Command, Group, PeerHandler

SHARE = (
    "salt-run ha.invite share_master_key=True on the master whose key the minions know, ha.join "
    "with that token and force=True on the others, then restart salt-master there"
)
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_FINGER = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){31}")


@dataclass(frozen=True)
class Door:
    """
    One master as minions meet it.

    ``finger`` is that of its key, ``sign_finger`` that of its signing key; empty: it has none.
    ``workers`` and ``open_files`` are what it has for them. None of it is known of a master that
    was not ``reached``, but the address.
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

    def to_wire(self) -> dict[str, Any]:
        """For a peer that asks."""
        names = ("address", "request_port", "publish_port", "finger", "sign_finger", "transport")
        return {name: getattr(self, name) for name in (*names, "workers", "open_files")}


def door(name: str, address: str, opts: Mapping[str, Any]) -> Door:
    """
    This master.

    :raises HaError: its keys cannot be read.
    """
    keys = master_key.describe(opts)
    for key in ("fingerprint", "sign_fingerprint"):
        if isinstance(keys[key], dict):
            raise HaError(str(keys[key]["unknown"]))
    return Door(
        name,
        address,
        int(opts.get("ret_port") or binding.DEFAULT_REQUEST_PORT),
        int(opts.get("publish_port") or binding.DEFAULT_PUBLISH_PORT),
        str(keys["fingerprint"] or ""),
        str(keys["sign_fingerprint"] or ""),
        str(opts.get("transport") or "zeromq"),
        _workers(opts),
        # The engine is a child of the master, which has raised it to max_open_files.
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def from_wire(name: str, raw: Mapping[str, Any]) -> Door:
    """
    The peer *name* as it describes itself; read as if a stranger had sent it.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        host = str(raw["address"])
        if not _HOST.fullmatch(host):
            raise ValueError("no host")
        found = Door(
            name,
            host,
            int(raw["request_port"]),
            int(raw["publish_port"]),
            str(raw["finger"]),
            str(raw["sign_finger"]),
            str(raw["transport"]),
            int(raw["workers"]),
            int(raw["open_files"]),
        )
        if not all(0 < port < 65536 for port in (found.request_port, found.publish_port)):
            raise ValueError("no port")
        if not all(_FINGER.fullmatch(f) for f in (found.finger, found.sign_finger) if f):
            raise ValueError("no fingerprint")
        if not found.transport.isalnum():
            raise ValueError("no transport")
        return found
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"its answer makes no sense: {exc!r:.100}") from None


def _workers(opts: Mapping[str, Any]) -> int:
    """Its worker threads; 3008 can have them in several pools."""
    pools = opts.get("worker_pools")
    if opts.get("worker_pools_enabled") and isinstance(pools, Mapping) and pools:
        counts = [pool.get("worker_count") for pool in pools.values() if isinstance(pool, Mapping)]
        return sum(count for count in counts if isinstance(count, int))
    return int(opts.get("worker_threads") or 0)


class Doors:
    """The masters of the group as minions meet them, and the drop-in that follows from it."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of this."""
        return {"minion_config": self.minion_config}

    def for_peers(self) -> dict[str, PeerHandler]:
        """What peers may ask."""
        return {"door": self._door}

    async def all(self) -> tuple[list[Door], dict[str, str]]:
        """All masters by name, and why some could not be asked."""
        service = self._group.service
        answers, errors = await self._group.ask("door", {}, service.config.peer_timeout)
        found = [await asyncio.to_thread(self._own)]
        for name, raw in answers.items():
            try:
                found.append(from_wire(name, raw))
            except HaError as exc:
                errors[name] = str(exc)
        for name, peer in service.trust.peers().items():
            if name in errors:
                found.append(Door(name, str(urlsplit(peer.url).hostname), reached=False))
        return sorted(found, key=lambda door: door.name), errors

    async def minion_config(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.minion_config``."""
        doors, errors = await self.all()
        return await asyncio.to_thread(answer, doors, errors, payload)

    def _own(self) -> Door:
        service = self._group.service
        return door(service.config.name, service.config.address, service.opts)

    async def _door(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        try:
            return (await asyncio.to_thread(self._own)).to_wire()
        except HaError as exc:
            raise InvalidRecord(str(exc)) from None  # so that the peer hears why


def answer(
    doors: list[Door], errors: Mapping[str, str], payload: Mapping[str, Any]
) -> dict[str, Any]:
    """
    The answer of ``ha.minion_config``.

    :param doors: all masters; those that were not reached with their address alone.
    :raises HaError: no configuration would do for these masters; says what mends it.
    """
    known = [each for each in doors if each.reached]
    kind = payload.get("type", drop_in.FAILOVER)
    signed = _signed(known, kind)
    # A master that is away is taken to have the port of the others: a note says so.
    port = known[0].request_port
    entries = [
        drop_in.joined(each.address, each.request_port if each.reached else port) for each in doors
    ]
    wish = drop_in.wanted(
        entries,
        kind,
        _publish_port(known, str(kind)),
        payload.get("alive", drop_in.ALIVE),
        payload.get("failback", False),
        payload.get("watchdog", False),
        "" if signed else known[0].finger,
        signed,
    )
    found = drop_in.options(wish)
    transports = {each.transport for each in known}
    if len(transports) > 1:
        raise HaError(f"the masters speak different transports: {_shown(known, 'transport')}")
    if transports != {"zeromq"}:
        found["transport"] = transports.pop()
    notes = [
        f"{name} could not be asked ({why}): that its ports and its key are those of the others "
        "is not known"
        for name, why in sorted(errors.items())
    ]
    if signed:
        sign = known[0].sign_finger
        notes.append(
            "the minion needs the masters' master_sign.pub in its pki_dir first; fingerprint "
            f"{sign}"
        )
    findings = [f for f in _lint(known, found) if f["severity"] != INFO]
    return {
        "kind": "minion_config",
        "options": found,
        "text": drop_in.text(found),
        "sls": drop_in.sls(wish),
        "masters": [each.name for each in doors],
        "sign_finger": known[0].sign_finger if signed else "",
        "notes": notes,
        "findings": findings,
        "unknown": dict(errors),
        "retcode": 2 if errors else 1 if findings else 0,
    }


def _signed(known: list[Door], kind: Any) -> bool:
    """
    Whether minions know these masters by their signature instead of one key.

    :raises HaError: neither does for all of them.
    """
    if any(not each.finger for each in known):
        without = ", ".join(each.name for each in known if not each.finger)
        raise HaError(f"{without}: has no master key yet; start salt-master there once")
    one_key = len({each.finger for each in known}) == 1
    signing = {each.sign_finger for each in known}
    if signing == {""}:
        if one_key:
            return False
        raise HaError(
            f"the masters have different keys ({_shown(known, 'finger')}): a master_finger would "
            f"let the minion to one of them only. {SHARE}"
        )
    if len(signing) > 1:
        raise HaError(
            f"not all masters sign with one key ({_shown(known, 'sign_finger')}): a minion that "
            "verifies refuses those that do not, and the other way round. salt-run ha.invite "
            "share_signing_key=True, and master_sign_pubkey the same on all"
        )
    if kind == drop_in.HOT and not one_key:
        raise HaError(
            f"a hot minion keeps one master key, and these have different ones "
            f"({_shown(known, 'finger')}), signed or not: type=failover, or {SHARE}"
        )
    return True


def _publish_port(known: list[Door], kind: str) -> int | None:
    ports = {each.publish_port for each in known}
    if len(ports) == 1:
        return ports.pop()
    if kind == drop_in.HOT:
        return None
    raise HaError(
        f"the masters publish on different ports ({_shown(known, 'publish_port')}): a failover "
        "minion looks for its master at one port. The same publish_port on all masters, each with "
        "an address of its own; or type=hot"
    )


def _shown(known: list[Door], what: str) -> str:
    return ", ".join(f"{each.name} {str(getattr(each, what))[:14] or '-'}" for each in known)


def _lint(known: list[Door], found: Mapping[str, Any]) -> list[check.Finding]:
    """What the rules of ``ha.lint`` say about that file on a minion that has nothing else."""
    import salt.config
    import salt.version

    told: dict[tuple[str, int], int] = {}
    addresses: dict[str, frozenset[str] | None] = {}
    for each in known:
        try:
            addresses[each.address] = binding.resolve(each.address)
        except (OSError, UnicodeError):
            addresses[each.address] = None
        for ip in addresses[each.address] or ():
            told[ip, each.request_port] = each.publish_port
    version = tuple(int(part) for part in salt.version.__saltstack_version__.info[:2])
    defaults = salt.config.DEFAULT_MINION_OPTS.copy()
    return check.inspect("minion", drop_in.facts(found, told, addresses, version, defaults))
