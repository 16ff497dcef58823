"""What a running minion's configuration says about its masters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import salt.config
import salt.crypt

from saltext_ha.common.addresses import bare_ip
from saltext_ha.minion import binding, tcp_links

NAMES = "ha_masters"
"""
The option of a minion with the names of its masters in their group. It is not under ``ha:``: the
file that sets it would replace the whole ``ha:`` mapping.
"""


SALT_SSH = "salt-ssh has a configuration of its own, and not that of a minion"


def running(opts: Mapping[str, Any], sent_by: Any = None) -> binding.Running:
    """
    The values that :mod:`saltext_ha.minion.binding` works on.

    *opts* are the ``__opts__`` of a function or an engine of the minion; *sent_by* is the
    ``__pub_master_id`` of the job.
    """
    caller = is_caller(opts)
    found, default_port, note = _configured(opts)
    if opts.get("master_type") == "func" and "__master_func_evaluated" not in opts:
        note = f"its masters are what {found} returns; salt-call asks it only without --local"
        found = []
    entries = tuple(map(str, found)) if isinstance(found, list) else (str(found),)
    host, port = str(opts.get("master")), _port(opts.get("master_port"))
    # No single master: a minion that has lost all of them, and salt-call --local. That of
    # salt-call --master may be none of the minion's.
    nobody = isinstance(opts.get("master"), list) or "master_uri" not in opts
    nobody = nobody or (caller and opts.get("file_client") == "local")
    nobody = nobody or (caller and not binding.written(entries, default_port, host, port))
    ip = None if nobody else bare_ip(str(opts.get("master_ip")))
    return binding.Running(
        entries=entries,
        listed=isinstance(found, list),
        master_type=str(opts.get("master_type", "str")),
        default_port=default_port,
        host=host if ip else None,
        ip=ip,
        port=port if ip else None,
        publish_port=_own_publish_port(opts),
        told=binding.told_ports(salt.crypt.AsyncAuth.creds_map),
        caller=caller,
        sent_by=str(sent_by) if sent_by else None,
        note=note,
        names=names(opts),
    )


def names(opts: Mapping[str, Any]) -> dict[str, str]:
    """Names of masters in their group → their entries; invalid ones are left out."""
    found = opts.get(NAMES)
    if not isinstance(found, Mapping):
        return {}
    texts = {name: entry for name, entry in found.items() if isinstance(entry, str)}
    return {name: entry for name, entry in texts.items() if isinstance(name, str)}


def own_entry(opts: Mapping[str, Any], running: binding.Running) -> str:
    """
    The entry of the master that *opts* of a Minion object belong to, one of several at once. Salt
    takes the port off it when it connects.
    """
    own = str(opts["master"])
    if own in running.entries:
        return own
    port = _port(opts.get("master_port"))
    return binding.written(running.entries, running.default_port, own, port) or own


def is_caller(opts: Mapping[str, Any]) -> bool:
    """
    Whether this process is none of the minion with *opts*: that of ``salt-call``, or of a program
    with ``salt.client.Caller``. What runs in a minion has the mark that Salt sets at its start.
    """
    return bool(opts.get("caller")) or not (opts.get("multimaster") or is_proxy(opts))


def is_of_salt_ssh(opts: Mapping[str, Any]) -> bool:
    """Whether *opts* are those of a run of salt-ssh, and not of the minion of that host."""
    place = str(Path(str(opts.get("conf_file") or "")).parent / "running_data")
    return opts.get("root_dir") == place


def startup_delay(opts: Mapping[str, Any]) -> float:
    """Seconds that Salt may sleep, once the minion has started, before it looks for a master."""
    return float(opts.get("random_startup_delay") or 0)


def is_proxy(opts: Mapping[str, Any]) -> bool:
    """Whether *opts* are those of a proxy minion: it has files and folders of its own."""
    return bool(opts.get("proxyid"))


def read_again(conf_file: str, minion_id: str, proxy: bool) -> Mapping[str, Any]:
    """The configuration of a minion (*proxy*: a proxy minion), in a process that is not its own."""
    if proxy:
        return {**salt.config.proxy_config(conf_file, minion_id=minion_id), "proxyid": minion_id}
    found: Mapping[str, Any] = salt.config.minion_config(conf_file, minion_id=minion_id)
    return found


def bus(opts: Mapping[str, Any]) -> str | int:
    """
    Where a minion with *opts* serves its event bus: the path of a socket, as Salt 3006 to 3008 make
    it, or a TCP port if ``ipc_mode`` says so; empty if *opts* are not a minion's.
    """
    if opts.get("ipc_mode") == "tcp":
        return _port(opts.get("tcp_pub_port"))
    name = str(opts.get("hash_id") or opts.get("id"))
    digest = hashlib.new(str(opts.get("hash_type") or "sha256"), name.encode()).hexdigest()
    folder = opts.get("sock_dir")
    return str(Path(folder) / f"minion_event_{digest[:10]}_pub.ipc") if folder else ""


def pid(opts: Mapping[str, Any]) -> int | None:
    """The process of the running minion; see :func:`saltext_ha.minion.tcp_links.minion_pid`."""
    forks = bool(opts.get("multiprocessing", True))
    return tcp_links.minion_pid(
        str(opts.get("pidfile") or ""), bus(opts), caller=is_caller(opts), forks=forks
    )


def _port(value: Any) -> int:
    """*value*, or the default if it is unset or invalid (then Salt would not start)."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return binding.DEFAULT_REQUEST_PORT


def _own_publish_port(opts: Mapping[str, Any]) -> int | None:
    # Salt takes 4506 as "not set", and then uses the port that the master tells.
    port = _port(opts.get("publish_port"))
    return None if port == binding.DEFAULT_REQUEST_PORT else port


def _configured(opts: Mapping[str, Any]) -> tuple[Any, int, str | None]:
    """The masters as written, the request port for entries without one, and a note."""
    port = _port(opts.get("master_port"))
    now = opts.get("master_list") or opts.get("master") or []
    caller = is_caller(opts)
    if not caller and (not opts.get("multimaster") or isinstance(now, list)):
        return now, port, None
    # A minion process has a Minion object for each master, and each knows its own master only.
    # salt-call --master has another one.
    path = str(opts.get("conf_file") or "")
    written = _read(path, opts)
    if written is None:
        note = f"cannot read {path or 'the configuration file'}; there may be more masters"
        return now, port, None if caller else note
    masters = written.get("master")
    told = masters and opts.get("master_type") != "func" and (caller or isinstance(masters, list))
    return masters if told else now, _port(written.get("master_port")), None


def _read(path: str, opts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The configuration file and its includes, without defaults; None when there is nothing."""
    written: dict[str, Any] = {}
    if Path(path).is_file():  # load_config would write one
        written = salt.config.load_config(path, "", "", exit_on_config_errors=False)
        if "conf_file" not in written:
            return None
    patterns = [written.get("default_include", _usual_include(opts)), written.get("include", [])]
    if is_proxy(opts):  # it has a folder of its own below that of all
        patterns.append(opts.get("default_include", []))
    for pattern in patterns:
        try:
            found = salt.config.include_config(pattern, path, False, exit_on_config_errors=False)
        except OSError:  # Salt itself read it as root, before it changed to its user:
            return None
        written.update(found)
    return written or None


def _usual_include(opts: Mapping[str, Any]) -> str:
    proxy = salt.config.DEFAULT_PROXY_MINION_OPTS
    defaults = proxy if is_proxy(opts) else salt.config.DEFAULT_MINION_OPTS
    return str(defaults["default_include"])
