"""``store: etcd``: who has the key, and is no master of the group, does not lead it."""

from __future__ import annotations

from unittest import mock

from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.etcd_client import KeyHolder
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.leadership import Leadership
from tests.loop import in_a_loop


async def seen(holder: str) -> Leadership:
    """What m1, in a group with m2, makes of the value at the key."""
    settings = LeaderSettings(ETCD, endpoints=("http://e1:2379",))
    leader = EtcdLeader(
        Candidate("m1", lambda: "", lambda *_: None), "default", settings, {"m2"}.__contains__
    )
    leader.client = mock.AsyncMock()
    leader.client.get.return_value = KeyHolder(f"{holder} 0a1b 77", 5, 5)
    await leader._prolong_or_seek()
    return leader.standing


@in_a_loop
async def test_another_group_with_the_same_name_leaves_this_one_without_a_leader() -> None:
    """Its jobs would run on no master of this group, each with exit code 0."""
    found = await seen("s1")
    assert (found.leader, found.leads) == ("", False)
    assert found.why == (
        "s1 has the key /salt-ha/default/leader in etcd, and is no master of this group; if it is "
        "one of another group, give one of the two another  prefix:"
    )
    assert (await seen("m2")).leader == "m2"
