"""The state of one tree on one master, as masters tell it each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from saltext_ha.common.files import as_text
from saltext_ha.replication.deployment import Entry
from saltext_ha.transport import wire
from saltext_ha.trees.live_path import FOREIGN
from saltext_ha.trees.obstacles import obstacle
from saltext_ha.trees.store import TreeStore

LISTED = 20


@dataclass(frozen=True)
class TreeState:
    """
    :ivar live: as :meth:`.LivePath.look` says it. :ivar version: the one served; empty: none.
    :ivar foreign: what to do about something foreign at the live path.
    :ivar obstacle: why no version can be served there; empty: it can.
    :ivar edited: how many paths were changed by hand there. :ivar edits: the first of them.
    """

    live: str
    version: bytes = b""
    foreign: str = ""
    obstacle: str = ""
    edited: int = 0
    edits: Sequence[str] = ()

    @classmethod
    def of(cls, store: TreeStore) -> TreeState:
        """The state of a tree here. :raises OSError: a folder cannot be looked at."""
        live, version = store.live()
        if version and store.versions.manifest(version) is None:
            version = None  # its manifest is damaged: whether it was edited cannot be known
        edits = store.versions.edits(version) if version else ((), (), ())
        paths = sorted({path for each in edits for path in each})
        return cls(
            live,
            version or b"",
            store.place.foreign() if live == FOREIGN else "",
            obstacle(store.tree),
            len(paths),
            [*map(as_text, paths[:LISTED])],
        )

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> TreeState:
        """What a master told by :meth:`told`. :raises InvalidRecord: it makes no sense."""
        return cls(
            wire.field(told, "live", str),
            wire.field(told, "version", bytes),
            wire.field(told, "foreign", str),
            wire.field(told, "obstacle", str),
            wire.field(told, "edited", int),
            wire.texts(told, "edits"),
        )

    def told(self) -> dict[str, Any]:
        """The fields, for a message."""
        return asdict(self)

    def serves(self, entries: Iterable[Entry]) -> int | str:
        """Which deployment is served; in words if it is none of *entries*."""
        if self.live == FOREIGN:
            return "a folder of its own"
        if not self.version:
            return "nothing"
        found = (entry.number for entry in entries if entry.version == self.version)
        return next(found, "one that is not kept")
