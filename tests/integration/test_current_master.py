"""``ha.current_master`` and ``ha.masters`` on real minions, asked by real masters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from lab.cli import Result
from saltext_ha.common.version import ours
from tests.integration.conftest import MakeLab
from tests.integration.group import LONG, PATIENT, SOON


@dataclass
class Site:
    """m1 and m2 as in production; ``other`` is a third master on m2's address, other ports."""

    lab: Lab
    m1: Master
    m2: Master
    other: Master
    hot: Minion
    failover: Minion
    shared: Minion


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        m1 = lab.add_master("m1", engine=False, config={"master_id": "m1"})
        m2 = lab.add_master("m2", engine=False)
        ports = {"publish_port": lab.ports.peer, "ret_port": lab.ports.status}
        other = lab.add_master("other", engine=False, config={"interface": m2.address, **ports})
        other.publish_port, other.ret_port = ports["publish_port"], ports["ret_port"]
        m1.share_master_key(m2, other)
        hot = lab.add_minion("hot", [m1, m2])
        failover = lab.add_minion("failover", [m1, m2], type="failover")
        # 4506 is Salt's way to say that the masters tell it; jobs run in threads of the minion.
        addresses = [f"{master.address}:{master.ret_port}" for master in (m2, other)]
        config = {"master": addresses, "publish_port": 4506, "multiprocessing": False}
        shared = lab.add_minion("shared", [m2, other], config=config)
        for minion in (hot, failover, shared):
            minion.plant_key()
        lab.start_all([m1, m2, other])
        lab.start_all([hot, shared])
        # A master listens before its workers answer; the failover minion would pass it by.
        for minion in (hot, shared):
            minion.wait_ready()
        failover.start()
        failover.wait_ready()
        yield Site(lab, m1, m2, other, hot, failover, shared)


def ask(master: Master, minion: Minion, function: str, *args: Any, **kwargs: Any) -> Any:
    """What *function* returns on *minion* when *master* sends the job."""

    def answer() -> Any:
        data = master.salt(minion.name, function, *args, "--timeout=30", **kwargs).data
        return data and data.get(minion.name)

    # Connected is a little earlier than subscribed: the first job may pass a minion by.
    return wait_for(answer, LONG, f"{minion.name} answers {master.name}")


def connected(rows: list[dict[str, Any]]) -> dict[tuple[str, int], bool | None]:
    return {(row["address"], row["port"]): row["connected"] for row in rows}


@pytest.mark.core
def test_a_hot_minion_names_the_master_that_asked(site: Site) -> None:
    for master, name in ((site.m1, "m1"), (site.m2, None)):
        assert ask(master, site.hot, "ha.current_master") == {
            "kind": "current_master",
            "address": master.address,
            "ip": master.address,
            "port": master.ret_port,
            "publish_port": master.publish_port,
            "id": name,  # m2 has no master_id, so nobody tells
            "type": "list",
            "masters": [site.m1.address, site.m2.address],
            "connected": True,
            "version": ours(),
        }


@pytest.mark.core
def test_people_see_a_line(site: Site) -> None:
    m1 = site.m1
    ask(m1, site.hot, "ha.current_master")
    shown = m1.cli("salt", "hot", "ha.current_master", PATIENT, out=None).check().stdout
    (line,) = shown.splitlines()
    assert line == f"hot: m1 ({m1.address}:{m1.ret_port}) · hot-hot, one of 2 masters"
    (line,) = (
        site.shared.cli("salt-call", "ha.current_master", out=None).check().stdout.splitlines()
    )
    assert line.startswith("local: ")


@pytest.mark.core
def test_masters_lists_all_in_configured_order(site: Site) -> None:
    rows = ask(site.m2, site.hot, "ha.masters", "timeout=15", ping=True)
    pings = [row.pop("ping") for row in rows]
    assert rows == [
        {
            "address": master.address,
            "ip": master.address,
            "port": master.ret_port,
            "publish_port": master.publish_port,
            "configured": master.address,
            "current": master is site.m2,
            "connected": True,
            "publishes": True,
        }
        for master in (site.m1, site.m2)
    ]
    assert [ping["answers"] for ping in pings] == [True, True]
    assert all(0 < ping["milliseconds"] < 15000 for ping in pings)


@pytest.mark.core
def test_ping_masters_asks_each(site: Site) -> None:
    for minion, expected in (
        (site.hot, [(site.m1, False), (site.m2, True)]),
        (site.shared, [(site.m2, True), (site.other, False)]),
    ):
        rows = ask(site.m2, minion, "ha.ping_masters", "timeout=15")
        assert [(row["address"], row["port"], row["current"], row["answers"]) for row in rows] == [
            (master.address, master.ret_port, current, True) for master, current in expected
        ]
    pinged = ping_locally(site.hot)
    assert pinged.returncode == 0, pinged


def ping_locally(minion: Minion) -> Result:
    """Without a master: the way for who sits at the minion and wonders."""
    command = ("salt-call", "--local", "--retcode-passthrough", "ha.ping_masters", "timeout=15")
    return minion.cli(*command)


@pytest.mark.core
def test_two_masters_on_one_address_are_told_apart(site: Site) -> None:
    for master in (site.m2, site.other):
        answer = ask(master, site.shared, "ha.current_master", "timeout=15", ping=True)
        assert (answer["address"], answer["port"]) == (site.m2.address, master.ret_port)
        assert answer["publish_port"] == master.publish_port
        assert answer["connected"] is True
        assert answer["ping"]["answers"] is True
    try:
        site.other.kill()
        gone = {
            (site.m2.address, site.m2.ret_port): True,
            (site.m2.address, site.other.ret_port): False,
        }
        rows = ask(site.m2, site.shared, "ha.masters")
        assert connected(rows) == gone
    finally:
        site.other.start()
        wait_for(lambda: len(site.shared.bound_to()) == 2, SOON, "shared is back on both")


def test_a_frozen_master_keeps_its_connection_but_does_not_answer(site: Site) -> None:
    site.m1.suspend()
    try:
        first, second = ask(site.m2, site.hot, "ha.masters", "timeout=15", ping=True)
        pinged = ping_locally(site.hot)
    finally:
        site.m1.resume()
    assert first["connected"] is True
    assert first["ping"]["answers"] is False
    assert first["ping"]["milliseconds"] is None
    assert first["ping"]["note"]
    assert second["ping"]["answers"] is True
    rows = pinged.data["local"]
    assert pinged.returncode == 1
    assert [(row["address"], row["answers"]) for row in rows] == [
        (site.m1.address, False),
        (site.m2.address, True),
    ]
    assert rows[0]["note"]
    assert 0 < rows[1]["milliseconds"] < 15000


def test_salt_call_speaks_for_the_running_minion(site: Site) -> None:
    answer = site.hot.salt_call("ha.current_master").data
    assert answer["address"] in (site.m1.address, site.m2.address)
    assert answer["connected"] is True
    rows = site.hot.salt_call("ha.masters").data
    assert [row["connected"] for row in rows] == [True, True]
    # Without any master it can still look, but nobody asked.
    local = site.hot.cli("salt-call", "--local", "ha.current_master").data["local"]
    assert (local["address"], local["connected"]) == (None, None)
    assert site.m1.address in local["note"]
    # Whichever master salt-call itself is sent to.
    own = site.failover.salt_call("ha.current_master").data
    for master in (site.m1, site.m2):
        sent = site.failover.cli("salt-call", f"--master={master.address}", "ha.current_master")
        assert sent.data["local"] == own


def test_salt_call_does_not_guess_between_masters_on_one_address(site: Site) -> None:
    rows = site.shared.salt_call("ha.masters").data
    known = [row for row in rows if row["current"]]  # the one that salt-call spoke to
    assert [row["connected"] for row in known] == [True]
    (unknown,) = (row for row in rows if not row["current"])
    assert (unknown["publish_port"], unknown["connected"]) == (None, None)
    assert "publish port is unknown" in unknown["note"]


@pytest.mark.parametrize("function", ["ha.current_master", "ha.masters", "ha.ping_masters"])
def test_a_minion_without_a_master_gets_a_clear_answer(site: Site, function: str) -> None:
    name = f"alone-{function.removeprefix('ha.')}"
    config = {"master_type": "disable", "file_client": "local"}
    alone = site.lab.add_minion(name, [site.m1], config=config)
    if function == "ha.ping_masters":
        result = alone.cli("salt-call", "--retcode-passthrough", function)
        assert (result.data["local"], result.returncode) == ([], 2)
        return
    result = alone.salt_call(function, ping=True).check()
    if function == "ha.masters":
        assert result.data == []
    else:
        assert result.data["type"] == "disable"
        assert (result.data["address"], result.data["connected"]) == (None, None)
        assert "connects to no master" in result.data["note"]
        assert result.data["ping"]["answers"] is None


def test_salt_call_says_when_no_minion_is_running(site: Site) -> None:
    idle = site.lab.add_minion("idle", [site.m1, site.m2], type="failover")
    idle.plant_key()
    answer = idle.salt_call("ha.current_master").check().data
    assert (answer["address"], answer["connected"]) == (None, None)
    assert "no running minion" in answer["note"]


def test_a_mistyped_argument_is_named(site: Site) -> None:
    result = site.m1.salt(site.hot.name, "ha.current_master", PATIENT, pong=True)
    assert "pong" in str(result.data)
    assert "ping and timeout" in str(result.data)
    result = site.m1.salt(site.hot.name, "ha.masters", "timeout=soon", PATIENT)
    assert "'soon' takes seconds" in str(result.data)


@pytest.mark.core
def test_the_death_of_a_master(site: Site) -> None:
    m1, m2 = site.m1, site.m2
    before = ask(m1, site.failover, "ha.current_master")
    assert (before["type"], before["address"]) == ("failover", m1.address)
    assert (before["connected"], before["masters"]) == (True, [m1.address, m2.address])
    rows = ask(m1, site.failover, "ha.masters")
    assert connected(rows) == {(m1.address, m1.ret_port): True, (m2.address, m2.ret_port): False}

    m1.kill()
    rows = ask(m2, site.hot, "ha.masters", "timeout=15", ping=True)
    assert connected(rows) == {(m1.address, m1.ret_port): False, (m2.address, m2.ret_port): True}
    assert [row["ping"]["answers"] for row in rows] == [False, True]
    after = ask(m2, site.failover, "ha.current_master", "timeout=15", ping=True)
    assert (after["address"], after["connected"]) == (m2.address, True)
    assert after["ping"]["answers"] is True

    # salt-call goes to the first master of the list again, the minion stays where it is.
    m1.start()
    called = site.failover.salt_call("ha.current_master").check().data
    assert (called["address"], called["connected"]) == (m2.address, True)
    wait_for(lambda: site.hot.bound_to() == ["m1", "m2"], SOON, "the hot minion is back on m1")
    assert ask(m1, site.hot, "ha.current_master")["connected"] is True
