"""
The ``ha:`` mapping of the master configuration, parsed once into frozen values; nothing starts with
half a configuration.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common import cluster, validators
from saltext_ha.common.errors import ConfigError
from saltext_ha.common.validators import flag, number, setting, whole
from saltext_ha.config import consistency as settings
from saltext_ha.config import engines, health, leader, once, secret, status, trees

DEFAULT_PEER_PORT = 4530
RESTART = ("systemctl", "--no-block", "restart", "salt-master")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        # YAML: 1, 007, yes, off.
        other = "; what YAML may take for a number or for true or false stands in quotes"
        raise ValueError(
            "takes at most 64 letters, digits, '.', '_' and '-', beginning with a letter or digit"
            + (other if isinstance(value, (int, float)) else "")
        )
    return value


def _command(value: Any) -> tuple[str, ...]:
    if value is False:
        return ()
    words = validators.words(value) if isinstance(value, str) else []
    if not words:
        raise ValueError("takes a command as one text, without a shell, or false")
    return tuple(words)


@dataclass(frozen=True, kw_only=True)
class HaConfig:
    """
    All that the engine and the runner read from ``ha:``. Durations are in seconds, except that
    ``keep_…`` are days. docs/configuration.md is made from this text: a line for each key.

    :ivar name: what the group calls this master; the identity is its certificate. By default the
        master's id.
    :ivar group: must be the same on all masters; a token works for its group only.
    :ivar mode: ``observe`` compares and reports, and writes nothing to the key store until
        ``salt-run ha.resume``.
    :ivar repair: with ``cluster_id`` and isolated file systems: write the key store, too; see
        [Salt's own cluster](native-cluster.md).
    :ivar address: where peers reach this master. By default ``listen_host``; where that is
        ``0.0.0.0`` or ``::``, the host's full name.
    :ivar port: of the listener for peers.
    :ivar listen_host: the address it listens on; ``::`` is all addresses, those of IPv4, too. By
        default Salt's ``interface``.
    :ivar state_dir: a folder for identity, pinned peers and ``replica.db`` alone; it is closed to
        other users. Back it up with the keys. By default ``<pki_dir>/ha``.
    :ivar control_socket: where the engine answers the runner.
    :ivar sync_interval: seconds between two comparisons of digests with a peer.
    :ivar scan_interval: seconds between two full passes over the key store; changes are normally
        seen at once. For key folders it is up to ten times as long where a pass would cost more
        than a twentieth of a percent of a processor (100 000 keys: about every 10 minutes).
    :ivar peer_timeout: a peer that has not answered after so many seconds is ``unknown``.
    :ivar hold_minimum: more accepted or rejected keys than this, and than ``hold_fraction`` of
        them, gone within a minute without ``salt-key`` or its wheel, are
        [held](troubleshooting.md#held).
    :ivar hold_fraction: the same, as a part of all keys in that state.
    :ivar pending_limit: how many new, undecided minions are told to the other masters. Further ones
    wait in Salt's own folder until there is room; ``ha.status`` says so.
        Minions that are known already, or that you accept or reject, do not count.
    :ivar pending_rate: the same, within a minute. It does not count minions that are there when
        the engine starts.
    :ivar keep_tombstones: days for which it is remembered that a key was deleted; longer while a
    master is down, is paused, or observes.
    :ivar masters: ``[https://10.0.0.1:4530, …]``: addresses of possible members, the same on all;
    with the
        secret, [they join each other](tutorials/unattended.md).
    :ivar secret: a file, of mode 0600, with at least 32 characters (``openssl rand -hex 32``);
        or ``SALT_HA_SECRET`` in the environment. Every master that knows it may join.
    :ivar share_master_key: hand the master key to a master that joins by the secret.
    :ivar commands: whether this master publishes jobs of ``ha.cmd`` that were started on another
        one; [what that means](security.md#jobs-for-peers).
    :ivar share_mines: keep the caches of mines and grains on all masters the same, so that
        ``mine.get`` finds [the minions of all masters](all-minions.md#mines).
    :ivar keep_history: days after which lines of ``ha.history`` are dropped; the last one of a key
    is kept as long as the key.
    :ivar max_members: masters in the group, including this one; more are not admitted, no matter
    which master introduces them.
    :ivar minions_per_worker: how many minions ``ha.failover_safe`` expects one worker thread of a
    master to serve.
    :ivar consistency: the check that [the masters are the same](consistency.md).
    :ivar health: what the engine asks its own master, and how often; ``false``: nothing.
    :ivar leader: which master runs [what runs once](once.md); ``false``: this one never does.
    :ivar once: what else [runs once](once.md), on the leader.
    :ivar status: the [status page](status-page.md), ``/ready`` and ``/metrics``; ``false``: none.
    :ivar trees: [folders that all masters serve the same](trees.md).
    :ivar restart: the command by which ``ha.restart_masters`` restarts this master, run by
    salt-master's user, who [may need a rule](troubleshooting.md#systemd-takes-a-rule-for-its-user);
        ``false``: it may not be restarted.
    :ivar peers: ``[{name: m2, url: https://10.0.0.2:4530}]``: a member that is called at another
    URL than it says.
    """

    name: str = setting(_name)
    group: str = setting(_name, "default")
    mode: str = setting(validators.one_of("enforce", "observe"), "enforce")
    address: str = setting(validators.host)
    port: int = setting(whole(1, 65535), DEFAULT_PEER_PORT)
    listen_host: str = setting(validators.host)
    state_dir: Path = setting(validators.path)
    secret: bytes | None = setting(validators.path, None, file=True)
    share_master_key: bool = setting(flag, False)
    commands: bool = setting(flag, True)
    share_mines: bool = setting(flag, False)
    sync_interval: float = setting(number(0.1, 3600), 3.0)
    scan_interval: float = setting(number(1, 86400), 60.0)
    peer_timeout: float = setting(number(0.1, 300), 5.0)
    hold_minimum: int = setting(whole(0, 1_000_000), 10)
    hold_fraction: float = setting(number(0, 1), 0.05)
    pending_limit: int = setting(whole(0, 1_000_000), 10_000)
    pending_rate: int = setting(whole(1, 1_000_000), 1_000)
    keep_tombstones: float = setting(number(0, 36500), 30.0)
    keep_history: float = setting(number(1, 36500), 365.0)
    max_members: int = setting(whole(2, 1000), 64)
    minions_per_worker: int = setting(whole(1, 1_000_000), 200)
    restart: tuple[str, ...] = setting(_command, RESTART)
    repair: bool = setting(flag, False)
    masters: tuple[str, ...] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    """Name → URL."""
    consistency: settings.ConsistencySettings = field(default_factory=settings.ConsistencySettings)
    health: health.HealthSettings | None = field(default_factory=health.HealthSettings)
    leader: leader.LeaderSettings | None = field(default_factory=leader.LeaderSettings)
    once: once.OnceSettings = field(default_factory=once.OnceSettings)
    status: status.StatusSettings | None = field(default_factory=status.StatusSettings)
    trees: tuple[trees.Tree, ...] = ()
    control_socket: Path
    source: str = field(default="the master configuration", compare=False)
    has_engine: bool = field(default=True, compare=False)
    """Whether ``engines:`` has the engine ``ha``."""

    @property
    def url(self) -> str:
        """The URL under which peers reach this master."""
        return make_url(self.address, self.port)


def make_url(host: str, port: int) -> str:
    """``https://host:port``, in small letters, with brackets around an IPv6 address."""
    host = host.lower()
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def check_url(value: Any) -> str:
    """
    Return *value* if it is ``https://host:port``.

    :raises ValueError: says what is wrong with it and what to write instead.
    """
    if not isinstance(value, str) or not value:
        raise ValueError("write https://host:port")
    if "://" not in value:
        raise ValueError(f"has no scheme; write {_with_scheme(value.split('/')[0])}")
    parts = urlsplit(value)
    if parts.scheme != "https":
        raise ValueError(f"scheme {parts.scheme!r} is not spoken between peers; write https://…")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port:
        raise ValueError(f"needs a host and a port; write https://host:{DEFAULT_PEER_PORT}")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("has a host that cannot be looked up") from None
    if not parts.hostname.isprintable() or " " in parts.hostname:
        raise ValueError("has a host that cannot be looked up")
    if parts.path not in ("", "/") or parts.query or parts.username:
        raise ValueError("takes a host and a port only; write https://host:port")
    return make_url(parts.hostname, port)


def _with_scheme(text: str) -> str:
    """The URL meant by ``host``, ``host:port`` or an IP address alone."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal()) or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PEER_PORT)
    try:
        return check_url(make_url(validators.host(host), int(port)))
    except ValueError:
        return "https://host:port"


def _masters(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(": takes a list of https://host:port")
    urls: list[str] = []
    for index, entry in enumerate(value):
        where = f"[{index}]: {entry!r}"
        try:
            url = check_url(entry)
        except ValueError as exc:
            raise ValueError(f"{where} {exc}") from None
        if url in urls:
            raise ValueError(f"{where} stands twice")
        urls.append(url)
    return tuple(urls)


def _peers(value: Any) -> dict[str, str]:
    if not isinstance(value, list):
        raise ValueError(": takes a list of {name: …, url: …}")
    peers: dict[str, str] = {}
    for index, entry in enumerate(value):
        where = f"[{index}]"
        if not isinstance(entry, Mapping) or set(entry) != {"name", "url"}:
            raise ValueError(f"{where}: {entry!r} takes exactly the keys name and url")
        try:
            name = _name(entry["name"])
        except ValueError as exc:
            raise ValueError(f"{where}.name: {entry['name']!r} {exc}") from None
        if name in peers:
            raise ValueError(f"{where}.name: {name!r} stands twice")
        try:
            peers[name] = check_url(entry["url"])
        except ValueError as exc:
            raise ValueError(f"{where}.url: {entry['url']!r} {exc}") from None
    return peers


_PARTS: dict[str, Callable[[Any], Any]] = {
    "masters": _masters,
    "peers": _peers,
    "consistency": settings.parse,
    "health": health.parse,
    "leader": leader.parse,
    "once": once.parse,
    "status": status.parse,
    "trees": trees.parse,
}
"""Their errors begin with what follows the key: ``: takes …``, or ``[0]: …``."""
_FIELDS = validators.checks(HaConfig)
KEYS = (*_FIELDS, *_PARTS, "lint")
"""What may stand under ``ha:`` in the configuration of a master."""


def parse(opts: Mapping[str, Any]) -> HaConfig:
    """
    Read the ``ha:`` mapping out of a master's *opts* (Salt's configuration dictionary).

    :raises ConfigError: naming file, key, value (unless it is a secret) and what the key takes.
    """
    try:
        return read(opts)
    except ValueError as exc:
        raise ConfigError(f"{_source(opts)}: {exc}") from None


def read(opts: Mapping[str, Any]) -> HaConfig:
    """As :func:`parse`. :raises ValueError: as its error, without the file."""
    if misplaced := engines.misplaced("ha", opts.get("engines")):
        raise ValueError(misplaced)
    values = _given(opts.get("ha", {}))
    # Salt's own default, which is where its minions connect, too.
    interface = str(opts.get("interface") or "0.0.0.0")  # nosec B104
    values.setdefault("name", _default_name(opts))
    values.setdefault("listen_host", interface)
    values.setdefault("address", _default_address(values["listen_host"]))
    pki_dir = _folder(opts, "pki_dir")
    values.setdefault("state_dir", pki_dir / "ha")
    values["secret"] = _secret(values.pop("secret_file", None))
    places = {"pki_dir": pki_dir, "ha: state_dir": values["state_dir"]}
    try:
        trees.check_places(values.get("trees", ()), places)
    except ValueError as exc:
        raise ValueError(f"ha: trees{exc}") from None
    reacting = "once" in values and values["once"].reactor
    if reacting and values.get("leader", True) is None:
        raise ValueError(
            "ha: once: reactor: True and ha: leader: False exclude each other; a master "
            "whose reactor is to react on the leader only takes part in leading"
        )
    if member := cluster.of(opts):
        _check_member(member, values)
    return HaConfig(
        control_socket=control_socket(opts),
        source=_source(opts),
        has_engine="ha" in engines.started(opts.get("engines")),
        **values,
    )


def control_socket(opts: Mapping[str, Any]) -> Path:
    """
    Where the engine of the master with *opts* answers commands.

    :raises ValueError: ``sock_dir`` is no path.
    """
    return _folder(opts, "sock_dir") / "ha_control.ipc"


def _source(opts: Mapping[str, Any]) -> str:
    return validators.source(opts, "the master configuration")


def _given(raw: Any) -> dict[str, Any]:
    """What stands under ``ha:``, each value checked by itself."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise ValueError(f"ha: takes a mapping, not {validators.kind(raw)}")
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in KEYS:
            raise ValueError(f"ha: {validators.unknown(key, KEYS)}")
        try:
            if key in _FIELDS:
                values[key] = _FIELDS[key](value)
            elif key in _PARTS:  # lint itself reads which rules are ignored
                values[key] = _PARTS[key](value)
        except ValueError as exc:
            wrong = validators.wrong(key, value, exc) if key in _FIELDS else f"{key}{exc}"
            raise ValueError(f"ha: {validators.hidden(wrong)}") from None
    return values


def _folder(opts: Mapping[str, Any], option: str) -> Path:
    value = opts.get(option)
    if not isinstance(value, (str, Path)):
        given = "" if value is None else f", not {validators.kind(value)}"
        raise ValueError(f"{option}: takes a path{given}")
    return Path(value)


def _check_member(member: cluster.Cluster, values: Mapping[str, Any]) -> None:
    """Refuse settings that a member of Salt's own cluster cannot have."""
    if values.get("repair") and (reason := member.why_no_repair()):
        raise ValueError(f"ha: repair: True cannot be: {reason}")
    if "once" in values and values["once"].reactor:
        raise ValueError(
            "ha: once: reactor: True cannot be with cluster_id: Salt's cluster carries "
            "events to all members by itself; take it out"
        )
    state_dir = values["state_dir"]
    if not member.isolated and state_dir.resolve().is_relative_to(member.key_dir.resolve()):
        raise ValueError(
            f"ha: state_dir: {state_dir} lies in the folder that all masters of cluster "
            f"{member.name} share; set one of this master's own, such as /var/lib/salt-ha"
        )


def _default_name(opts: Mapping[str, Any]) -> str:
    # Salt appends "_master" to the id of a master; operators do not say it.
    name = str(opts.get("id") or socket.gethostname()).removesuffix("_master")
    try:
        return _name(name)
    except ValueError as exc:
        raise ValueError(
            f"the master's id {name!r} cannot serve as ha: name: it {exc}; set ha: name"
        ) from None


def _default_address(listen_host: str) -> str:
    try:
        wildcard = ipaddress.ip_address(listen_host).is_unspecified
    except ValueError:
        wildcard = False
    return socket.getfqdn() if wildcard else listen_host


def _secret(path: Path | None) -> bytes | None:
    try:
        return secret.read(path, os.environ)
    except ValueError as exc:
        where = f"ha: secret_file: {path}" if path else f"the environment: {secret.VARIABLE}"
        raise ValueError(f"{where}: {exc}") from None
