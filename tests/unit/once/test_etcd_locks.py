"""Locks that are keys in etcd, by what etcd says at each moment."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from saltext_ha.common.errors import LeaseGone
from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once.etcd_client import EtcdClient, KeyHolder
from saltext_ha.once.locks import GONE, EtcdLocks, Wish

KEY = "/salt-ha/default/locks/backup"
WISH = Wish("backup", "alice")


class Etcd:
    """Keys and leases. What *taken_first* is takes the key between the look and the taking."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyHolder] = {}
        self.leases: set[str] = set()
        self.taken_first: KeyHolder | None = None
        self.gone = False
        """Whether a key that could not be taken is gone again."""

    async def get(self, key: str) -> KeyHolder | None:
        return self.keys.get(key)

    async def grant(self, ttl: int) -> tuple[str, int]:
        lease = f"lease{len(self.leases)}"
        self.leases.add(lease)
        return lease, ttl - 1

    async def keep_alive(self, lease: str) -> int:
        if lease not in self.leases:
            raise LeaseGone("it has ended")
        return 7

    async def take(self, key: str, value: str, lease: str) -> KeyHolder | None:
        if self.taken_first or self.gone:
            return self.taken_first
        return self.keys.setdefault(key, KeyHolder(value, 5, 5))

    async def revoke(self, lease: str) -> None:
        if lease not in self.leases:
            raise LeaseGone("it has ended")
        self.leases.remove(lease)
        self.keys = {k: held for k, held in self.keys.items() if not held.value.startswith(lease)}


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


def locks(etcd: Etcd) -> EtcdLocks:
    return EtcdLocks("default", LeaderSettings(ETCD, ttl=8), cast(EtcdClient, etcd))


def hold(etcd: Etcd, wish: Wish = WISH) -> dict[str, Any]:
    return asyncio.run(locks(etcd).hold(wish))


def test_it_is_taken_prolonged_and_given_back(etcd: Etcd) -> None:
    taken = hold(etcd)
    assert (taken["held"], taken["seconds"], taken["fence"]) == (True, 7, 5)
    mine = Wish("backup", "alice", taken["token"])
    assert hold(etcd, mine) == taken
    asyncio.run(locks(etcd).release(mine))
    assert (etcd.keys, etcd.leases) == ({}, set())
    asyncio.run(locks(etcd).release(mine))  # it has ended already
    assert hold(etcd, mine)["why"] == GONE


@pytest.mark.parametrize("holder", [None, KeyHolder("another 0 bob", 9, 9)])
def test_a_lease_without_its_key_is_no_lock(etcd: Etcd, holder: KeyHolder | None) -> None:
    token = hold(etcd)["token"]
    etcd.keys = {KEY: holder} if holder else {}
    assert hold(etcd, Wish("backup", "alice", token))["why"] == GONE


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("another HOUR bob at work", "bob at work has it, for 36"),
        ("another x bob", "bob has it"),
        ("another", "? has it"),
    ],
)
def test_who_has_it_is_told(etcd: Etcd, value: str, why: str) -> None:
    an_hour_ago = f"{time.time() - 3600:.0f}"
    etcd.taken_first = KeyHolder(value.replace("HOUR", an_hour_ago), 9, 9)
    answer = hold(etcd)
    assert answer["why"].startswith(why)
    assert etcd.leases == set(), "what was asked for in vain is given back"
    etcd.keys[KEY] = etcd.taken_first
    assert hold(etcd)["why"].startswith(why)
    assert etcd.leases == set()


def test_one_that_was_given_back_meanwhile_is_asked_for_again(etcd: Etcd) -> None:
    etcd.gone = True
    assert hold(etcd)["why"] == "it was given back just now"
    assert etcd.leases == set()
