"""
What Salt's master keeps of a minion that it has accepted: grains and pillar, in ``cachedir``.

``salt-key -d`` clears this for an id without any key left, so the engine must, too, when it revokes
the last key. Salt 3006 and 3007 have a folder for each minion, 3008 a file in each of two banks.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

EMPTY = b"\x80"
"""No grains, as msgpack."""


class Caches:
    """
    The caches of one master.

    :param cachedir: the master's.
    :param release: of its Salt, for instance ``3008.3``.
    """

    def __init__(self, cachedir: Path, release: str) -> None:
        self._cachedir = cachedir
        self._by_minion = release.split(".")[0] in ("3006", "3007")

    def fill(self, minion_id: str) -> None:
        """Cache the grains of *minion_id*, unless the disk is full."""
        for path in self._paths(minion_id):
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.write_bytes(EMPTY)

    def clear(self, minion_id: str) -> None:
        for path in self._paths(minion_id):
            with contextlib.suppress(OSError):
                path.unlink()

    def has(self, minion_id: str) -> bool:
        return any(path.exists() for path in self._paths(minion_id))

    def _paths(self, minion_id: str) -> list[Path]:
        if self._by_minion:
            return [self._cachedir / "minions" / minion_id / "data.p"]
        return [self._cachedir / bank / f"{minion_id}.p" for bank in ("grains", "pillar")]
