"""
Which version of a tree is current: a register that merges like a key's record.

Values that were written without knowing of each other stay side by side (see :mod:`.record`). If
they name different versions, that is a conflict: every master goes on serving what it serves, until
the next deployment, which knows of both. A peer's register is checked like a peer's record
(:mod:`.vouching`).
"""

from __future__ import annotations

from typing import NamedTuple

from saltext_ha.replication.record import Dot
from saltext_ha.replication.register import SharedRegister

KEPT = 5
"""How many deployments can be gone back to, with the current one."""
MOST_NUMBER = 2**40
"""The greatest number that a deployment may have."""


class Entry(NamedTuple):
    """
    One deployment, as shown to people. ``version`` is the SHA-256 of the tree's manifest; ``at`` is
    in Unix seconds, ``size`` in bytes; ``source`` says where the files were taken from.
    """

    number: int
    version: bytes
    at: float
    by: str
    on: str
    source: str
    message: str
    files: int
    size: int


class Deployment(NamedTuple):
    """
    One write: the version made current, and the deployments that can be gone back to, newest first.
    """

    dot: Dot
    kept: tuple[Entry, ...]

    @property
    def entry(self) -> Entry:
        """The deployment itself."""
        return self.kept[0]

    @property
    def version(self) -> bytes:
        """The version of the tree that this write made current."""
        return self.kept[0].version


class Register(SharedRegister[Deployment]):
    """All that is known of the current version of one tree."""

    @staticmethod
    def rank(value: Deployment) -> tuple[int, Dot]:
        """The newest."""
        return value.entry.number, value.dot

    @staticmethod
    def text(value: Deployment) -> str:
        """Its version."""
        return value.version.hex()

    @property
    def current(self) -> Deployment | None:
        """The version to serve; None: nothing was deployed, or there is a conflict."""
        return None if self.conflict or not self.values else max(self.values, key=self.rank)

    @property
    def conflict(self) -> bool:
        """Whether different versions were deployed without knowing of each other."""
        return len({value.version for value in self.values}) > 1

    @property
    def entries(self) -> list[Entry]:
        """All deployments that can be gone back to, newest first."""
        if len(self.values) == 1:
            return list(self.values[0].kept)
        found = {entry for value in self.values for entry in value.kept}
        return sorted(found, reverse=True)


def deploy(known: Register, dot: Dot, entry: Entry, old: Entry | None = None) -> Register:
    """
    *known* after *entry* was deployed with knowledge of all of it, as the next number. Of more than
    :data:`KEPT`, the oldest of a version that is there twice goes first.

    :param dot: the name of this write.
    :param old: number 0, what was served before; used if this is the first deployment.
    """
    before = known.entries or ([old] if old else [])
    # A malicious member may have used up all numbers: then counting begins anew.
    number = 1 + max((old.number for old in before if old.number < MOST_NUMBER), default=0)
    kept = [entry._replace(number=number), *before]
    while len(kept) > KEPT:
        # Deployments that only mend what was edited must not use up the way back.
        versions = [one.version for one in kept]
        again = [place for place, one in enumerate(versions) if one in versions[:place]]
        del kept[again[-1] if again else -1]
    return known.written(dot, [Deployment(dot, tuple(kept))])
