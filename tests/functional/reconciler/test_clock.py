"""Invariant I5: clocks that jump while engines run change nothing but what people read."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.key_folders import public_keys
from saltext_ha.transport.client import call_once
from tests import peers
from tests.loop import in_a_loop
from tests.processes import ACCEPTED, PENDING, REJECTED, Group

KEYS = dict(zip((f"web{number}" for number in range(4)), public_keys(7), strict=False))
HOURS = 3600.0
IN_1970, IN_2099 = -time.time() + 60, 4070908800 - time.time()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path, "m1", "m2")
    for master in group.masters:
        master.knock(KEYS)
    group.start()
    yield group
    group.kill()


@pytest.mark.parametrize(
    "there",
    [6 * HOURS, -6 * HOURS, IN_1970, IN_2099],
    ids=["6 hours ahead", "6 hours back", "in 1970", "in 2099"],
)
def test_a_clock_jumps_between_decisions(group: Group, there: float) -> None:
    m1, m2 = group.masters
    group.comes_to({(PENDING, i): text for i, text in KEYS.items()})
    m1.accept(*KEYS)
    m1.ask("sync")
    group.comes_to({(ACCEPTED, i): text for i, text in KEYS.items()})
    m1.set_clock(there)
    m1.reject("web0")
    m1.delete("web1")
    m1.ask("sync")
    left = {(ACCEPTED, i): KEYS[i] for i in ("web2", "web3")}
    group.comes_to(left | {(REJECTED, "web0"): KEYS["web0"]})
    writes = m1.ask("history", glob="web0")["writes"]
    (at,) = (write["at"] for write in writes if write["state"] == "rejected")
    assert abs(at - time.time() - there) < HOURS, "the engine goes by another clock"
    # The later decision counts, on whichever master and whatever its clock says.
    m2.delete("web0")
    m2.ask("sync")
    group.comes_to(left)
    m1.set_clock(-there)
    m1.engine.kill()
    m1.engine.start()
    m1.ask("restore", minion="web1")
    m2.delete("web2")
    m2.ask("sync")
    del left[ACCEPTED, "web2"]
    group.comes_to(left | {(ACCEPTED, "web1"): KEYS["web1"]})


@pytest.mark.parametrize("years", [-60, 100])
@in_a_loop
async def test_masters_whose_clocks_are_years_apart_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """
    A certificate made by a clock that was years off is pinned like any other, and serves.

    OpenSSL asks the kernel for the time, which no test can set; so the certificate is moved.
    """

    class Elsewhen(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Elsewhen:
            return super().now(tz) + datetime.timedelta(days=365 * years)

    m1 = peers.Master(tmp_path, "m1")
    with monkeypatch.context() as patch:
        patch.setattr("saltext_ha.transport.identity.datetime.datetime", Elsewhen)
        m2 = peers.Master(tmp_path, "m2")
    peers.befriend(m1, m2)

    async with m1.running({"echo": peers.echo}), m2.running({"echo": peers.echo}):
        for one, other in ((m1, m2), (m2, m1)):
            answer = await call_once(one.identity, other.peer, "echo")
            assert answer["caller"] == one.name
