"""
What one master is: the values that :mod:`~saltext_ha.consistency.rules` asks for.

A snapshot is plain data, ready for msgpack and JSON, made on every master and compared on one.
Shape::

    {"format": 1, "name": "m1", "time": 1750000000.0,
     "sections": {"access": {"external_auth": {"leaves": {"external_auth:pam:alice": [".*"]}},
                             "autosign_file": {"unknown": "why it could not be read"}}, …},
     "running": {"leaves": {"publisher_acl:ops": {"file": …, "running": …}}} or {"unknown": why}}

A leaf is a scalar, a list, ``{"secret": digest}`` or ``{"absent": True}``. The digest is an HMAC
under a random nonce that lives as long as one check: equal secrets compare equal within it, and
nothing that could be looked up or compared with an older answer leaves this master.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.consistency.rules import (
    PATH_OPTIONS,
    RULES,
    How,
    Rule,
    Source,
    is_secret_key,
    is_secret_value,
)
from saltext_ha.errors import ConfigError

FORMAT = 1
ABSENT = {"absent": True}


def of_this_master(ha_name: str, running_opts: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    """
    Read the configuration files and :func:`take` the snapshot of the master we run in.

    Blocks while it reads files (and whatever an ``sdb://`` in the configuration asks): call it
    from a thread. Files that cannot be read make the ``running`` section unknown, nothing else.

    :param ha_name: what the group calls this master.
    :param running_opts: the ``__opts__`` of the running master, as an engine has them.
    :param nonce: random bytes, the same for all masters of one check, never used twice.
    """
    files: Mapping[str, Any] | ConfigError
    try:
        files = read_files(str(running_opts.get("conf_file") or ""))
    except ConfigError as exc:
        files = exc
    return take(files, ha_name, running_opts, nonce)


def read_files(conf_file: str) -> Mapping[str, Any]:
    """
    What Salt would run with, were it started now: *conf_file* with its includes and defaults.

    :raises ConfigError: naming the file, when it is missing or Salt would refuse to start with it.
    """
    import salt.config

    if not Path(conf_file).is_file():
        raise ConfigError(f"{conf_file or 'conf_file'}: no such file; nothing to compare with")
    try:
        opts: Mapping[str, Any] = salt.config.master_config(conf_file, exit_on_config_errors=True)
    # SystemExit is how Salt's loader answers to broken YAML; it must not take the engine along.
    except (Exception, SystemExit) as exc:
        raise ConfigError(
            f"{conf_file}: Salt cannot load it ({type(exc).__name__}); "
            "salt-master would not start again; see the master's log for the line"
        ) from exc
    return opts


def take(
    opts: Mapping[str, Any] | ConfigError,
    ha_name: str,
    running_opts: Mapping[str, Any],
    nonce: bytes,
) -> dict[str, Any]:
    """
    Describe one master (shape: see the module).

    :param opts: what the configuration files say now, or why they could not be read.
    :param ha_name: what the group calls this master.
    :param running_opts: what the running master was started with; access is reported from these.
    :param nonce: key of the digests that stand for secrets.
    """
    computed = _computed(running_opts)
    sections: dict[str, dict[str, Any]] = {}
    for rule in RULES:
        if rule.source is Source.COMPUTED:
            value = computed[rule.section, rule.option]
        else:
            value = _leaves(rule, running_opts, nonce)
        sections.setdefault(rule.section, {})[rule.option] = value
    return {
        "format": FORMAT,
        "name": ha_name,
        "time": time.time(),
        "sections": sections,
        "running": _running(opts, running_opts, nonce),
    }


def plain(value: Any, how: How, nonce: bytes) -> Any:
    """*value* as JSON knows it: secrets digested, lists sorted where Salt reads them as sets."""
    if isinstance(value, Mapping):
        # Positional arguments in a permission are matched by position, whatever surrounds them.
        return {
            str(key): _entry(
                str(key), plain(item, How.EXACT if key == "args" else how, nonce), nonce
            )
            for key, item in value.items()
        }
    if isinstance(value, str):
        return digest(value, nonce) if is_secret_value(value) else value
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        items = [plain(item, how, nonce) for item in value]
        unordered = how is How.SET or isinstance(value, (set, frozenset))
        return _as_set(items) if unordered else items
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _entry(key: str, value: Any, nonce: bytes) -> Any:
    return digest(value, nonce) if is_secret_key(key) else value


def digest(value: Any, nonce: bytes) -> dict[str, str]:
    """Stand-in for a secret: equal values have equal digests under one *nonce*."""
    text = value if isinstance(value, str) else canonical(value)
    return {"secret": hmac.new(nonce, text.encode(errors="replace"), hashlib.sha256).hexdigest()}


def canonical(value: Any) -> str:
    """One text for one value, to sort and compare by."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _as_set(items: list[Any]) -> list[Any]:
    return [value for _, value in sorted({canonical(item): item for item in items}.items())]


def _flatten(path: str, value: Any, rule: Rule, nonce: bytes, hide: bool) -> dict[str, Any]:
    """The leaves below *path*; an empty mapping has none, as it grants nothing."""
    if isinstance(value, Mapping):
        leaves: dict[str, Any] = {}
        for key, item in value.items():
            inner = hide or is_secret_key(str(key))
            leaves.update(_flatten(f"{path}:{key}", item, rule, nonce, inner))
        return leaves
    # Digest what is left after sorting: the order of a hidden set must not matter either.
    leaf = plain(value, rule.how, nonce)
    return {path: digest(leaf, nonce) if hide else leaf}


def _config_leaves(rule: Rule, opts: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    value = opts.get(rule.option, rule.default)
    if value is None or (rule.secret and not value):
        return {}
    return _flatten(rule.option, value, rule, nonce, rule.secret)


def _leaves(rule: Rule, opts: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    try:
        if rule.source is Source.CONFIG:
            return {"leaves": _config_leaves(rule, opts, nonce)}
        path = opts.get(rule.option)
        if not path:
            return {"leaves": {}}
        if rule.source is Source.LINES:
            return {"leaves": _file_leaves(rule.option, Path(path), opts)}
        return {"leaves": _grain_leaves(rule, Path(path), opts, nonce)}
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        return {"unknown": f"{where}{exc.strerror or type(exc).__name__}"}


def _lines(path: Path, opts: Mapping[str, Any]) -> list[str] | None:
    """The lines as Salt matches them; None where Salt ignores the file for its permissions."""
    from salt.daemons.masterapi import AutoKey

    if not AutoKey(opts).check_permissions(str(path)):
        return None
    stripped = (line.strip() for line in path.read_text(errors="replace").splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def _file_leaves(option: str, path: Path, opts: Mapping[str, Any]) -> dict[str, Any]:
    if not path.exists():
        return {}
    lines = _lines(path, opts)
    if lines is None:
        return {option: f"{path} ignored by Salt: others may write it"}
    return {f"{option}:{line}": "listed" for line in lines}


def _grain_leaves(
    rule: Rule, folder: Path, opts: Mapping[str, Any], nonce: bytes
) -> dict[str, Any]:
    if not folder.is_dir():
        return {}
    leaves: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            lines = _lines(path, opts)
            name = f"{rule.option}:{path.name}"
            if lines is None:
                leaves[name] = f"{path} ignored by Salt: others may write it"
            else:
                leaves[name] = digest(_as_set(list(lines)), nonce)
    return leaves


def _running(
    files: Mapping[str, Any] | ConfigError, running: Mapping[str, Any], nonce: bytes
) -> dict[str, Any]:
    """Where the files and the running master disagree: what the next restart would change."""
    if isinstance(files, ConfigError):
        return {"unknown": str(files)}
    leaves: dict[str, Any] = {}
    config_rules = [rule for rule in RULES if rule.source is Source.CONFIG]
    for rule in [*config_rules, *(Rule("running", option) for option in PATH_OPTIONS)]:
        now = _config_leaves(rule, files, nonce)
        then = _config_leaves(rule, running, nonce)
        for path in now.keys() | then.keys():
            pair = {"file": now.get(path, ABSENT), "running": then.get(path, ABSENT)}
            if pair["file"] != pair["running"]:
                leaves[path] = pair
    return {"leaves": leaves}


def _computed(opts: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    import salt.version

    from saltext_ha import master_key

    versions = {
        "salt": str(salt.version.__version__),
        "saltext-ha": importlib.metadata.version("saltext-ha"),
        "python": platform.python_version(),
    }
    described = {
        **{("master_key", option): value for option, value in master_key.describe(opts).items()},
        **{("versions", option): value for option, value in versions.items()},
    }
    return {
        key: value if isinstance(value, dict) else {"leaves": {key[1]: value} if value else {}}
        for key, value in described.items()
    }
