"""The interface of all stores of the leader, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol

from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once import no_part
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.group_leader import GroupLeader
from saltext_ha.once.leadership import Leadership
from saltext_ha.sync.line import Line
from saltext_ha.transport.listener import Handler


class Leader(Protocol):
    """Knows who leads, and takes part in the election for this master."""

    @property
    def standing(self) -> Leadership:
        """Who leads now, as far as this master knows."""
        ...

    def notes(self) -> Iterator[str]:
        """Notes for operators."""
        ...

    def for_peers(self) -> dict[str, Handler]:
        """Method → its handler, for peers."""
        ...

    async def claim(self, name: str, within: float) -> str:
        """
        Why this leader may not run *name* now, though it leads and the masters that it reaches know
        of no run *within* so many seconds; or empty.

        :raises HaError: the store does not say. :raises LeadsNoMore: this master leads no more.
        """
        ...

    def run(self) -> Coroutine[Any, Any, None]:
        """Take part while the engine runs."""
        ...


def make(
    me: Candidate,
    group: str,
    settings: LeaderSettings | None,
    lines: Mapping[str, Line],
    is_member: Callable[[str], bool],
) -> Leader:
    """
    Make the leader of the store that *settings* name.

    :param lines: to the peers, by name. :param is_member: whether a name is that of a master of
        the group, whether there is a line to it or not.
    """
    if settings is None:
        return NoLeader()
    if settings.store == ETCD:
        return EtcdLeader(me, group, settings, is_member)
    return GroupLeader(me, settings, lines)


class NoLeader:
    """``ha: leader: false``: this master takes no part."""

    standing = Leadership("", why="ha: leader: false: this master takes no part")

    def notes(self) -> Iterator[str]:
        return iter(())

    def for_peers(self) -> dict[str, Handler]:
        return no_part.refusing("ha: leader: false there")

    async def claim(self, name: str, within: float) -> str:
        return ""

    async def run(self) -> None:
        return
