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
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import HaError

LIMIT = 20.0  # seconds; a peer waits for 30
LONGEST = 200  # characters of a reason

LOADERS = {
    "ext_pillar": ("pillars", ""),
    "master_tops": ("tops", ""),
    "fileserver_backend": ("fileserver", ".envs"),
    "external_auth": ("auth", ".auth"),
    "eauth_tokens": ("eauth_tokens", ".mk_token"),
    "master_job_cache": ("returners", ".prep_jid"),
    "ext_job_cache": ("returners", ".save_load"),
    "event_return": ("returners", ".event_return"),
    "rest_cherrypy": ("netapi", ".start"),
    "rest_tornado": ("netapi", ".start"),
}
"""
Option → a loader of Salt, and what Salt looks up in it, after the name of the module. Only options
that Salt goes on without: a missing driver of ``cache`` or an engine shows at once.
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
    for option in LOADERS:
        value = options.get(option)
        if option.startswith("rest_"):
            names: Iterable[str] = [option] if value else []
        else:
            names = names_in(value)
        if option == "external_auth":
            names = [name for name in names if not name.startswith("^")]
        found += [(option, name) for name in names if name not in PLAIN.get(option, ())]
    return found


def names_in(value: Any) -> list[str]:
    """The names in *value*, each once: a name, a list of them, or mappings by them."""
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


def ask(conf_file: str, names: Iterable[tuple[str, str]]) -> list[Unloadable]:
    """:func:`unloadable`, in this process."""
    import salt.config
    import salt.loader

    opts = salt.config.master_config(conf_file)
    functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
    more = {"pillars": [functions], "returners": [functions], "fileserver": [None]}
    found = []
    for option, name in names:
        kind, function = LOADERS[option]
        loader, key = getattr(salt.loader, kind)(opts, *more.get(kind, ())), f"{name}{function}"
        if key not in loader:
            # Those of ext_pillar and master_tops are wrapped.
            lazy = loader if hasattr(loader, "missing_fun_string") else loader._dict
            found.append(Unloadable(option, name, lazy.missing_fun_string(key)[:LONGEST]))
    return found


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], json.load(sys.stdin))))
