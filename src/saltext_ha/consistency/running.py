"""Compares each running master with its configuration files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.common import master_key as keys
from saltext_ha.common.errors import ConfigError
from saltext_ha.config import mapping
from saltext_ha.consistency import access, master_key, options, roots
from saltext_ha.consistency.comparison import Difference, meant, names
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import DRIFT, EqualityRule
from saltext_ha.consistency.section import Mine, Section
from saltext_ha.consistency.values import ABSENT, labelled, leaves_of

#: Other sections compare their content; here: does the running master use what the files say?
SOURCES = (
    *map(EqualityRule, roots.FILES),
    *(EqualityRule(rule.option) for rule in access.FILES),
    EqualityRule("gitfs_remotes", secret=True),
)


def take(mine: Mine) -> Facts:
    """Leaves that the next restart would change: ``{"file": …, "running": …}`` each."""
    files = mine.files
    if isinstance(files, ConfigError):
        return Facts({}, {"": str(files)})
    try:
        mapping.parse(files)
    except ConfigError as exc:
        # No differences: what mends them is a restart.
        return Facts({}, {"": f"{exc}; mend it first: the engine does not start with it"})
    files = as_started(files)
    leaves: dict[str, Any] = {}
    rules = [*master_key.CONFIG, *access.CONFIG, *options.compared(mine.opts, files)]
    for rule in [*rules, *SOURCES]:
        now = leaves_of(rule, files, mine.nonce)
        then = leaves_of(rule, mine.opts, mine.nonce)
        for path in now.keys() | then.keys():
            pair = {"file": now.get(path, ABSENT), "running": then.get(path, ABSENT)}
            if meant(rule, path, pair["file"]) != meant(rule, path, pair["running"]):
                leaves[path] = pair
    key = keys.public_fingerprint(mine.opts)
    if key and mine.master_key and key != mine.master_key:
        leaves["master_key"] = {"file": key, "running": mine.master_key}
    return Facts(leaves)


def as_started(files: Mapping[str, Any]) -> Mapping[str, Any]:
    """*files* as salt-master has them once it runs: it adds the engine ``reactor`` if need be."""
    engines = files.get("engines") or []
    if not files.get("reactor") or not isinstance(engines, (list, Mapping)):
        return files
    if any("reactor" in each for each in engines if isinstance(each, (str, Mapping))):
        return files
    reactor: Mapping[str, Any] = {"reactor": {}}
    whole = {**engines, **reactor} if isinstance(engines, Mapping) else [*engines, reactor]
    return {**files, "engines": whole}


def compare(parts: Mapping[str, Facts]) -> list[Difference]:
    """Compare each master with itself; only masters with a difference are named."""
    by_path: dict[str, dict[str, Any]] = {}
    for name, facts in sorted(parts.items()):
        for path, pair in facts.leaves.items():
            by_path.setdefault(path, {})[name] = pair
    found = []
    for path, values in sorted(by_path.items()):
        labels: dict[str, str] = {}
        found.append(
            {
                "path": path,
                "values": {name: labelled(pair, labels) for name, pair in values.items()},
                "severity": DRIFT,
                "fix": f"restart salt-master on {names(values)}",
            }
        )
    return found


def unknown(parts: Mapping[str, Facts]) -> dict[str, str]:
    """Masters whose files cannot be read."""
    return {name: why for name, facts in parts.items() for why in facts.unknown.values()}


SECTION = Section(
    "running",
    "Does each master run with what its configuration files say now?",
    take,
    compare,
    unknown,
)
