"""Where real minions are connected, whom they hear, and how they move off a master and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Master, Minion, wait_for
from lab.cli import Result
from lab.forwarder import Forwarder
from saltext_ha.minion.watchdog.journal import ASKED
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK
from tests.integration.watching import SOON, history, watched

pytestmark = pytest.mark.core

TIMEOUT = 4
STABLE = 10
# Quick, and yet a master that is only slow is not left.
LOOKS = {"interval": 1, "timeout": 0.9, "failures": 20, "report": 2}


@dataclass
class Site:
    """
    Two masters; two failover minions with the watchdog, one of which wants back to m1; one that is
    bound to both, to m2 through a network that may break.
    """

    m1: Master
    m2: Master
    failover: list[Minion]
    publisher: Forwarder


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab, ExitStack() as stack:
        quick = {"gather_job_timeout": 1, "timeout": 2}
        m1, m2 = (lab.add_master(name, ha=QUICK, config=quick) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        far = lab.new_address()
        publisher, _ = (
            stack.enter_context(Forwarder((far, port), (m2.address, port)))
            for port in (m2.publish_port, m2.ret_port)
        )
        failover = [
            lab.add_minion("web1", [m1, m2], "failover", config=watched(**LOOKS)),
            lab.add_minion(
                "web2",
                [m1, m2],
                "failover",
                config=watched(**LOOKS, failback=True, stable=STABLE),
            ),
        ]
        stock = lab.add_minion("stock", [m1], "hot", config={"master": m1.address})
        hot = lab.add_minion("hot", [m1, m2], "hot", config={"master": [m1.address, far]})
        minions = [*failover, hot, stock]
        for minion in minions:
            minion.plant_key()
        lab.start_all([m1, m2])
        lab.form_group()
        for minion in minions:
            minion.launch()
        yield Site(m1, m2, failover, publisher)


@pytest.fixture(autouse=True)
def _settled(site: Site) -> None:
    """What one test left does not fail the next."""
    settled(site)


def settled(site: Site) -> None:
    """All minions answer, and the movable ones are on m1."""

    def there() -> bool:
        # A minion on a busy machine answers late, and later the more it is asked.
        answer = live(site.m1, timeout=20)
        rows = {row["id"]: row for row in answer["minions"]}
        at_home = all(rows[minion.name]["masters"] == ["m1"] for minion in site.failover)
        if not at_home and answer["retcode"] == 0:
            site.m1.control("drain", {"name": "m2", "timeout": 30})
        return at_home and bool(answer["retcode"] == 0)

    wait_for(there, SOON, "all minions are where they belong", poll=1)


def live(master: Master, glob: str = "*", timeout: float = TIMEOUT) -> dict[str, Any]:
    return master.control("minions", {"glob": glob, "live": True, "timeout": timeout})


def where(answer: dict[str, Any]) -> dict[str, Any]:
    return {row["id"]: (row["state"], row["masters"]) for row in answer["minions"]}


def reach(master: Master, glob: str = "*") -> dict[str, Any]:
    return master.control("reachability", {"glob": glob, "timeout": TIMEOUT})


def cells(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        row["id"]: (row["state"], {name: cell["state"] for name, cell in row["answers"].items()})
        for row in answer["minions"]
    }


def test_where_minions_are(site: Site) -> None:
    """Without a job: their watchdogs say so; and the kernel says how many there are."""
    home = {"web1": ("bound", ["m1"]), "web2": ("bound", ["m1"])}
    for master in (site.m1, site.m2):

        def reported(master: Master = master) -> list[dict[str, Any]]:
            known = master.control("minions", {"glob": "web*"})
            told: list[dict[str, Any]] = known["minions"]
            right = (where(known), known["retcode"]) == (home, 0)
            return told if right and {row["by"] for row in told} == {"watchdog"} else []

        told = wait_for(reported, SOON, "the watchdogs have reported")
        assert {row["type"] for row in told} == {"failover"}
    counts = {"m1": (4, 4), "m2": (1, 1)}

    def all_answer() -> Result | None:
        asked = site.m2.salt_run("ha.minions", f"timeout={TIMEOUT}", live=True)
        rows = asked.data["masters"]
        seen = {row["name"]: (row["connections"], row["minions"]) for row in rows}
        # A watchdog that looks at a publisher is connected to it for an instant.
        return asked if (asked.returncode, seen) == (0, counts) else None

    asked = wait_for(all_answer, SOON, "all answer in time")
    assert where(asked.data) == {
        **home, "hot": ("bound", ["m1", "m2"]), "stock": ("bound", ["m1"]),
    }  # fmt: skip

    def bound() -> dict[str, int]:
        return {row["name"]: row["bound"] for row in site.m1.control("status")["masters"]}

    wait_for(lambda: bound() == {"m1": 4, "m2": 1}, SOON, "the status counts them")

    def told_by_its_watchdog() -> str:
        """The question above may have been the last that web1 answered."""
        text = site.m1.salt_run_text("ha.minions", "web1").stdout
        return text if "its watchdog" in text else ""

    text = wait_for(told_by_its_watchdog, SOON, "its watchdog reports again")
    assert "1 minion: 1 bound" in text


def test_who_hears_whom(site: Site) -> None:
    def well() -> dict[str, Any] | None:
        answer = reach(site.m1)
        return answer if answer["retcode"] == 0 else None

    assert cells(wait_for(well, SOON, "all answer in time")) == {
        "hot": ("ok", {"m1": "hears", "m2": "hears"}),
        "stock": ("ok", {"m1": "hears", "m2": "silent"}),
        "web1": ("ok", {"m1": "hears", "m2": "silent"}),
        "web2": ("ok", {"m1": "hears", "m2": "silent"}),
    }
    # Nobody is missing in the jobs of that question: on m2 it was not for who listens to m1 only.
    asked = site.m1.control("jobs", {"search": "test.ping"})["jobs"]
    assert {master for row in asked for master in row["masters"]} == {"m1", "m2"}
    assert {(row["state"], row["targeted"]) for row in asked} == {("unknown", None)}

    # A firewall that drops what m2 publishes: connections stand, and nobody notices but this.
    site.publisher.dropping = True
    try:

        def on_m1_only() -> Result | None:
            deaf = site.m2.salt_run("ha.reachability", "hot", f"timeout={TIMEOUT}")
            wanted = {"hot": ("deaf", {"m1": "hears", "m2": "silent"})}
            return deaf if cells(deaf.data) == wanted else None

        deaf = wait_for(on_m1_only, SOON, "it answers m1 in time")
        assert deaf.returncode == 1, deaf.stdout
        assert "deaf to m2" in deaf.data["minions"][0]["note"]
        wait_for(
            lambda: where(live(site.m1, "hot"))["hot"] == ("partly", ["m1"]),
            SOON,
            "it answers m1 in time",
        )
    finally:
        # What was dropped is lost; new connections work.
        site.publisher.refuse()
        site.publisher.dropping = False
        site.publisher.accept()
    wait_for(lambda: reach(site.m1, "hot")["retcode"] == 0, SOON, "it hears m2 again")


def test_a_minion_that_is_stopped(site: Site) -> None:
    web1 = site.failover[0]
    web1.suspend()
    try:

        def web2_answers() -> dict[str, Any] | None:
            answer = reach(site.m2, "web*")
            return answer if cells(answer)["web2"][0] == "ok" else None

        answer = wait_for(web2_answers, SOON, "web2 answers in time")
        assert cells(answer)["web1"] == ("silent", {"m1": "silent", "m2": "silent"})
        assert (answer["retcode"], answer["counts"]) == (1, {"silent": 1, "ok": 1})
        # Its connections stand. It was heard a moment ago; asked, it does not answer.
        now = wait_for(
            lambda: (found := live(site.m2, "web*"))["retcode"] == 1 and found,
            SOON,
            "m1 answers in time",
        )
        assert where(now)["web1"] == ("silent", [])
        drained = wait_for(
            lambda: site.m2.control("drain", {"name": "m1", "test": True}), SOON, "m1 says where"
        )
        assert "does not answer" in {x["id"]: x["why"] for x in drained["stay"]}["web1"]
    finally:
        web1.resume()


def test_a_master_is_drained_and_filled_again(site: Site) -> None:
    names = [minion.name for minion in site.failover]

    def planned() -> Result | None:
        plan = site.m2.salt_run("ha.drain", "m1", test=True)
        # 1: of stock, that is with m1 only.
        return plan if (len(plan.data["moves"]), plan.returncode) == (len(names), 1) else None

    plan = wait_for(planned, SOON, "both answer in time")
    assert [(row["id"], row["to"], row["planned"]) for row in plan.data["moves"]] == [
        (name, "m2", True) for name in names
    ]
    wait_for(
        lambda: where(live(site.m1, "web*"))["web1"] == ("bound", ["m1"]),
        SOON,
        "it is where it was, and answers in time",
    )

    # Of a minion that answers late nobody knows where it is: it is moved by the next command.
    moves: dict[str, dict[str, Any]] = {}

    def drained() -> Result | None:
        done = site.m2.salt_run("ha.drain", "m1")
        moves.update((row["id"], row) for row in done.data.get("moves", ()))
        stay = {row["id"]: row["why"] for row in done.data.get("stay", ())}
        late = any("does not answer" in why for why in stay.values())
        all_told = sorted(moves) == names and stay.keys() == {"hot", "stock"} and not late
        return done if all_told and done.returncode == 1 else None

    done = wait_for(drained, SOON, "all answer in time")
    assert {name: row["moved"] for name, row in moves.items()} == dict.fromkeys(names, True)
    stay = {row["id"]: row["why"] for row in done.data["stay"]}
    assert "hot-hot" in stay["hot"]
    assert "not installed" in stay["stock"] or "no other master" in stay["stock"]
    fates = {row["id"]: row["goes_on"] for row in done.data["stay"]}
    assert fates["hot"] is True
    assert not fates["stock"]
    moved = wait_for(
        lambda: (found := live(site.m1))["retcode"] == 0 and found, SOON, "all answer in time"
    )
    assert where(moved)["web1"] == where(moved)["web2"] == ("bound", ["m2"])
    assert where(moved)["hot"] == ("bound", ["m1", "m2"])

    # web2 prefers m1, which answers; but an operator has moved it.
    def journals() -> dict[str, list[tuple[str, str]]]:
        return {each.name: [(x.why, x.target) for x in history(each)] for each in site.failover}

    # The process that moves a minion writes it down a moment after the arrival.
    def noted() -> bool:
        return all(each[-1] == (ASKED, site.m2.address) for each in journals().values())

    wait_for(noted, SOON, "both moves are written down")
    before = journals()
    time.sleep(STABLE + 4)
    assert journals() == before

    def rebalanced() -> Result | None:
        back = site.m1.salt_run("ha.rebalance")
        return back if back.data["moves"] else None  # else one answers late

    back = wait_for(rebalanced, SOON, "both answer in time")
    assert back.returncode == 0, back.stdout
    assert back.data["spread"] == {"m1": {"before": 0, "after": 1}, "m2": {"before": 2, "after": 1}}
    assert sum(row["moved"] for row in back.data["moves"]) == 1

    def spread() -> list[list[str]]:
        return sorted(masters for _, masters in where(live(site.m1, "web*")).values())

    wait_for(lambda: spread() == [["m1"], ["m2"]], SOON, "both answer in time")
    assert "0 minions moved" in site.m1.salt_run_text("ha.rebalance").stdout


def test_a_master_that_hangs(site: Site) -> None:
    """What cannot be asked is unknown, and partial answers are said to be so."""
    site.m2.suspend()
    try:

        def web1_answers() -> dict[str, Any] | None:
            answer = reach(site.m1)
            return answer if cells(answer)["web1"][0] == "ok" else None

        answer = wait_for(web1_answers, SOON, "web1 answers in time")
        assert (answer["partial"], answer["retcode"]) == (True, 2)
        assert "m2" in answer["unknown"]
        assert cells(answer)["web1"] == ("ok", {"m1": "hears", "m2": "unknown"})
        known = site.m1.control("minions", {"glob": "*"})
        assert (known["retcode"], "m2" in known["unknown"]) == (2, True)
        refused = site.m1.salt_run("ha.drain", "m2")
        assert refused.returncode == 2
        assert "m2 cannot be asked" in refused.data["error"]
        # Nobody is sent to a master that does not work.
        plan = site.m1.control("drain", {"name": "m1", "test": True})
        assert (plan["moves"], plan["retcode"]) == ([], 2)
    finally:
        site.m2.resume()
    wait_for(lambda: reach(site.m1)["retcode"] == 0, SOON, "all is well again")
