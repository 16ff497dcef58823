"""
Which modules that a master's configuration names cannot be loaded there.

Salt's loaders tell. They need 60 MB and a second, and what they import stays in a process. So a
process of its own asks them, and only if something is named that not every Salt can load::

    python -m saltext_ha.lint.loadable /etc/salt/master < names.json
"""

from __future__ import annotations

import json
import subprocess  # nosec B404
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import HaError

LIMIT = 20.0  # seconds; a peer waits for 30
LONGEST = 200  # characters of a reason

FUNCTION = {
    "ext_pillar": "",
    "master_tops": "",
    "fileserver_backend": ".envs",
    "external_auth": ".auth",
    "eauth_tokens": ".mk_token",
    "master_job_cache": ".prep_jid",
    "ext_job_cache": ".save_load",
    "event_return": ".event_return",
    "rest_cherrypy": ".start",
    "rest_tornado": ".start",
}
"""
Option → what Salt looks up in the loader, after the name of the module. Only options that Salt goes
on without: a missing driver of ``cache`` or an engine shows at once.
"""
PLAIN = {
    "fileserver_backend": {"roots"},
    "external_auth": {"pam", "file", "auto", "sharedsecret"},
    "eauth_tokens": {"localfs"},
    "master_job_cache": {"local_cache"},
}
"""Names that every Salt with this package can load."""


class Unloadable(NamedTuple):
    """An option, the module that it names, and why that cannot be loaded."""

    option: str
    name: str
    why: str


def named(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The modules that a master's configuration names, as (option, name); without plain ones."""
    found = []
    for option in FUNCTION:
        value = options.get(option)
        if option.startswith("rest_"):
            names: Iterable[str] = [option] if value else []
        else:
            names = _names(value)
        if option == "external_auth":
            names = [name for name in names if not name.startswith("^")]
        found += [(option, name) for name in names if name not in PLAIN.get(option, ())]
    return found


def _names(value: Any) -> list[str]:
    """A name, a list of them, or mappings by them."""
    entries = value if isinstance(value, list) else [value]
    found: dict[str, None] = {}
    for entry in entries:
        for name in entry if isinstance(entry, Mapping) else [entry]:
            if isinstance(name, str) and name:
                found[name] = None
    return list(found)


def unloadable(conf_file: str, names: list[tuple[str, str]]) -> list[Unloadable]:
    """
    Those of *names* that a master with the configuration *conf_file* cannot load.

    :raises HaError: Salt's loaders could not be asked.
    """
    if not names:
        return []
    command = [sys.executable, "-m", __name__, conf_file]
    try:
        done = subprocess.run(  # nosec B603
            command,
            input=json.dumps(names),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
            cwd="/",  # Python looks for modules there first
        )
        return [Unloadable(*each) for each in json.loads(done.stdout.splitlines()[-1])]
    except subprocess.CalledProcessError as exc:
        last = (exc.stderr.strip().splitlines() or [f"exit code {exc.returncode}"])[-1]
        # Without the exception's text, which may quote a secret, such as that of a driver of sdb://
        kind = last.partition(":")[0]
        raise HaError(f"Salt's loaders could not be asked: {kind[:LONGEST]}") from None
    except (OSError, ValueError, TypeError, IndexError, subprocess.TimeoutExpired) as exc:
        raise HaError(f"Salt's loaders could not be asked: {exc}") from None


def _loaders(opts: dict[str, Any]) -> Mapping[str, Callable[[], Any]]:
    import salt.loader

    utils = salt.loader.utils(opts)
    functions = salt.loader.minion_mods(opts, utils=utils)

    def returners() -> Any:
        return salt.loader.returners(opts, functions)

    def netapi() -> Any:
        return salt.loader.netapi(opts)

    return {
        "ext_pillar": lambda: salt.loader.pillars(opts, functions),
        "master_tops": lambda: salt.loader.tops(opts),
        "fileserver_backend": lambda: salt.loader.fileserver(opts, None),
        "external_auth": lambda: salt.loader.auth(opts),
        "eauth_tokens": lambda: salt.loader.eauth_tokens(opts),
        "master_job_cache": returners,
        "ext_job_cache": returners,
        "event_return": returners,
        "rest_cherrypy": netapi,
        "rest_tornado": netapi,
    }


def ask(conf_file: str, names: Iterable[tuple[str, str]]) -> list[Unloadable]:
    """:func:`unloadable`, in this process."""
    import salt.config

    loaders = _loaders(salt.config.master_config(conf_file))
    found = []
    for option, name in names:
        loader, key = loaders[option](), f"{name}{FUNCTION[option]}"
        if key not in loader:
            # Those of ext_pillar and master_tops are wrapped.
            lazy = loader if hasattr(loader, "missing_fun_string") else loader._dict
            found.append(Unloadable(option, name, lazy.missing_fun_string(key)[:LONGEST]))
    return found


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], json.load(sys.stdin))))
