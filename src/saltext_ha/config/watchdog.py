"""The ``ha: watchdog:`` mapping of a minion's configuration, parsed once into frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common import validators
from saltext_ha.common.errors import ConfigError
from saltext_ha.common.validators import checks, flag, seconds, setting, whole


@dataclass(frozen=True)
class WatchdogSettings:
    """
    The settings of the watchdog. Durations are in seconds.

    :ivar interval: seconds between two looks at a master that works.
    :ivar timeout: seconds that a master may take to answer; not more than ``interval``.
    :ivar failures: looks in a row that must fail before the minion is moved; the next one after a
        failure comes after a fifth of ``interval``.
    :ivar jitter: a move is delayed by a random time of up to so many seconds, so that not all
        minions of a dead master arrive on the next one at once; [more for thousands of
        minions](minions.md#thousands-of-minions).
    :ivar failback: go back to the first master of the list when it has worked for ``stable``.
        Not with ``random_master`` or ``master_shuffle``, which leave no master to prefer.
    :ivar stable: seconds for which the first master must have answered every look.
    :ivar restart: restart a minion that is stuck between two masters.
    :ivar report: seconds between two events by which the minion tells the master that it is bound
        to it, for ``ha.minions``; 0: none.
    """

    interval: float = setting(seconds(0.5, 3600), 5.0)
    timeout: float = setting(seconds(0.1, 300), 2.5)
    failures: int = setting(whole(1, 100), 2)
    jitter: float = setting(seconds(0, 3600), 2.0)
    report: float = setting(seconds(0, 86400), 300.0)
    failback: bool = setting(flag, False)
    stable: float = setting(seconds(1, 86400), 60.0)
    restart: bool = setting(flag, True)

    @property
    def soon(self) -> float:
        """Seconds until the next look at a master that did not answer."""
        return self.interval / 5


SECTIONS = ("watchdog", "lint")
"""What may stand under ``ha:`` in the configuration of a minion."""


WAITS: Mapping[str, float] = {"auth_timeout": 60, "acceptance_wait_time": 10}
"""Options of Salt that the watchdog reckons with, and Salt's defaults, in seconds."""


def jitter_for(minions: int) -> int:
    """
    The ``jitter``, in seconds, that suits a group of so many *minions*: 3 for each thousand, in
    steps of 5, because a minion with another setting than before has to be restarted.

    All of a dead master's minions notice within one ``interval``. So that they arrive on the next
    one at no more than 400 a second, more minions are spread over a longer time (simulated in
    test_watchdog_decide.py). Up to about 600 the default is enough.
    """
    needed = minions * 3 / 1000
    return (
        int(WatchdogSettings.jitter)
        if needed <= WatchdogSettings.jitter
        else 5 * math.ceil(needed / 5)
    )


def parse(opts: Mapping[str, Any]) -> WatchdogSettings:
    """
    Read ``ha: watchdog:`` out of a minion's *opts*.

    :raises ConfigError: naming file, key, value and what the key takes.
    """
    try:
        return read(opts)
    except ValueError as exc:
        source = validators.source(opts, "the minion configuration")
        raise ConfigError(f"{source}: {exc}") from None


def read(opts: Mapping[str, Any]) -> WatchdogSettings:
    """As :func:`parse`. :raises ValueError: as its error, without the file."""
    section = _mapping("ha:", opts.get("ha"))
    for key in section:
        if key not in SECTIONS:
            raise ValueError(f"ha: {validators.unknown(key, SECTIONS)}")
    raw = _mapping("ha: watchdog:", section.get("watchdog"))
    try:
        settings = WatchdogSettings(**validators.read(raw, checks(WatchdogSettings)))
    except ValueError as exc:
        raise ValueError(f"ha: watchdog{exc}") from None
    if settings.timeout > settings.interval:
        raise ValueError(
            f"ha: watchdog: timeout: {settings.timeout:g} is longer than interval: "
            f"{settings.interval:g}; a look must be over before the next one"
        )
    if settings.failback and (option := by_chance(opts)):
        raise ValueError(
            f"ha: watchdog: failback: true cannot be with {option}: true, which "
            "leaves no master to prefer; drop one of them"
        )
    for option in WAITS:
        patience(opts, option)
    return settings


def by_chance(opts: Mapping[str, Any]) -> str:
    """
    The option because of which Salt takes the masters of a failover minion in a random order; empty
    without one. Salt makes the old one the new one only when it looks for a master, which is after
    it has started the engines.
    """
    return next((name for name in ("random_master", "master_shuffle") if opts.get(name)), "")


def patience(opts: Mapping[str, Any], option: str) -> float:
    """
    The seconds of one of Salt's own options in :data:`WAITS`.

    :raises ValueError: naming option and what it takes; not with *opts* that were parsed.
    """
    value = opts.get(option) or WAITS[option]
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(validators.wrong(option, value, "takes seconds")) from None


def _mapping(where: str, value: Any) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} takes a mapping, not {validators.kind(value)}")
    return value
