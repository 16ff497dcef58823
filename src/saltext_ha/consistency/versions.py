"""Compares the software versions of the masters."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping

from saltext_ha.common import version
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import INSTALL, NOTE, EqualityRule
from saltext_ha.consistency.section import Mine, of_rules

RULES: Mapping[str, EqualityRule] = {
    rule.option: rule
    for rule in (
        EqualityRule("salt", fix=INSTALL),
        EqualityRule("saltext-ha", fix=INSTALL),
        EqualityRule(
            "extension",
            fix="install the same release of that extension (salt-pip install) on {masters}, "
            "restart salt-master there",
        ),
        EqualityRule("python", fix=INSTALL, severity=NOTE),
    )
}


def take(mine: Mine) -> Facts:
    """The versions installed when this master started: later ones run from the next start."""
    leaves = {
        "salt": version.salt(),
        "saltext-ha": version.ours(),
        "python": platform.python_version(),
    }
    leaves.update({f"extension:{name}": release for name, release in extensions()})
    return Facts(leaves, {}, tuple(RULES))


@functools.cache
def extensions() -> tuple[tuple[str, str], ...]:
    """The other Salt extensions: name and release of each package with a ``salt.loader`` entry."""
    found = {}
    for package in importlib.metadata.distributions():
        if any(entry.group == "salt.loader" for entry in package.entry_points):
            name = str(package.metadata["Name"])
            found[name.lower().replace("_", "-")] = version.distribution(name).version
    found.pop(version.NAME, None)
    return tuple(sorted(found.items()))


SECTION = of_rules(
    "versions", "Do they run the same Salt, Python, saltext-ha and other extensions?", take, RULES
)
