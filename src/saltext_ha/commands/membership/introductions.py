"""Which masters a master brought into the group, by what all members say of their pins; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

ALWAYS = float("-inf")


class Pin(NamedTuple):
    """The master ``on`` trusts ``name``, which ``introducer`` (as in Peer) introduced."""

    on: str
    name: str
    fingerprint: str
    introducer: str | None
    added: str

    @property
    def at(self) -> float:
        """When it was pinned, in Unix seconds; 0 if unknown."""
        try:
            return datetime.fromisoformat(self.added).timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0


def introduced_by(
    name: str, pins: Sequence[Pin], own: str, since: float = ALWAYS
) -> dict[str, list[Pin]]:
    """
    The masters that *name* introduced, directly or through others, each with the pins that say so.

    A master that was admitted by a master outside this set is cleared: it is not in the set. What
    accused masters say does not count, so none clears itself, nor do two of them clear each other:
    an accused master clears others only after one that is not accused has cleared it.

    :param own: the master that asks.
    :param since: pins before this (Unix seconds) do not count.
    """
    pins = [pin for pin in pins if pin.on not in (name, pin.name)]
    accusing = [pin for pin in pins if pin.at >= since]
    accused = _led_to({}, name, [pin for pin in accusing if pin.on == own], {own})
    accused = _led_to(accused, name, accusing, {own})
    cleared = {own}
    while True:
        heard = [pin for pin in pins if pin.on not in accused or pin.on in cleared]
        more = {pin.name for pin in heard if pin.introducer == ""} - cleared - {name}
        if not more:
            break
        cleared |= more
    # Pins of masters that are not accused come first: a master found by them cannot accuse others.
    clean = [pin for pin in accusing if pin.on not in accused or pin.on in cleared]
    found = _led_to({}, name, clean, cleared)
    return _led_to(found, name, accusing, cleared)


def _led_to(
    found: Mapping[str, list[Pin]],
    name: str,
    pins: Sequence[Pin],
    cleared: Collection[str],
) -> dict[str, list[Pin]]:
    """
    *found*, extended step by step by the masters that *name* or a found master introduced, as the
    *pins* of other masters say; without those *cleared*.
    """
    found = dict(found)
    while True:
        suspects = {name, *found}
        more: dict[str, list[Pin]] = {}
        for pin in pins:
            if pin.name in suspects or pin.name in cleared:
                continue
            if pin.introducer in suspects and pin.on not in suspects:
                more.setdefault(pin.name, []).append(pin)
        if not more:
            return found
        found |= more
