"""
The configuration by which a minion knows all masters of a group.

It is one file in ``minion.d``. The runner ``ha.minion_config``, the state ``ha.multi_master`` and
``deploy/install-minion.sh`` all write the same text for the same masters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import HaError
from saltext_ha.config.mapping import NAME as MASTER_NAME
from saltext_ha.config.watchdog import WatchdogSettings
from saltext_ha.minion.binding import DEFAULT_PUBLISH_PORT, DEFAULT_REQUEST_PORT, split_entry
from saltext_ha.minion.options import NAMES

NAME = "ha-masters.conf"
#: Our file begins with this line; a file that does not is never replaced.
MARK = "# Written for saltext-ha: the masters of this minion."
FAILOVER, HOT = TYPES = ("failover", "hot")
ALIVE = 30  # seconds
JITTER = int(WatchdogSettings.jitter)
ZEROMQ = "zeromq"
TRANSPORTS = (ZEROMQ, "tcp", "ws")  # ws: since 3007
DIGITS = 64
_HOST = re.compile(r"(?!-)[A-Za-z0-9._:%-]+")  # as in install-minion.sh


Master = tuple[str, int]
"""Host and request port."""


@dataclass(frozen=True)
class Wanted:
    """
    The wanted content of the file.

    ``publish_port`` is None if each master tells its own. ``alive``, and ``jitter`` of the
    watchdog, are in seconds. The minion recognises its masters by ``finger``, or if ``signed`` by
    its ``master_sign.pub``, or by nothing. ``transport`` and ``jitter`` are not written if they are
    the default of Salt or the watchdog. ``names`` are those of masters in the group.
    """

    masters: tuple[Master, ...]
    kind: str = FAILOVER
    publish_port: int | None = DEFAULT_PUBLISH_PORT
    alive: int = ALIVE
    failback: bool = False
    watchdog: bool = False
    finger: str = ""
    signed: bool = False
    transport: str = ZEROMQ
    jitter: int = JITTER
    names: tuple[tuple[str, Master], ...] = ()

    @property
    def request_port(self) -> int | None:
        """That of all masters; None if they have different ones."""
        ports = {port for _, port in self.masters}
        return ports.pop() if len(ports) == 1 else None

    def listed(self, master: Master) -> str:
        """A master as the minion lists it: with its port only if they have different ones."""
        return master[0] if self.request_port else joined(*master)


def wanted(
    masters: Any,
    *,
    type: Any = FAILOVER,
    publish_port: Any = DEFAULT_PUBLISH_PORT,
    alive: Any = ALIVE,
    failback: Any = False,
    watchdog: Any = False,
    finger: Any = "",
    signed: Any = False,
    transport: Any = ZEROMQ,
    jitter: Any = JITTER,
    master_names: Any = None,
) -> Wanted:
    """
    Make it from a user's values; hosts and ports are separated.

    :param masters: ``host`` or ``host:port``, port being the request port; a list of them.
    :param publish_port: None: each master tells its own, to a hot minion.
    :param jitter: whole seconds; without the watchdog only the default.
    :param master_names: a master's name in the group → one of *masters*; some may have none.
    :raises HaError: a value is invalid, or Salt would not do what is meant with it.
    """
    if type not in TYPES:
        raise HaError(f"type: {type!r}: takes failover or hot")
    if transport not in TRANSPORTS:
        raise HaError(f"transport: {transport!r}: takes {', '.join(TRANSPORTS)}")
    alive = _number("alive", alive)
    jitter = _number("jitter", jitter, 0, 3600)
    if publish_port is not None:
        publish_port = _number("publish_port", publish_port)
    elif type == FAILOVER:
        raise HaError(
            "publish_port: none is for type hot: Salt's check for a lost master looks at one port, "
            "so all masters of a failover minion must publish on the same"
        )
    for name, value in (("failback", failback), ("watchdog", watchdog), ("signed", signed)):
        if not isinstance(value, bool):
            raise HaError(f"{name}: {value!r}: takes True or False")
    if finger and signed:
        raise HaError("finger and signed exclude each other: masters that sign differ in their key")
    if jitter != JITTER and not watchdog:
        raise HaError("jitter is the watchdog's: it needs watchdog, too")
    if failback and type == HOT:
        raise HaError("failback is for type failover: a hot minion is with all its masters")
    known = _known(masters, type, publish_port)
    return Wanted(
        tuple(known),
        kind=str(type),
        publish_port=publish_port if len({port for _, port in known}) == 1 else None,
        alive=alive,
        failback=failback,
        watchdog=watchdog,
        finger=fingerprint(finger) if finger else "",
        signed=signed,
        transport=str(transport),
        jitter=jitter,
        names=tuple(_names(master_names or {}, known)),
    )


def _known(masters: Any, kind: str, publish_port: int | None) -> list[Master]:
    """*masters* of such a minion, checked."""
    if isinstance(masters, str):
        masters = [part.strip() for part in masters.split(",")]
    if not isinstance(masters, (list, tuple)) or not masters:
        raise HaError(f"masters: {masters!r}: takes a list of hosts")
    known: list[Master] = []
    for entry in masters:
        if not isinstance(entry, str):
            raise HaError(f"masters: {entry!r}: takes a host or host:port, as text")
        try:
            host, port = split_entry(entry, DEFAULT_REQUEST_PORT)
        except ValueError as exc:
            raise HaError(f"masters: {exc}") from None
        if not _HOST.fullmatch(host):
            raise HaError(f"masters: {entry!a}: that is no host")
        if port == (publish_port or DEFAULT_PUBLISH_PORT):
            raise HaError(
                f"masters: {entry}: {port} is the publish port; behind a host stands the request "
                f"port: write {host}, or {host}:{DEFAULT_REQUEST_PORT}"
            )
        if (host, port) in known:
            raise HaError(f"masters: {host} is named twice")
        known.append((host, port))
    ports = {port for _, port in known}
    twice = {host for host, _ in known if [other for other, _ in known].count(host) > 1}
    if twice and kind == HOT:
        raise HaError(
            f"masters: two of them at {sorted(twice)[0]}: a hot minion tells its masters apart by "
            "their host, and would send every answer to both. Give each an address of its own and "
            "all the same ports"
        )
    if len(ports) > 1 and kind == FAILOVER:
        raise HaError(
            "masters: they have different request ports; Salt does not find a master that is "
            "written as host:port in a failover minion's list again. Give each an address of its "
            "own and all the same ports"
        )
    return known


def _names(names: Any, masters: Collection[Master]) -> Iterator[tuple[str, Master]]:
    """Names with their masters, in the order of *masters*."""
    if not isinstance(names, Mapping):
        raise HaError(f"master_names: {names!r}: takes a mapping of names to masters")
    called: dict[Master, str] = {}
    for name, entry in names.items():
        if not isinstance(name, str) or not MASTER_NAME.fullmatch(name):
            raise HaError(f"master_names: {name!r}: is no name of a master (ha: name)")
        try:
            master = split_entry(str(entry), DEFAULT_REQUEST_PORT)
        except ValueError as exc:
            raise HaError(f"master_names: {name}: {exc}") from None
        if master not in masters:
            raise HaError(f"master_names: {name}: {entry} is none of masters")
        if master in called:
            raise HaError(f"master_names: {entry} is called {called[master]} and {name}")
        called[master] = name
    yield from ((called[master], master) for master in masters if master in called)


def fingerprint(text: Any) -> str:
    """
    A SHA-256 fingerprint as Salt compares it: pairs, small letters.

    :raises HaError: *text* is no fingerprint.
    """
    plain = re.sub(r"[:\s]", "", str(text)).lower()
    if not re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", plain):
        raise HaError(
            f"finger: {text!r}: is no SHA-256 fingerprint; salt-run ha.minion_config prints it"
        )
    return ":".join(plain[i : i + 2] for i in range(0, DIGITS, 2))


def options(wish: Wanted) -> dict[str, Any]:
    """The options in the order in which they are written."""
    failover = wish.kind == FAILOVER
    made: dict[str, Any] = {
        "master": [wish.listed(master) for master in wish.masters],
        "master_type": "failover" if failover else "str",
    }
    if wish.names:
        made[NAMES] = {name: wish.listed(master) for name, master in wish.names}
    if wish.request_port:
        made["master_port"] = wish.request_port
    if wish.publish_port:
        made["publish_port"] = wish.publish_port
    if wish.transport != ZEROMQ:
        made["transport"] = wish.transport
    if failover:
        # Salt forces it to 0, and logs that as CRITICAL.
        made["retry_dns"] = 0
        made["master_alive_interval"] = wish.alive
        # The watchdog goes back after the master has worked for a while, Salt at its first answer.
        made["master_failback"] = wish.failback and not wish.watchdog
        if made["master_failback"]:
            made["master_failback_interval"] = wish.alive
    elif wish.transport == ZEROMQ:
        # With it, Salt 3007 checks a master that came back every second from then on (HA219).
        made["zmq_monitor"] = False
    # Only these notice a connection whose packets are lost silently.
    idle, again = (5, 3) if wish.watchdog else (20, 5)
    made |= {"tcp_keepalive": True, "tcp_keepalive_idle": idle}
    made |= {"tcp_keepalive_intvl": again, "tcp_keepalive_cnt": 3}
    if wish.watchdog:
        if failover:
            made |= {"master_tries": -1, "auth_timeout": 10}
        made["engines"] = [{"ha_watchdog": {}}]
        ours: dict[str, Any] = {}
        if wish.jitter != JITTER:
            ours["jitter"] = wish.jitter
        if wish.failback:
            ours["failback"] = True
        if ours:
            made["ha"] = {"watchdog": ours}
    if wish.finger:
        made["master_finger"] = wish.finger
    elif wish.signed:
        made["verify_master_pubkey_sign"] = True
    return made


def text(found: Mapping[str, Any]) -> str:
    """The options *found*, as the content of the file."""
    return "\n".join([MARK, *_lines(found), ""])


def sls(wish: Wanted) -> str:
    """A state that manages that file."""
    plain = wish.request_port == DEFAULT_REQUEST_PORT

    def entry(master: Master) -> str:
        return master[0] if plain else joined(*master)

    state: dict[str, Any] = {
        "masters": [entry(master) for master in wish.masters],
        "master_names": {name: entry(master) for name, master in wish.names} or None,
        "type": wish.kind,
        "publish_port": wish.publish_port,
        "alive": wish.alive if wish.kind == FAILOVER else None,
        "failback": wish.failback or None,
        "watchdog": wish.watchdog or None,
        "finger": wish.finger or None,
        "signed": wish.signed or None,
        "transport": wish.transport if wish.transport != ZEROMQ else None,
        "jitter": wish.jitter if wish.jitter != JITTER else None,
    }
    lines = [
        f"    - {name}: {json.dumps(value)}"
        for name, value in state.items()
        # publish_port is never left out: null means that each master tells its own, and not 4505.
        if value is not None or name == "publish_port"
    ]
    return "\n".join(["masters of this minion:", "  ha.multi_master:", *lines, ""])


def _number(name: str, value: Any, least: int = 1, most: int = 65535) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise HaError(f"{name}: {value!r}: takes a whole number from {least} to {most}")
    return value


def joined(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if (bare_ip(host) and ":" in host) else f"{host}:{port}"


def _lines(
    found: Mapping[str, Any], indent: str = "", written: Callable[[str], str] = str
) -> Iterator[str]:
    """*found* as YAML. :param written: how a key is written."""
    for name, value in found.items():
        begin = f"{indent}{written(name)}:"
        if isinstance(value, Mapping):
            yield begin
            # Quoted: a master may be called "1" or "on".
            yield from _lines(value, f"{indent}  ", json.dumps if name == NAMES else str)
        elif isinstance(value, list):
            yield begin
            yield from (f"{indent}  - {_item(item)}" for item in value)
        else:
            # Hosts are quoted, whatever they look like, and whatever the master is called.
            yield f"{begin} {value if begin == 'master_type:' else json.dumps(value)}"


def _item(value: str | Mapping[str, Any]) -> str:
    """An entry of a list: a text, or an engine without settings."""
    if isinstance(value, str):
        return json.dumps(value)
    (name,) = value
    return f"{name}: {{}}"
