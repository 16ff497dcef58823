"""A million keys: what one engine needs to start and to rest, and two engines to be the same."""

from __future__ import annotations

from pathlib import Path

from lab import key_folders
from lab.engines import Place, befriend
from proving.benchmarks import exchange, scale
from proving.benchmarks.report import Row

KEYS = 1_000_000


def measure(root: Path, size: int, idle: float, rounds: int) -> list[Row]:
    """
    Cold and warm start, rest, a new master, and *rounds* of anti-entropy between the two.

    The files are written once: each row begins with what the row before left. Other tools are not
    measured.
    """
    old, new = Place(root, "m1"), Place(root, "m2")
    key_folders.plant(old.pki_dir, key_folders.ids(size))
    rows = scale.started(old, size, idle)
    befriend(old, new)
    rows.append(scale.joined(old, new, size))
    one, two = (Place(root, place.name, exchange.HA, port=place.port) for place in (old, new))
    return rows + exchange.between(one, two, size, rounds)
