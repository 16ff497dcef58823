"""The stores of the leader, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once.candidate import Candidate, refusing
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.group_leader import GroupLeader
from saltext_ha.once.leadership import Leadership
from saltext_ha.sync.contact import Contact
from saltext_ha.transport.listener import Handler


class NoLeader:
    """``ha: leader: false``: this master takes no part."""

    standing = Leadership("", why="ha: leader: false: this master takes no part")

    def notes(self) -> Iterator[str]:
        return iter(())

    def for_peers(self) -> dict[str, Handler]:
        return refusing("ha: leader: false there")

    async def claim(self, name: str, within: float) -> str:
        return ""

    async def run(self) -> None:
        return


Leader = GroupLeader | EtcdLeader | NoLeader
"""Knows who leads, and takes part in the election for this master."""


def make(
    me: Candidate,
    group: str,
    settings: LeaderSettings | None,
    contacts: Mapping[str, Contact],
    is_member: Callable[[str], bool],
) -> Leader:
    """
    Make the leader of the store that *settings* name.

    :param contacts: to the peers, by name. :param is_member: whether a name is that of a master of
        the group, whether there is a contact to it or not.
    """
    if settings is None:
        return NoLeader()
    if settings.store == ETCD:
        return EtcdLeader(me, group, settings, is_member)
    return GroupLeader(me, settings, contacts)
