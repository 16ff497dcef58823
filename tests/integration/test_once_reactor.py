"""
A reactor that stands on all masters and reacts on one: each event once, counted by what it does.

A hot-hot minion tells each event to both masters; a failover minion to the one that does not lead.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from tests.integration.bus import heard
from tests.integration.conftest import MakeLab
from tests.integration.group import LONG, PATIENT, QUICK, SOON, answers, level, meet

pytestmark = pytest.mark.core

BURSTS = 3  # are fired at most, on a machine that is too busy for the first
TAG = "site/burst"
RUNNER = """
def append(file, text):
    with open(file, "a", encoding="utf-8") as out:
        out.write("%s %s\\n" % (__opts__["id"], text))
"""
MODULE = """
import time

def fire(name, count, pause=0.05):
    for number in range(count):
        __salt__["event.fire_master"]({"n": "%s-%d" % (name, number)}, "site/burst")
        time.sleep(pause)
    return True

def same(name, count):
    for _ in range(count):
        __salt__["event.fire_master"]({"n": name}, "site/burst")
    return True
"""
SLS = """
react:
  runner.effect.append:
    - args:
      - file: {file}
      - text: {{{{ data['data']['n'] }}}}
"""


class Site:
    """Two masters, the first of them the leader, and what their reactors did."""

    def __init__(self, lab: Lab, m1: Master, m2: Master) -> None:
        self.lab, self.m1, self.m2 = lab, m1, m2
        self.file = lab.root / "effect"
        self.hot, self.other = lab.minions.values()

    def lines(self) -> list[tuple[str, str]]:
        """Which master reacted to what."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [(name.removesuffix("_master"), text) for name, text in map(str.split, lines)]

    def reactions(self, name: str) -> Counter[str]:
        """How often there was a reaction to each event of that burst."""
        return Counter(text for _, text in self.lines() if text.startswith(f"{name}-"))

    def reacted(self, name: str, count: int) -> Counter[str]:
        """Wait until there was a reaction to all events of a burst, and nothing is on its way."""
        expected = Counter(f"{name}-{n}" for n in range(count))
        wait_for(
            lambda: self.reactions(name).keys() == expected.keys(),
            SOON,
            f"there is a reaction to each of {name}",
        )
        self.settled()
        return expected

    def once(self, name: str, count: int, on: Master) -> None:
        """Wait until all events of a burst were reacted to on that master, each once."""
        expected = self.reacted(name, count)
        assert self.reactions(name) == expected
        assert {master for master, text in self.lines() if text.startswith(f"{name}-")} == {on.name}

    def reactor(self, master: Master) -> dict[str, Any]:
        """What a master says of its reactor."""
        rows = {row["name"]: row for row in master.control("leader")["masters"]}
        found: dict[str, Any] = rows[master.name]["reactor"]
        return found

    def settled(self) -> None:
        """Wait until nothing is on its way any more."""
        for master in (self.m1, self.m2):
            if master.running:
                wait_for(
                    lambda m=master: self.reactor(m)["waiting"] == 0,  # type: ignore[misc]
                    SOON,
                    f"{master.name} has handed over all",
                )
                with heard(master, "marker/passed") as events:
                    self.marker(master)
                    wait_for(lambda e=events: e, SOON, "the bus has told all")  # type: ignore[misc]

    def marker(self, master: Master) -> None:
        master.salt_run("event.send", "marker/passed").check()


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        for folder, name, text in (
            ("runners", "effect.py", RUNNER),
            ("modules", "burst.py", MODULE),
            ("srv", "react.sls", SLS.format(file=lab.root / "effect")),
        ):
            (lab.root / folder).mkdir(exist_ok=True)
            (lab.root / folder / name).write_text(text)
        config = {
            "runner_dirs": [str(lab.root / "runners")],
            "reactor": [{"site/*": [str(lab.root / "srv" / "react.sls")]}],
        }
        ha = {**QUICK, "once": {"reactor": True}}
        m1, m2 = (lab.add_master(name, ha=ha, config=config) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        lab.start_all()
        meet(lab)
        # Usually the first by name; not when it was the slower one to serve.
        wait_for(lambda: len(led := leaders(m1, m2)) == 1 and led != {None}, SOON, "one leads")
        if leaders(m1, m2) == {"m2"}:
            m1, m2 = m2, m1
        modules = {"module_dirs": [str(lab.root / "modules")]}
        minions = (
            lab.add_minion("hot", [m1, m2], config=modules),
            lab.add_minion("other", [m2, m1], type="failover", config=modules),
        )
        for minion in minions:
            minion.plant_key()
            minion.start()
        for minion in minions:
            minion.wait_ready()
        site = Site(lab, m1, m2)
        switched(site, leads=m1, follows=m2)
        for minion in minions:  # what was started just now may lose its first events
            wait_for(lambda one=minion: warm(site, one), LONG, f"{minion.name} is heard")  # type: ignore[misc]
        yield site


def leaders(*masters: Master) -> set[str | None]:
    """Who leads, as each of them knows."""
    return {master.control("leader")["leader"] for master in masters}


def switched(site: Site, leads: Master, follows: Master | None) -> None:
    """Wait until one reactor reacts, and the other does not."""
    wait_for(lambda: site.reactor(leads)["reacts"], SOON, "the leader's reactor reacts", poll=0.2)
    if follows:
        wait_for(
            lambda: site.reactor(follows)["reacts"] is False, SOON, "the other's does not", poll=0.2
        )


def burst(master: Master, minion: Minion, name: str, count: int) -> None:
    master.salt(minion.name, "burst.fire", name, str(count), PATIENT).check()


def each_once(site: Site, asks: Master, minion: Minion, name: str, count: int, on: Master) -> int:
    """
    Have *minion* fire a burst, to each event of which one reaction comes, on the master *on*.

    Where that master hears its own copy of an event more than 2 s later than another one, two are
    right, and counted: that may happen on a busy machine, and another burst is fired then.

    :return: how many bursts were fired.
    """
    for number in range(1, BURSTS + 1):
        late = site.reactor(on)["twice"]
        burst(asks, minion, f"{name}{number}", count)
        site.reacted(f"{name}{number}", count)
        if site.reactor(on)["twice"] == late:
            break
    site.once(f"{name}{number}", count, on)
    return number


def home(site: Site) -> Master:
    """Where the failover minion is: under load it may have begun with its second master."""

    def there() -> Master:
        return next(m for m in (site.m2, site.m1) if m.running and m.name in site.other.bound_to())

    master = wait_for(there, LONG, "it is bound")
    answers(master, site.other)
    return master


def warm(site: Site, minion: Minion) -> bool:
    """Whether there was a reaction to an event of that minion."""
    name = f"warm-{minion.name}"
    burst(site.m1 if minion is site.hot else home(site), minion, name, 1)
    give_up = time.monotonic() + 5
    while not site.reactions(name) and time.monotonic() < give_up:
        time.sleep(0.1)
    return bool(site.reactions(name))


def test_each_event_once_on_the_leader(site: Site) -> None:
    site.settled()
    before = {master.name: site.reactor(master) for master in (site.m1, site.m2)}

    def more(master: Master, what: str) -> int:
        return int(site.reactor(master)[what]) - int(before[master.name][what])

    of_both = 20 * each_once(site, site.m1, site.hot, "hot", 20, on=site.m1)
    there = home(site)
    burst(there, site.other, "other", 20)
    site.once("other", 20, on=site.m1)
    assert more(site.m2, "handed") == of_both + (20 if there is site.m2 else 0)
    assert (more(site.m2, "waiting"), more(site.m2, "dropped")) == (0, 0)
    wait_for(
        lambda: more(site.m1, "same") + more(site.m1, "twice") == of_both,
        SOON,
        "those of the hot-hot minion came twice",
    )


def test_what_a_minion_says_twice_counts_twice(site: Site) -> None:
    for number in range(1, BURSTS + 1):  # as in each_once
        late, name = site.reactor(site.m1)["twice"], f"again{number}"
        site.m1.salt("hot", "burst.same", f"{name}-0", "3", PATIENT).check()
        wait_for(
            lambda name=name: site.reactions(name)[f"{name}-0"] >= 3,  # type: ignore[misc]
            SOON,
            "there are three reactions",
        )
        site.settled()
        if site.reactor(site.m1)["twice"] == late:
            break
    assert site.reactions(name) == {f"{name}-0": 3}


def test_the_leader_dies_and_comes_back(site: Site) -> None:
    m1, m2 = site.m1, site.m2
    there = home(site)
    m1.kill()
    # Nobody leads for some seconds; what is heard meanwhile is kept.
    burst(m2, site.hot, "gap", 20)
    burst(m2 if there is m2 else home(site), site.other, "gap2", 20)
    switched(site, leads=m2, follows=None)
    site.once("gap", 20, on=m2)
    site.once("gap2", 20, on=m2)
    burst(m2, site.hot, "alone", 10)
    site.once("alone", 10, on=m2)
    m1.start()
    wait_for(lambda: level(m2), LONG, "they have met again")
    switched(site, leads=m2, follows=m1)
    site.hot.wait_ready()
    each_once(site, m2, site.hot, "both", 20, on=m2)
    burst(home(site), site.other, "back", 10)
    site.once("back", 10, on=m2)
