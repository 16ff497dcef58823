"""A schedule that stands on all masters and runs on one; jobs from whichever master."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, wait_for
from lab.cli import Result
from tests.integration.bus import documented, heard
from tests.integration.conftest import MakeLab
from tests.integration.group import LONG, PATIENT, QUICK, SOON, let_in, log_lines, meet

pytestmark = pytest.mark.core

WITHIN = 4.0
RUNNER = """
def append(file):
    with open(file, "a", encoding="utf-8") as out:
        out.write(__opts__["id"] + "\\n")
    return "appended"
"""


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters with the same schedule, and a minion on each."""
    with make_lab() as lab:
        (lab.root / "runners").mkdir()
        (lab.root / "runners" / "effect.py").write_text(RUNNER)
        job = {
            "function": "ha.once",
            "args": ["effect.append", str(lab.root / "effect")],
            "kwargs": {"name": "tick", "within": WITHIN},
            "seconds": 6,
        }
        for name in ("m1", "m2"):
            lab.add_master(
                name,
                ha=QUICK,
                config={"runner_dirs": [str(lab.root / "runners")], "schedule": {"tick": job}},
            )
        m1, m2 = lab.masters.values()
        m1.share_master_key(m2)
        one, two = lab.add_minion("w1", [m1]), lab.add_minion("w2", [m2])
        lab.start_all()
        meet(lab)
        for minion, master in ((one, m1), (two, m2)):
            let_in(master, minion)
        yield lab


def ran(lab: Lab) -> list[str]:
    """Which masters ran it."""
    file: Path = lab.root / "effect"
    lines = file.read_text().splitlines() if file.exists() else []
    return [name.removesuffix("_master") for name in lines]


def begun(lab: Lab) -> list[float]:
    """When it began: until it has written its line it takes a while, and not always the same."""
    lines = [line for m in lab.masters.values() for line in log_lines(m, "name=tick runs")]
    times = [datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f") for line in lines]
    return sorted(time.timestamp() for time in times)


def leader(*masters: Master) -> str:
    """Wait until all agree; who leads."""

    def agreed() -> bool:
        return len({m.control("leader")["leader"] for m in masters} - {None}) == 1

    wait_for(agreed, SOON, "all know one leader", poll=0.2)
    found: str = masters[0].control("leader")["leader"]
    return found


def test_jobs_of_both_masters_are_seen_from_each(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    # Not pings: the program itself pings first, and so did whoever waited for the minions.
    m1.salt("w1", "test.echo", "from m1", PATIENT).check()
    m2.salt("w2", "test.arg", "from m2", PATIENT).check()
    for master in (m1, m2):

        def shown(master: Master = master) -> dict[str, dict[str, Any]]:
            rows = master.salt_run("ha.jobs", "test.*").check().data["jobs"]
            found = {row["function"]: row for row in rows if row["function"] != "test.ping"}
            # Salt tells of a return before it is in the job cache.
            return found if {row["state"] for row in found.values()} == {"done"} else {}

        found = wait_for(shown, SOON, "both jobs are done")
        masters = {function: row["masters"] for function, row in found.items()}
        assert masters == {"test.echo": ["m1"], "test.arg": ["m2"]}
        job = master.salt_run("ha.lookup_jid", found["test.arg"]["jid"]).check().data
        assert job["returned"]["w2"]["args"] == ["from m2"]
    # One that is still at work on m2 is shown as such on m1.
    hold = lab.root / "hold"
    hold.touch()
    work = f"while test -e {hold}; do sleep 0.1; done"
    at_work = threading.Thread(target=m2.salt, args=("w2", "cmd.shell", work), daemon=True)
    at_work.start()

    def working() -> bool:
        rows = m1.control("jobs", {"search": "cmd.shell"})["jobs"]
        return [(row["state"], row["running"]) for row in rows] == [("running", ["w2"])]

    try:
        wait_for(working, SOON, "it is shown as running", poll=0.2)
    finally:
        hold.unlink()
    at_work.join(LONG)


def by_hand(lab: Lab) -> tuple[str, list[tuple[Master, list[Result]]]] | None:
    """Who leads, and what each master says; None: on a busy machine another one leads by now."""
    masters = list(lab.masters.values())
    name = leader(*masters)
    told: list[tuple[Master, list[Result]]] = []
    for master in masters:
        mine = {"m1": "w1", "m2": "w2"}[master.name]
        answers = [
            master.salt_run("ha.once", "test.arg", "x"),
            master.salt_run("ha.once", "local.test.ping", mine),
            master.salt_run("ha.once", "state.orchestrate", "no.such.sls"),
        ]
        told.append((master, answers))
    return (name, told) if leader(*masters) == name else None


def test_by_hand_it_runs_on_the_leader_only(lab: Lab) -> None:
    name, told = wait_for(lambda: by_hand(lab), LONG, "one leads all the time")
    for master, (answer, local, failed) in told:
        assert answer.check().data["skipped"] == (master.name != name)
        assert answer.data["leader"] == name
        assert local.check().data["skipped"] == (master.name != name)
        # Plain salt-run exits 1; so does this, on the master that runs it.
        assert failed.returncode == int(master.name == name)
    wrong = lab.masters["m1"].salt_ha("once", "no.such")
    assert wrong.returncode == 2


def led_twice(lab: Lab) -> tuple[str, list[str], int] | None:
    """
    Who leads, on which masters it ran meanwhile, at least twice, and how often it had run before;
    None: on a busy machine another one leads by now.
    """
    masters = list(lab.masters.values())
    name = leader(*masters)
    wait_for(lambda: len(begun(lab)) <= len(ran(lab)), SOON, "none is under way", poll=0.2)
    # What ran until then; before they were a group, on each.
    before = len(ran(lab))
    wait_for(lambda: len(ran(lab)) >= before + 2, LONG, "it ran twice", poll=0.2)
    return (name, ran(lab)[before:], before) if leader(*masters) == name else None


def test_a_schedule_on_both_runs_on_one_and_goes_on_when_it_dies(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    masters = {"m1": m1, "m2": m2}
    first, on, alone = wait_for(lambda: led_twice(lab), LONG, "one leads all the time")
    assert set(on) == {first}
    other = next(master for name, master in masters.items() if name != first)
    with heard(other, "salt/ha/leader") as events:
        masters[first].kill()
        wait_for(lambda: other.control("leader")["leads"], SOON, "the other leads", poll=0.2)
        wait_for(lambda: events, SOON, "it is announced")
    tag, data = events[0]
    assert documented()[tag] <= data.keys()
    before = len(ran(lab))
    wait_for(lambda: len(ran(lab)) >= before + 2, LONG, "it goes on", poll=0.2)
    assert set(ran(lab)[before:]) == {other.name}
    times = begun(lab)[alone:]
    assert len(times) >= 4
    assert len(ran(lab)) <= len(begun(lab))
    # Two masters that ran it each by its schedule of 6 s would be apart by 3 s or less every other
    # time.
    apart = [later - at for at, later in itertools.pairwise(times)]
    assert min(apart) >= WITHIN - 1, f"twice in one period: {times}"
    row = next(r for r in other.control("leader")["runs"] if r["name"] == "tick")
    assert (row["on"], row["function"]) == (other.name, "effect.append")
