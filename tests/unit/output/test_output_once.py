"""What ``ha.leader`` and ``ha.once`` show, as whole tables."""

from __future__ import annotations

import time
from typing import Any

import pytest

from saltext_ha.output import ha
from tests.unit.output.conftest import shows


def row(name: str, leads: bool | None, follows: str | None, note: str = "") -> dict[str, Any]:
    return {"name": name, "leads": leads, "follows": follows, "store": "group", "note": note}


def leader(**changes: Any) -> dict[str, Any]:
    data = {
        "kind": "leader",
        "store": "group",
        "leader": "m1",
        "why": "",
        "since": time.time() - 200,
        "fence": None,
        "masters": [row("m1", True, "m1"), row("m2", False, "m1")],
        "leading": ["m1"],
        "runs": [],
        "unknown": {},
    }
    return {**data, **changes}


def test_a_leader() -> None:
    shows(
        leader(),
        """
        m1 leads since 3 m · store group
        Master  Leads  Knows as leader
        m1 *    yes    m1
        m2      no     m1
        """,
    )


def test_nobody_leads() -> None:
    shows(
        leader(leader=None, leading=[], why="m1: drained", masters=[row("m1", False, None)]),
        """
        nobody leads: m1: drained · store group
        Master  Leads  Knows as leader
        m1      no     nobody
        """,
    )


def test_all_that_is_odd() -> None:
    runs = [
        {"name": "nightly", "function": "state.orchestrate", "state": "unfinished", "on": "m1",
         "ago": 7300.0, "seconds": None},
        {"name": "tidy", "function": "wheel.key.delete", "state": "done", "on": "m2",
         "ago": 30.0, "seconds": 1.5},
    ]  # fmt: skip
    shows(
        leader(
            fence=12,
            masters=[
                row("m1", True, "m1"),
                row("m2", True, "m2"),
                row("m3", None, None, "ha: leader: false there"),
            ],
            leading=["m1", "m2"],
            runs=runs,
            unknown={"m4": "timed out"},
        ),
        """
        m1 leads since 3 m, fencing number 12 · store group
        Master  Leads  Knows as leader  Note
        m1 *    yes    m1
        m2      yes    m2
        m3      ?      ?                ha: leader: false there
        conflict: 2 masters lead: m1, m2; it ends when they reach each other
        Once     Function           On  State       Began    Took
        nightly  state.orchestrate  m1  unfinished  2 h ago  -
        tidy     wheel.key.delete   m2  done        30 s ago  1.5 s
        m4 could not be asked: timed out
        """.replace("Began    Took", "Began     Took").replace("2 h ago  -", "2 h ago   -"),
    )


def test_status_says_who_leads_and_who_takes_no_part() -> None:
    told = {"store": "group", "leader": "m1", "apart": {"m2": "ha: leader: false there"}}
    masters = [
        {"name": name, "state": "running", "salt": "3008.3", "self": name == "m1"}
        for name in ("m1", "m2")
    ]
    lines = ha.output({"kind": "status", "state": "ok", "masters": masters, "leader": told})
    assert lines.splitlines()[0] == "Group ? · OK · m1 leads"
    assert lines.splitlines()[-1] == "m2 takes no part in leading: ha: leader: false there"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"skipped": True, "why": "m1 leads"}, "nightly: skipped here: m1 leads"),
        ({"error": "boom"}, "nightly: failed: boom"),
        ({"return": None}, "nightly: ran here"),
        ({"return": None, "retcode": 2}, "nightly: ran here, and failed: exit code 2"),
    ],
)
def test_once(answer: dict[str, Any], text: str) -> None:
    assert ha.output({"kind": "once", "name": "nightly", **answer}) == text


def test_once_shows_states_as_salt_does() -> None:
    state = {"result": True, "comment": "ok", "changes": {}, "name": "n", "__run_num__": 0}
    states = {"test_|-my id_|-n_|-nop": state}
    local = {"function": "local.state.apply", "return": {"web1": states}}
    whole = {"outputter": "highstate", "data": {"m1_master": states}, "retcode": 0}
    orchestrate = {"function": "state.orchestrate", "return": whole}
    for answer, head in ((local, "web1:"), (orchestrate, "m1_master:")):
        text = ha.output({"kind": "once", "name": "nightly", **answer})
        assert text.startswith(f"nightly: ran here\n{head}\n----------\n          ID: my id")


def test_reactors_that_react_on_the_leader_only() -> None:
    reactor = {
        "configured": True,
        "reacts": True,
        **{"waiting": 0, "handed": 812, "taken": 790, "same": 1, "twice": 0, "dropped": 0},
    }
    shows(
        leader(
            masters=[
                row("m1", True, "m1") | {"reactor": reactor},
                row("m2", False, "m1") | {"reactor": {**reactor, "reacts": None, "twice": None}},
                row("m3", False, "m1") | {"reactor": {**reactor, "configured": False}},
                row("m4", False, "m1") | {"reactor": None},
            ]
        ),
        """
        m1 leads since 3 m · store group
        Master  Leads  Knows as leader
        m1 *    yes    m1
        m2      no     m1
        m3      no     m1
        m4      no     m1
        Reactor of  Reacts           Waiting  Handed over  Taken  Same  Twice  Dropped
        m1          yes              0        812          790    1     0      0
        m2          ?                0        812          790    1     ?      0
        m3          none configured  0        812          790    1     0      0
        """,
    )
