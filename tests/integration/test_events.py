"""What reactors hear on a master's event bus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import salt.utils.event

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group, level, plant, shown


@pytest.fixture(scope="module")
def pair(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2") as lab:
        yield lab


@contextmanager
def heard(master: Master) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The events of a master's bus from now on, as (tag, data)."""
    events: list[tuple[str, dict[str, Any]]] = []
    ready, over = threading.Event(), threading.Event()

    def listen() -> None:
        opts = dict(master.opts)
        with salt.utils.event.get_event(
            "master", sock_dir=opts["sock_dir"], opts=opts, listen=True
        ) as bus:
            ready.set()
            while not over.is_set():
                event = bus.get_event(wait=0.2, tag="salt/", full=True)
                if event:
                    events.append((event["tag"], event["data"]))

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(SOON)
    try:
        yield events
    finally:
        over.set()
        thread.join()


def tags(events: list[tuple[str, dict[str, Any]]], minion_id: str) -> list[str]:
    return [tag for tag, data in events if data.get("id") == minion_id]


def test_replicated_changes_have_events_of_their_own(pair: Lab) -> None:
    m1, m2 = pair.masters.values()
    with heard(m2) as events:
        plant(pair, "minions_pre", "event1", m1, m2)
        m1.salt_key("-a", "event1", "-y").check()
        wait_for(lambda: "salt/ha/key/accepted" in tags(events, "event1"), SOON, "an acceptance")
        m1.salt_key("-d", "event1", "-y").check()
        wait_for(lambda: "salt/ha/key/deleted" in tags(events, "event1"), SOON, "a deletion")
        shown("event1", {}, m1, m2)
    assert "salt/key" not in tags(events, "event1")
    data = next(data for tag, data in events if tag == "salt/ha/key/deleted")
    assert (data["act"], data["before"], data["master"]) == ("deleted", "accepted", "m2")
    assert len(data["fingerprint"]) == 95


def test_a_peer_that_goes_and_comes_and_a_conflict(pair: Lab) -> None:
    m1, m2 = pair.masters.values()
    with heard(m1) as events:
        m2.kill()
        wait_for(lambda: "salt/ha/peer/down" in dict(events), SOON, "m2 is said to be down")
        m1.plant("minions", "event2", pair.key_pair()[1])
        m2.plant("minions", "event2", pair.key_pair()[1])
        recorded = {"glob": "event2"}
        wait_for(lambda: m1.control("keys", recorded)["keys"], SOON, "m1 recorded its key")
        m2.start()
        wait_for(lambda: "salt/ha/peer/up" in dict(events), SOON, "m2 is said to be up")
        wait_for(lambda: tags(events, "event2") == ["salt/ha/conflict"], SOON, "the conflict")
        wait_for(lambda: level(m1), SOON, "both have heard all")
    assert tags(events, "event2") == ["salt/ha/conflict"]
    assert len(dict(events)["salt/ha/conflict"]["fingerprints"]) == 2
    assert [data["name"] for tag, data in events if tag == "salt/ha/peer/down"] == ["m2"]
