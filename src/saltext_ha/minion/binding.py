"""
Which masters does this minion know, and to which of them is it connected?

The answer rests on evidence: the established TCP connections of the minion's own process, compared
with the ports that each master told when the minion authenticated. A connection proves only that
the master's host still acknowledges packets; a ping (:mod:`saltext_ha.minion.pings`) shows that the
master itself works (a stopped master keeps its connections). Unknown values are None with a note,
never a guess.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import reason_of
from saltext_ha.minion.tcp_links import Link, TcpLinks

DEFAULT_PUBLISH_PORT = 4505
DEFAULT_REQUEST_PORT = 4506
# master_type values with which a minion moves from master to master during its life
MOVING = ("failover", "distributed", "func")


@dataclass(frozen=True)
class Running:
    """
    A minion's running configuration, as plain values.

    ``entries`` are the masters as the configuration has them, in order; ``listed``: they are a
    list. ``host``, ``ip`` and ``port`` belong to the master that this call is about (hot-hot: the
    one that sent the job; salt-call: the one salt-call spoke to); None without one.
    ``publish_port`` is the minion's own setting, valid for all masters; ``told`` maps (ip, request
    port) to the publish port that this master told at authentication. ``caller`` is True in
    salt-call: its choice of a master says nothing about the daemon's. ``sent_by`` is the id that
    the master sent with the job, if any (``master_id`` in its configuration). ``names`` maps names
    of masters in their group to their entries, if the minion was told.
    """

    entries: tuple[str, ...]
    listed: bool = False
    master_type: str = "str"
    default_port: int = DEFAULT_REQUEST_PORT
    host: str | None = None
    ip: str | None = None
    port: int | None = None
    publish_port: int | None = None
    told: Mapping[Link, int] = field(default_factory=dict)
    caller: bool = False
    sent_by: str | None = None
    note: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """``master_type``, except that a hot-hot minion (a list, type str) is called ``list``."""
        return "list" if self.master_type == "str" and self.listed else self.master_type

    @property
    def asked(self) -> bool:
        """Whether ``host``, ``ip`` and ``port`` are those of the current master."""
        return self.ip is not None and not (self.caller and self.master_type in MOVING)

    def watchdog_of(self, entry: str) -> str:
        """
        The name of the watchdog of the master *entry*; empty if the minion has one for all. A
        function may return several masters; then the minion is bound to all of them.
        """
        return entry if self.type in ("list", "func") else ""

    def places(self) -> Iterator[tuple[str, int]]:
        """Host and request port of each configured master, without invalid entries."""
        for entry in self.entries:
            with contextlib.suppress(ValueError):
                yield split_entry(entry, self.default_port)

    def request_ports(self) -> set[int]:
        """The request ports of all configured masters."""
        return {self.default_port, *(port for _, port in self.places())}


@dataclass(frozen=True)
class SeenMaster:
    """
    One master as this minion sees it. ``configured`` is its entry, None if the configuration no
    longer has it; ``ip`` is the address that the minion uses.
    """

    configured: str | None
    host: str | None
    port: int | None
    ips: frozenset[str] = frozenset()
    publish_port: int | None = None
    current: bool = False
    connected: bool | None = None
    note: str | None = None
    ip: str | None = None

    @property
    def in_use(self) -> frozenset[str]:
        """The address in use, as others of a name may be another master's; else all of them."""
        return frozenset({self.ip}) if self.ip else self.ips

    def is_asked(self, links: TcpLinks) -> bool:
        """Whether a connection leads to its request port: the minion authenticated there."""
        return any((ip, self.port) in (links.seen or ()) for ip in self.ips)

    def row(self) -> dict[str, Any]:
        """The plain dictionary that ``ha.masters`` returns for this master."""
        names = ("ip", "port", "publish_port", "configured", "current", "connected")
        answer = {"address": self.host} | {name: getattr(self, name) for name in names}
        return answer | ({"note": self.note} if self.note else {})


def split_entry(entry: str, default_port: int) -> tuple[str, int]:
    """
    Split a ``master:`` entry into host and request port, as Salt reads it.

    Accepts ``name``, ``name:port``, IPv4 and IPv6 addresses, ``[IPv6]:port``; an IPv6 address comes
    out in its short form.

    :raises ValueError: the entry is invalid; the message says why.
    """
    host, port = entry.strip(), ""
    wrong = f"{entry!r} is no host, host:port or [IPv6]:port"
    if "/" in host or any(char.isspace() for char in host):
        raise ValueError(wrong)
    if host.startswith("["):
        host, closed, rest = host[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(wrong)
        port = rest[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host:
        raise ValueError(wrong)
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{entry!r}: {port!r} is no port; write host:{DEFAULT_REQUEST_PORT}")
    # Salt calls a master by the short form of its address, also in events (parse_host_port).
    with contextlib.suppress(ValueError):
        host = ipaddress.ip_address(host).compressed
    return host, int(port) if port else default_port


def written(entries: Iterable[str], default_port: int, host: str, port: int) -> str | None:
    """The entry that means the master at *host* and *port*, as Salt calls it; None if none does."""
    for entry in entries:
        with contextlib.suppress(ValueError):
            if split_entry(entry, default_port) == (host, port):
                return entry
    return None


def resolve(host: str) -> frozenset[str]:
    """All addresses of *host*, in canonical form. :raises OSError: the name does not resolve."""
    literal = bare_ip(host)
    if literal:
        return frozenset({literal})
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(ip for info in found if (ip := bare_ip(str(info[4][0]))))


def resolved(host: str) -> frozenset[str]:
    """:func:`resolve`; empty if the name does not resolve."""
    try:
        return resolve(host)
    except (OSError, UnicodeError):  # UnicodeError: it is no possible name
        return frozenset()


def own_names() -> frozenset[str]:
    """The names of this machine, which it may know by a loopback address only."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def told_ports(creds_map: Mapping[Any, Any]) -> dict[Link, int]:
    """
    ``{(ip, request port): publish port}`` from Salt's map of credentials.

    *creds_map* is ``salt.crypt.AsyncAuth.creds_map``: one entry per master that this process has
    authenticated with. Its keys are tuples which contain the master's ``tcp://ip:port``.
    """
    told = {}
    for key, creds in list(creds_map.items()):  # Salt may add to it meanwhile
        uri = next((str(part) for part in key if str(part).startswith("tcp://")), "")
        address, _, port = uri.removeprefix("tcp://").rpartition(":")
        ip = bare_ip(address)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if ip:
                told[ip, int(port)] = int(creds["publish_port"])
    return told


def locate(running: Running) -> list[SeenMaster]:
    """
    The configured masters in order, each with its addresses and publish port if known.

    The master that this call is about is marked ``current``; it comes last, with ``configured``
    None, when the configuration does not name it (any more).
    """
    masters = [_locate(entry, running) for entry in running.entries]
    if running.ip is None:
        return masters
    here = SeenMaster(None, running.host, running.port, frozenset({running.ip}), current=True)
    here = replace(here, publish_port=_publish_port(here, running))
    index = _index(masters, here)
    if index is None:
        return [*masters, replace(here, note="not in the minion's configuration as it is now")]
    # The address that the minion really uses; the name may have others, or new ones. Salt-call's
    # address says nothing about the minion's.
    ips = here.ips | (masters[index].ips if running.caller else frozenset())
    masters[index] = replace(here, ips=ips, configured=masters[index].configured)
    return masters


def _locate(entry: str, running: Running) -> SeenMaster:
    try:
        host, port = split_entry(entry, running.default_port)
    except ValueError as exc:
        return SeenMaster(entry, None, None, note=str(exc))
    if running.ip and not running.caller and (host, port) == (running.host, running.port):
        return SeenMaster(entry, host, port)  # resolved by Salt itself already
    try:
        found = SeenMaster(entry, host, port, resolve(host))
    except (OSError, UnicodeError) as exc:  # UnicodeError: it is no possible name
        return SeenMaster(entry, host, port, note=f"{host} does not resolve: {reason_of(exc)}")
    return replace(found, publish_port=_publish_port(found, running))


def _index(masters: list[SeenMaster], here: SeenMaster) -> int | None:
    every = list(enumerate(masters))
    written = [i for i, each in every if (each.host, each.port) == (here.host, here.port)]
    resolved = [i for i, each in every if each.port == here.port and each.ips & here.ips]
    return next(iter(written + resolved), None)


def _publish_port(master: SeenMaster, running: Running) -> int | None:
    if running.publish_port:
        return running.publish_port
    told = {running.told.get((ip, master.port or 0)) for ip in master.ips} - {None}
    return told.pop() if len(told) == 1 else None


def judge(master: SeenMaster, links: TcpLinks, running: Running) -> SeenMaster:
    """*master* with ``connected`` and ``ip`` set by *links*, or a note why it is unknown."""
    if not master.ips:
        return master  # a note says why its address is unknown
    judged = _judge(master, links, running)
    return replace(judged, ip=_used(judged, links))


def _used(master: SeenMaster, links: TcpLinks) -> str | None:
    """The only address connected at the publish port, or at the request port, or known; or None."""
    for port in (master.publish_port, master.port):
        ips = {ip for ip in master.ips if (ip, port) in (links.seen or ())}
        if len(ips) == 1:
            return ips.pop()
    return next(iter(master.ips)) if len(master.ips) == 1 else None


def _judge(master: SeenMaster, links: TcpLinks, running: Running) -> SeenMaster:
    if links.seen is None:
        return _noted(master, links.note)
    ports = {port for ip, port in links.seen if ip in master.ips}
    if master.publish_port:
        return replace(master, connected=master.publish_port in ports)
    # This process never authenticated with it, so its publish port is unknown (salt-call knows only
    # one master's). Ports of another master on the same address prove nothing.
    for (ip, port), publish_port in running.told.items():
        if ip in master.ips:
            ports -= {port, publish_port}
    ports -= running.request_ports()
    if not ports:
        gone = replace(master, connected=False)
        return _noted(gone, "no connection that could be to its publisher; the port is unknown")
    usual = ports & {DEFAULT_PUBLISH_PORT, *running.told.values()}
    if len(usual) == 1:
        return replace(master, connected=True, publish_port=usual.pop())
    listing = ", ".join(map(str, sorted(ports)))
    return _noted(
        master, f"its publish port is unknown; the minion is connected to port {listing} there"
    )


def _noted(master: SeenMaster, note: str | None) -> SeenMaster:
    return replace(master, note="; ".join(filter(None, (master.note, note))) or None)


def masters(running: Running, links: TcpLinks) -> list[SeenMaster]:
    """
    All masters of this minion in configured order, judged, at most one of them ``current``.

    That is the master that this call is about; without one, the master that the minion is bound to.
    """
    if running.master_type == "disable":
        return []
    judged = [judge(master, links, running) for master in locate(running)]
    if running.asked:
        return judged
    only = _bound(judged, links, running)
    return [
        replace(master, current=master is only)
        for master in judged
        if master.configured is not None or master is only
    ]


def _bound(judged: list[SeenMaster], links: TcpLinks, running: Running) -> SeenMaster | None:
    """
    The master at whose request port the minion has a connection: it authenticated there, while its
    connection to a publisher may lead to another master. If that is not clear, or for hot-hot, the
    only master to whose publisher it is connected.
    """
    asked = [each for each in judged if each.is_asked(links)]
    both, heard = ([each for each in group if each.connected] for group in (asked, judged))
    for group in (heard,) if running.type == "list" else (both, asked, heard):
        if are_one(group):
            return group[0]
    return None


def are_one(found: Sequence[SeenMaster]) -> bool:
    """Whether *found*, judged, are one master; the configuration may have it under two names."""
    places = {(each.ip, each.port) for each in found}
    return len(found) == 1 or (len(places) == 1 and found[0].ip is not None)


def current_master(running: Running, links: TcpLinks) -> tuple[dict[str, Any], SeenMaster | None]:
    """The answer of ``ha.current_master``, and the master that it describes (None: unknown)."""
    known = masters(_narrowed(running), links)
    current = next((master for master in known if master.current), None)
    nowhere = bool(known) and all(master.connected is False for master in known)
    answer: dict[str, Any] = {
        "kind": "current_master",
        "address": current.host if current else None,
        "ip": current.ip if current else None,
        "port": current.port if current else None,
        "publish_port": current.publish_port if current else None,
        "id": running.sent_by if current else None,
        "type": running.type,
        "masters": list(running.entries),
        "connected": current.connected if current else (False if nowhere else None),
    }
    note = current.note if current else _why_unknown(running, links, known)
    note = "; ".join(filter(None, (running.note, note)))
    return answer | ({"note": note} if note else {}), current


def _narrowed(running: Running) -> Running:
    # Do not wait for a name service about masters that were not asked for.
    host, port = str(running.host), running.port or 0
    entry = written(running.entries, running.default_port, host, port) if running.asked else None
    return replace(running, entries=(entry,)) if entry else running


def _why_unknown(running: Running, links: TcpLinks, known: list[SeenMaster]) -> str | None:
    if running.master_type == "disable":
        return "master_type is disable: this minion connects to no master"
    if not running.entries:
        return None if running.note else "no master is configured"
    if links.seen is None:
        return links.note
    bound = [str(master.configured) for master in known if master.connected]
    if bound:
        return f"connected to {', '.join(bound)}; none of these sent this job: see ha.masters"
    if all(master.connected is False for master in known):
        return "the running minion is connected to none of its masters"
    return "; ".join(f"{each.configured}: {each.note}" for each in known if each.note)
