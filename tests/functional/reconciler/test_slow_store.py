"""A key store or state folder whose file system hangs: who only looks is answered, and told so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engines import free_port
from lab.key_folders import public_keys
from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from tests.pages import page
from tests.processes import ACCEPTED, PENDING, SOON, Group, Master

KEYS = dict(zip(("web0", "web1"), public_keys(3), strict=False))
BUSY = "busy with its keys"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Two masters with a key each that is accepted, and one that is not."""
    group = Group(tmp_path, "m1", "m2", ha={"m2": {"status": {"port": free_port()}}})
    try:
        for master in group.masters:
            master.knock(KEYS)
            master.accept("web0")
        group.start()
        group.comes_to({(ACCEPTED, "web0"): KEYS["web0"], (PENDING, "web1"): KEYS["web1"]})
        yield group
    finally:
        group.kill()


def rows(master: Master) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in master.ask("status")["masters"]}


def test_status_answers_from_what_is_known(group: Group) -> None:
    m1, m2 = group.masters
    with m2.failing("WAIT store.sync"):
        m1.accept("web1")
        m1.ask("sync")

        def hangs() -> bool:
            return BUSY in rows(m1)["m2"]["note"]

        wait_for(hangs, SOON, "m1 says that the store of m2 is slow")
        assert m2.shown()[PENDING, "web1"]
        status = m2.ask("status")
        assert status["state"] == "degraded"
        own = next(row for row in status["masters"] if row["self"])
        assert (own["state"], own["accepted"], own["pending"]) == ("running", 1, 1)
        assert BUSY in own["note"]
        assert own["busy"] > 0
        assert rows(m1)["m2"]["busy"] > 0
        assert status["tolerates"] == 0, "m2 could not take over"
        shown = json.loads(page(m2.place, "/status.json", SOON)[1])
        assert shown["state"] == "degraded"
        assert BUSY in next(row["note"] for row in shown["masters"] if row["self"])
    group.comes_to({(ACCEPTED, minion_id): key for minion_id, key in KEYS.items()})
    assert BUSY not in m2.note()
    status = m1.ask("status")
    assert [row["busy"] for row in status["masters"]] == [0, 0]


HANGS = "cannot be looked at: the file system does not respond"


def test_a_state_folder_that_hangs_is_said_and_holds_up_nobody(group: Group) -> None:
    """The state folder lies in pki_dir by default, and hangs with it."""
    m1, m2 = group.masters
    with m2.failing("WAIT state.look"):

        def said() -> bool:
            return HANGS in rows(m1)["m2"]["note"]

        wait_for(said, SOON, "m1 says that the state folder of m2 hangs")
        for _ in range(8):  # more than threads in a pool
            begun = time.monotonic()
            status = m2.ask("status")
            assert time.monotonic() - begun < 20
            assert status["state"] == "degraded"
            rows_of_m2 = {row["name"]: row for row in status["masters"]}
            assert HANGS in rows_of_m2["m2"]["note"]
            assert rows_of_m2["m1"]["state"] == "running", "m1 still counts"
        with pytest.raises(HaError, match="cannot be written: the file system does not respond"):
            m2.engine.control("remove_peer", {"name": "m1"})
        code, text = page(m2.place, "/status.json", SOON)
        assert (code, json.loads(text)["state"]) == (200, "degraded")
        code, why = page(m2.place, "/ready", SOON)
        assert code == 503
        assert HANGS in why
    wait_for(m2.is_fine, SOON, "m2 goes on")
    m1.accept("web1")
    group.comes_to({(ACCEPTED, minion_id): key for minion_id, key in KEYS.items()})
