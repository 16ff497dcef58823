"""``engines:`` of a daemon: which engines Salt starts, and what is wrong in the entry of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from saltext_ha.common import validators
from saltext_ha.common.errors import ConfigError

OURS = {"master": "ha", "minion": "ha_watchdog"}
"""The role of a daemon (``__role`` of its options) → the engine of this package for it."""
_PLACES = {"ha": "ha: itself", "ha_watchdog": "ha: watchdog:"}
"""Our engines → where their settings stand."""


def started(value: Any) -> list[str]:
    """The engines that Salt starts by that *value* of ``engines:``: of each entry the first."""
    return [engine for engine, _ in _entries(value)]


def misplaced(engine: str, value: Any) -> str:
    """
    What to write instead, where that *value* of ``engines:`` has settings below *engine*, one of
    ours; empty if it has none.
    """
    found: list[str] = []
    for name, below in _entries(value):
        for each in (below if isinstance(below, list) else [below or {}]) if name == engine else ():
            found += map(str, each if isinstance(each, Mapping) else [each])
    return _instead(engine, [each for each in found if each != "engine_module"])


def astray(engine: str, role: Any) -> str:
    """Why *engine*, one of ours, is not for the daemon with that *role*; empty if it is."""
    if OURS.get(role, engine) == engine:
        return ""
    other = next(each for each, name in OURS.items() if name == engine)
    return f"engines: {engine}: is for salt-{other}; salt-{role} has  {OURS[role]}"


def check(engine: str, opts: Mapping[str, Any], settings: Iterable[str]) -> None:
    """
    Refuse *engine*, one of ours, if it is not for the daemon with *opts*, or was started with
    *settings*. In *opts* they may stand below any name: Salt takes ``engine_module`` out.

    :raises ConfigError: says what to write instead.
    """
    if wrong := astray(engine, opts.get("__role")) or _instead(engine, settings):
        raise ConfigError(f"{validators.source(opts, 'the configuration')}: {wrong}")


def _instead(engine: str, settings: Iterable[str]) -> str:
    """What to write instead of *settings* below *engine*; empty if there are none."""
    if not (named := ", ".join(settings)):
        return ""
    return (
        f"engines: {engine}: takes no settings ({named}); write them below {_PLACES[engine]}, "
        f"and here  - {engine}: {{}}"
    )


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Each engine, and what stands below it."""
    if isinstance(value, Mapping):
        value = [{name: below} for name, below in value.items()]
    for entry in value if isinstance(value, list) else ():
        name, below = entry, None
        if isinstance(entry, Mapping) and entry:
            name, below = next(iter(entry.items()))
        if isinstance(below, Mapping):
            name = below.get("engine_module", name)
        yield str(name), below
