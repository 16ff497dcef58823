"""docs/configuration.md, made from the classes of this folder: text, defaults and checks."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Any

from saltext_ha.common.errors import ConfigError
from saltext_ha.common.validators import checks
from saltext_ha.config import consistency, health, leader, mapping, once, status, trees, watchdog

HEAD = """\
# Configuration

All of it stands under `ha:` in the master configuration, best in a file of its own such as
`/etc/salt/master.d/ha.conf`. Salt merges the files of `master.d`; an `ha:` in `/etc/salt/master`
itself is replaced by theirs as a whole, and so is `engines:`. A wrong key or value is an error in
the log that says which values are allowed, and the engine does not start at all. Files that are
named here must be readable for the user of salt-master. Restart salt-master after a change.
"""

TAIL = """\
---

Made from the code by `python -m saltext_ha.config.page > docs/configuration.md`; do not edit.
"""

LINT = "`{ignore: [HA707, …]}`: findings of [`ha.lint`](lint.md) that you accept."

MAPPINGS: tuple[tuple[str, type, str], ...] = (
    ("consistency", consistency.ConsistencySettings, "[Consistency](consistency.md)"),
    ("health", health.HealthSettings, "[Health](status-page.md#when-a-master-serves)"),
    ("leader", leader.LeaderSettings, "[Once](once.md#who-leads)"),
    ("once", once.OnceSettings, "[Reactors](once.md#reactors)"),
    ("status", status.StatusSettings, "[Status page](status-page.md#who-may-look)"),
    ("trees", trees.Tree, "For each tree, below its name. [Trees](trees.md)"),
)


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD, _table(mapping.HaConfig, mapping.KEYS, _of_master)]
    for name, cls, more in MAPPINGS:

        def parse(key: str, value: Any, name: str = name) -> None:
            given = {key: value}
            _of_master(name, {"t": given} if name == "trees" else given)

        parts += [f"## `ha: {name}:`\n", f"{more}.\n", _table(cls, checks(cls), parse)]
    parts += [
        "## On a minion\n",
        "In the minion configuration `ha:` takes `lint`, as above, and `watchdog`, for\n"
        "[the engine `ha_watchdog`](minions.md).\n",
        "### `ha: watchdog:`\n",
        _table(watchdog.WatchdogSettings, checks(watchdog.WatchdogSettings), _of_watchdog),
    ]
    return "\n".join([*parts, TAIL])


def _of_master(key: str, value: Any) -> None:
    mapping.parse({"id": "m1", "pki_dir": "/pki", "sock_dir": "/run", "ha": {key: value}})


def _of_watchdog(key: str, value: Any) -> None:
    watchdog.parse({"ha": {"watchdog": {key: value}}})


def _table(cls: type, keys: Iterable[str], parse: Callable[[str, Any], None]) -> str:
    texts, defaults = _texts(cls), _defaults(cls)
    rows = ["| key | takes | default | |", "|---|---|---|---|"]
    for key in keys:
        name = key.removesuffix("_file")
        text = LINT if key == "lint" else texts[name]
        cells = (f"`{key}`", _takes(parse, key), defaults.get(name, ""), text)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([*rows, ""])


def _takes(parse: Callable[[str, Any], None], key: str) -> str:
    """What a key takes, from the error about an impossible value."""
    try:
        parse(key, object())
    except ConfigError as exc:
        return re.sub(r"([|*_])", r"\\\1", str(exc).partition(" takes ")[2])
    return ""


def _texts(cls: type) -> dict[str, str]:
    """Field → its text in the docstring of *cls*, as Markdown."""
    entry = r"^ *:ivar (\w+): (.*?)(?=\n *:|\n\n|\Z)"
    found = re.findall(entry, cls.__doc__ or "", re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()).replace("``", "`") for name, text in found}


def _defaults(cls: type) -> dict[str, str]:
    """Field → its default as YAML, if it has one that can be shown."""
    shown = {}
    for field in dataclasses.fields(cls):
        value = field.default
        if isinstance(value, bool):
            shown[field.name] = f"`{value}`".lower()
        elif isinstance(value, (int, float)):
            shown[field.name] = f"{value:g}" if isinstance(value, float) else str(value)
        elif isinstance(value, str) and value:
            shown[field.name] = f"`{value}`"
        elif isinstance(value, tuple) and value:
            shown[field.name] = f"`{shlex.join(value)}`"
    return shown


if __name__ == "__main__":
    sys.stdout.write(page())
