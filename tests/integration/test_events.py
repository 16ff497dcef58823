"""What reactors hear on a master's event bus."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import saltext_ha.cli
from lab import Lab, Master, wait_for
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.bus_socket import BusSocket
from saltext_ha.salt_bus.proof import Proofs
from tests.integration.bus import CHECKED, DEPLOYED, LED, documented, heard, tags
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group, level, plant, shown, unseen

HEALTH = "salt/ha/health"
HELD = [f"held{number}" for number in range(4)]


class Story:
    """What was done, and what was heard of it on which bus."""

    def __init__(self, lab: Lab) -> None:
        m1, m2 = lab.masters.values()
        with heard(m2) as self.of_keys:
            self._a_key_goes_through_all_states(lab, m1, m2)
        with heard(m1) as self.of_the_peer:
            self._the_peer_goes_and_comes_back_with_another_key(lab, m1, m2)
        with heard(m1) as self.of_the_wait:
            self._an_event_is_announced_before_there_is_a_bus(m1)
        with heard(m2) as self.of_the_wipe:
            self._many_keys_vanish(lab, m1, m2)

    def _a_key_goes_through_all_states(self, lab: Lab, m1: Master, m2: Master) -> None:
        def hear(act: str) -> None:
            wait_for(lambda: f"salt/ha/key/{act}" in tags(self.of_keys, "event1"), SOON, act)

        plant(lab, "minions_pre", "event1", m1, m2)
        hear("pending")
        m1.salt_key("-a", "event1", "-y").check()
        hear("accepted")
        m1.salt_key("-r", "event1", "--include-accepted", "-y").check()
        hear("rejected")
        m1.salt_key("-d", "event1", "-y").check()
        hear("deleted")
        shown("event1", {}, m1, m2)

    def _the_peer_goes_and_comes_back_with_another_key(
        self, lab: Lab, m1: Master, m2: Master
    ) -> None:
        events = self.of_the_peer
        m2.kill()
        wait_for(lambda: "salt/ha/peer/down" in dict(events), SOON, "m2 is said to be down")
        m1.plant("minions", "event2", lab.key_pair()[1])
        m2.plant("minions", "event2", lab.key_pair()[1])
        recorded = {"glob": "event2"}
        wait_for(lambda: m1.control("keys", recorded)["keys"], SOON, "m1 recorded its key")
        m2.start()
        wait_for(lambda: "salt/ha/peer/up" in dict(events), SOON, "m2 is said to be up")
        wait_for(lambda: tags(events, "event2") == ["salt/ha/conflict"], SOON, "the conflict")
        wait_for(lambda: level(m1), SOON, "both have heard all")

    def _an_event_is_announced_before_there_is_a_bus(self, m1: Master) -> None:
        reach, there, tried = BusSocket._connect, threading.Event(), threading.Event()

        def connect(bus: BusSocket) -> socket.socket:
            tried.set()
            if not there.is_set():
                raise ConnectionRefusedError
            return reach(bus)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BusSocket, "_connect", connect)
            announce = Announcer(dict(m1.opts), Proofs(b"key"))
            announce("early", {})
            assert tried.wait(SOON)
            there.set()
            wait_for(lambda: "salt/ha/early" in dict(self.of_the_wait), SOON, "an early event")
            announce.stop()

    def _many_keys_vanish(self, lab: Lab, m1: Master, m2: Master) -> None:
        for name in HELD:
            m1.plant("minions", name, lab.key_pair()[1])
        wait_for(lambda: set(HELD) <= m2.keys()["minions"].keys(), SOON, "all keys on m2")
        wait_for(lambda: level(m1), SOON, "m1 knows it")
        with unseen(m2):  # it would be told twice: without a folder, and with an empty one
            (m2.pki_dir / "minions").rename(m2.pki_dir / "minions.away")
            (m2.pki_dir / "minions").mkdir()
        wait_for(lambda: "salt/ha/held" in dict(self.of_the_wipe), SOON, "they are held")


@pytest.fixture(scope="module")
def story(make_lab: MakeLab) -> Iterator[Story]:
    with group(make_lab, "m1", "m2", ha={"hold_minimum": 2}) as lab:
        yield Story(lab)


def test_replicated_changes_have_events_of_their_own(story: Story) -> None:
    acts = ["pending", "accepted", "rejected", "deleted"]
    assert tags(story.of_keys, "event1") == [f"salt/ha/key/{act}" for act in acts]
    data = [data for _, data in story.of_keys if data.get("id") == "event1"]
    assert [d["act"] for d in data] == acts
    assert [d["before"] for d in data] == [None, *acts[:-1]]
    assert {d["master"] for d in data} == {"m2"}
    assert {len(d["fingerprint"]) for d in data} == {95}


def test_an_event_waits_for_the_bus(story: Story) -> None:
    assert [tag for tag, _ in story.of_the_wait].count("salt/ha/early") == 1


def test_a_peer_that_goes_and_comes_and_a_conflict(story: Story) -> None:
    events = story.of_the_peer
    assert tags(events, "event2") == ["salt/ha/conflict"]
    prints = dict(events)["salt/ha/conflict"]["fingerprints"]
    assert {len(print_) for print_ in prints} == {95}
    assert len(set(prints)) == 2
    # On a busy machine it may be down again for a moment when it has just started.
    down, *_ = (data for tag, data in events if tag == "salt/ha/peer/down")
    up, *_ = (data for tag, data in events if tag == "salt/ha/peer/up")
    assert down["name"] == up["name"] == "m2"
    assert up["url"].startswith("https://127.")
    assert down["reason"]


def test_keys_that_are_held_are_named(story: Story) -> None:
    (held,) = (data for tag, data in story.of_the_wipe if tag == "salt/ha/held")
    assert held["master"] == "m2"
    assert set(HELD) <= set(held["ids"])


def test_the_documentation_names_every_event_and_all_that_it_carries(story: Story) -> None:
    carried: dict[str, set[str]] = {}
    for tag, data in (*story.of_keys, *story.of_the_peer, *story.of_the_wipe):
        if tag.startswith("salt/ha/"):
            assert data.keys() >= {"fired", "proof"}, tag
            keys = set(data) - {"_stamp", "fired", "proof"}
            assert carried.setdefault(tag, keys) == keys
    told = documented()
    # Every few seconds; perhaps not while these were heard.
    health = told.pop(HEALTH)
    assert carried.pop(HEALTH, health) == health
    led = told.pop(LED)
    assert carried.pop(LED, led) == led
    # Heard in test_check_consistency.py and test_trees.py; here only where it takes long enough.
    elsewhere = {tag: told.pop(tag) for tag in (*CHECKED, *DEPLOYED) if tag in told}
    assert {tag: carried.pop(tag) for tag in elsewhere if tag in carried}.items() <= (
        elsewhere.items()
    )
    assert carried == told
    fired = set()
    for path in Path(saltext_ha.cli.__file__).parents[1].rglob("*.py"):
        fired |= set(re.findall(r"announce\(\s*f?\"([^\"]+)\"", path.read_text()))
    assert {tag.removeprefix("salt/ha/").split("/")[0] for tag in documented()} == {
        name.split("/")[0] for name in fired
    }
