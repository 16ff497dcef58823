"""
Collects the facts of the master or minion that we run on.

Everything is read again from the files: ``ha.lint`` is called before a daemon is restarted with
them. Nothing is written, and nothing secret is kept.
"""

from __future__ import annotations

import os
import re
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import salt.config
import salt.crypt
import salt.utils.crypt

from saltext_ha.common import master_key, version
from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import ConfigError, HaError
from saltext_ha.common.files import is_configured
from saltext_ha.config import engines, watchdog
from saltext_ha.config import mapping as settings_of
from saltext_ha.consistency import access
from saltext_ha.consistency.options import RULES
from saltext_ha.consistency.tree import environments
from saltext_ha.lint import loadable, sources
from saltext_ha.lint.model import MASTER, MINION, HostFacts, Member, Place, Problem
from saltext_ha.lint.rules import trust
from saltext_ha.lint.rules.group import COMPARED, MARKED
from saltext_ha.lint.rules.trees import CHECKOUT, trees_of
from saltext_ha.minion import binding
from saltext_ha.minion.options import is_proxy
from saltext_ha.replica import state_owner

KNOWN = frozenset(
    {
        *salt.config.VALID_OPTS,
        *salt.config.DEFAULT_MASTER_OPTS,
        *salt.config.DEFAULT_MINION_OPTS,
        *salt.config.DEFAULT_PROXY_MINION_OPTS,
        *salt.config.DEFAULT_API_OPTS,
        # Salt reads some that it lists nowhere.
        *access.RULES,
        *RULES,
        "autosign_grains",
        "mine_functions",
    }
)
# File systems that more than one host may have mounted.
NETWORK = ("nfs", "cifs", "smb", "gluster", "ceph", "ocfs2", "gfs2", "lustre", "9p", "afs", "sshfs")
# Those that one host has for itself.
LOCAL = ("ext", "xfs", "btrfs", "zfs", "f2fs", "jfs", "tmpfs", "overlay", "fuse.fuse-overlayfs")
#: What begins so is meant to be scheduled on all masters: ha.once runs on one of them, the others
#: change only the master that runs them.
ON_ALL = ("ha.once", "saltutil.sync_", "fileserver.", "git_pillar.", "winrepo.")
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOOKUP = 3.0  # seconds for all names together
SALT = Path(salt.config.__file__).parents[1]
QUOTED = re.compile(r"""["'](\w+)["']""")  # a name in a line of Python


def of_minion(running: Mapping[str, Any], empty: bool = False) -> HostFacts:
    """
    The facts of a minion.

    :param running: ``__opts__``, of which only the paths and the id are used.
    :param empty: it may have no configuration yet, and runs with Salt's defaults.
    :raises ConfigError: it has no configuration.
    """
    # By its own copy(): the values are frozen, and Salt's loader takes no frozen mappings.
    defaults = salt.config.DEFAULT_MINION_OPTS.copy()
    how, included, own = salt.config.minion_config, _include(running, defaults), ""
    if is_proxy(running):  # it has a folder of its own below that of all
        defaults.update(salt.config.DEFAULT_PROXY_MINION_OPTS)
        how, included, own = salt.config.proxy_config, str(defaults["default_include"]), included
    defaults["default_include"] = included
    read = _sources(running, included, own, empty)

    def load(path: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = how(path, defaults=defaults, minion_id=running.get("id"))
        return found

    options = _merged(load, running, read, defaults)
    pki_dir = Path(str(options.get("pki_dir") or running.get("pki_dir")))
    unknown: dict[str, str] = {}
    facts = _facts(MINION, options, read)
    names = (trust.sign_key(facts), trust.CACHED_KEY)
    return replace(
        facts,
        files=_files(pki_dir, names, unknown),
        told=binding.told_ports(salt.crypt.AsyncAuth.creds_map),
        addresses=addresses(facts.masters),
        fingerprint=_cached_key(pki_dir / trust.CACHED_KEY, str(options.get("hash_type"))),
        unknown=unknown,
    )


def of_master(running: Mapping[str, Any]) -> HostFacts:
    """
    The facts of a master.

    :param running: ``__opts__``, of which only the path of the configuration file and ``ha:`` are
        used; those of a process that has just been started have no ``ha:`` of before.
    :raises ConfigError: it has no configuration.
    """
    defaults = salt.config.DEFAULT_MASTER_OPTS.copy()
    read = _sources(running, _include(running, defaults))
    options = _merged(salt.config.master_config, running, read, defaults)
    unknown: dict[str, str] = {}
    shown = master_key.describe(options)["fingerprint"]
    if isinstance(shown, dict):
        unknown["master key"] = str(shown["unknown"])
    names = (
        str(options.get("master_pubkey_signature") or f"{options.get('id')}_pubkey_signature"),
        f"{options.get('master_sign_key_name') or 'master_sign'}.pem",
    )
    unloadable: list[loadable.Unloadable] = []
    try:
        unloadable = loadable.unloadable(str(options["conf_file"]), loadable.named(options))
    except HaError as exc:
        unknown["HA523"] = str(exc)
    return replace(
        _facts(MASTER, options, read),
        files=_files(Path(str(options["pki_dir"])), names, unknown)
        if master_key.in_files(options)
        else {},
        shared=_on_network({name: str(options.get(name)) for name in MARKED}),
        fingerprint=shown if isinstance(shown, str) else None,
        state_owner=_state_owner(options),
        unloadable=unloadable,
        checkouts=_checkouts(options.get("file_roots")),
        edited=_edited(running, options),
        unknown=unknown,
    )


def problems(conf_file: str) -> Sequence[Problem]:
    """
    The files of a master that Salt cannot read, or the value that it fails on.

    :raises ConfigError: it has no configuration.
    """
    defaults = salt.config.DEFAULT_MASTER_OPTS.copy()
    running = {"conf_file": conf_file}
    read = _sources(running, _include(running, defaults))
    _merged(salt.config.master_config, running, read, defaults)
    return read.problems


def _facts(role: str, options: Mapping[str, Any], read: sources.Sources) -> HostFacts:
    """The facts in the configuration files, without those of this machine."""
    return HostFacts(
        role,
        version.salt_release(),
        options,
        places=read.places(),
        settings=read.settings,
        problems=read.problems,
        left_out=read.left_out,
        known=KNOWN,
        merged=read.merged,
        refused=_refused(role, options),
    )


def _refused(role: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The option because of which our engine would not start, and why; None if it would."""
    engine, read = ("ha", settings_of.read) if role == MASTER else ("ha_watchdog", watchdog.read)
    listed = options.get("engines")
    started = engines.started(listed)
    for each in engines.OURS.values():
        if each in started and (wrong := engines.astray(each, role)):
            return "engines", wrong
    if engine not in started:
        return None
    if misplaced := engines.misplaced(engine, listed):
        return "engines", misplaced
    try:
        read(options)
    except ValueError as exc:
        return "ha", str(exc)
    return None


def _state_owner(options: Mapping[str, Any]) -> str:
    try:
        settings = settings_of.parse(options)
    except HaError:
        return ""  # then its engine does not start, and says why
    return state_owner.conflict(settings) or state_owner.turned_away(settings)


def _edited(running: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """The keys of ``ha:`` that have another value in *options* than in *running*."""
    try:
        before, now = settings_of.read(running), settings_of.read(options)
    except ValueError:
        return []  # then its engine would not start, and says why
    written = {**(running.get("ha") or {}), **(options.get("ha") or {})}
    return sorted(key for key in written if getattr(before, key, 0) != getattr(now, key, 0))


def member(name: str, facts: HostFacts) -> Member:
    """The facts that a master tells its peers."""
    options = {option: facts.options.get(option) for option in COMPARED}
    options["schedule"] = [n for n, (does, _) in facts.jobs.items() if not does.startswith(ON_ALL)]
    options["reactor"] = loadable.names_in(options["reactor"])
    ha = facts.ha
    once, masters = ha.get("once"), ha.get("masters")
    leading = isinstance(once, Mapping) and once.get("reactor") is True
    if leading:
        options["reactor"] = []  # it reacts on the leader only
    peers = options["cluster_peers"]
    options["cluster_peers"] = [str(peer) for peer in peers] if isinstance(peers, list) else []
    options["ha"] = {
        "masters": [str(url) for url in masters] if isinstance(masters, list) else [],
        "reacts_once": leading,
        "trees": {
            name: {"live": str(tree["live"]), "secret": bool(tree.get("secret"))}
            for name, tree in trees_of(facts.options).items()
        },
    }
    user = str(facts.get("user"))
    marks = {
        f"{folder}/{file}": mark
        for folder, files in MARKED.items()
        for file in (name.replace("USER", user) for name in files)
        if (mark := _mark(Path(str(facts.get(folder))) / file))
    }
    places = {option: facts.places[option] for option in COMPARED if option in facts.places}
    return Member(name, facts.version, options, places, facts.fingerprint, marks)


def _include(running: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    return str(running.get("default_include") or defaults["default_include"])


def _sources(
    running: Mapping[str, Any], included: str, own: str = "", empty: bool = False
) -> sources.Sources:
    path = str(running.get("conf_file") or "")
    if not empty and not any(is_configured(path, each) for each in (included, own) if each):
        raise ConfigError(f"{path or 'conf_file'}: no such file; there is nothing to look at")
    return sources.read(path, included, own)


def _merged(
    load: Any, running: Mapping[str, Any], read: sources.Sources, defaults: Mapping[str, Any]
) -> Mapping[str, Any]:
    """
    The options as Salt merges them; if Salt cannot load the files, those that can be read, and
    *read* says why.
    """
    try:
        return dict(load(str(running["conf_file"])))
    # Salt raises SystemExit for broken YAML, which here is only a finding.
    except (Exception, SystemExit) as exc:
        if not read.problems:
            _note_failure(exc, read)
        ours = ("conf_file", "pki_dir", "cachedir", "id")
        known = {name: running[name] for name in ours if name in running}
        return {**defaults, **known, **read.merged}


def _note_failure(exc: BaseException, read: sources.Sources) -> None:
    """Note that Salt fails on files that it can read: it cannot use the value of some option."""
    frames = traceback.extract_tb(exc.__traceback__)
    in_salt = [frame for frame in frames if Path(frame.filename).is_relative_to(SALT)]
    last = (in_salt or frames)[-1]
    # The text of another exception, as of a driver of sdb://, may quote a secret.
    told = f": {exc}" if last is frames[-1] and Path(last.filename).parent.name == "config" else ""
    reason = f"Salt fails with {type(exc).__name__}{told:.200}, in {last.name}: {last.line}"
    # Its line names the option, as  opts["hash_type"].lower()  does.
    named = [name for frame in reversed(in_salt) for name in QUOTED.findall(frame.line or "")]
    place = next(filter(None, map(read.places().get, named)), Place(read.main, 0))
    read.unreadable(place.file, place.line, reason)


def _files(folder: Path, names: Iterable[str], unknown: dict[str, str]) -> dict[str, bool]:
    found = {}
    for name in names:
        try:
            (folder / name).stat()
            found[name] = True
        except FileNotFoundError:
            found[name] = False
        except OSError as exc:
            unknown[str(folder / name)] = exc.strerror or type(exc).__name__
    return found


def _checkouts(roots: Any) -> list[str]:
    served = environments(roots) if isinstance(roots, Mapping) else {}
    folders = dict.fromkeys(folder for each in served.values() for folder in each)
    return [folder for folder in folders if os.access(Path(folder, CHECKOUT), os.R_OK)]


def _cached_key(path: Path, hash_type: str) -> str | None:
    try:
        return str(salt.utils.crypt.pem_finger(str(path), sum_type=hash_type)) or None
    except Exception:  # unreadable, no key, unknown hash: nothing to compare with
        return None


def _mark(path: Path) -> str:
    """Masters that find the same mark of a file share it; empty: it is not there, or unknown."""
    try:
        status = path.stat()
        # Machines that were made from one disk have the same numbers and times, and containers of
        # one image on one host, too.
        local = _kind(path.parent).startswith(LOCAL)
        where = f"{BOOT.read_text().strip()}:{status.st_dev}" if local else ""
    except OSError:
        return ""
    return f"{status.st_ino}:{status.st_ctime_ns}:{where}"


def _on_network(folders: Mapping[str, str]) -> dict[str, str]:
    kinds = {option: _kind(Path(folder)) for option, folder in folders.items()}
    return {
        option: kind
        for option, kind in kinds.items()
        if kind.removeprefix("fuse.").startswith(NETWORK)
    }


def _kind(folder: Path) -> str:
    """The kind of file system in which *folder* is; empty: not known."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    path = folder.resolve()
    return next((mounts[str(p)] for p in (path, *path.parents) if str(p) in mounts), "")


def addresses(masters: Iterable[str]) -> dict[str, frozenset[str] | None]:
    """Host name → its addresses; None if they are not found in time."""
    hosts = set()
    for entry in masters:
        try:
            host, _ = binding.split_entry(entry, 0)
        except ValueError:
            continue
        if bare_ip(host) is None and "," not in host:
            hosts.add(host)
    found: dict[str, frozenset[str] | None] = dict.fromkeys(hosts)

    def look_up(host: str) -> None:
        try:
            found[host] = binding.resolve(host)
        except (OSError, UnicodeError):
            found[host] = None

    # Daemon threads: a name server that does not answer must not delay the end of the process.
    threads = [threading.Thread(target=look_up, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + LOOKUP
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    return dict(found)
