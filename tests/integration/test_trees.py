"""Trees on real masters: minions of all of them get what was deployed on one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from lab.cli import Result
from tests.integration.bus import documented, heard
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    PATIENT,
    SOON,
    add_master_with_trees,
    answers,
    meet,
    write_sources,
)

pytestmark = pytest.mark.core

# Less than one message of Salt's fileserver takes (file_buffer_size): a larger file is read in
# several, and Salt itself does not keep them together.
LINES = 50_000


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters, each with folders of its own, and a minion on each."""
    with make_lab() as lab:
        size = {"file_buffer_size": 1048576}  # Salt's default; the lab's is 8192
        m1, m2 = (add_master_with_trees(lab, name, size) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        minions = [lab.add_minion("w1", [m1]), lab.add_minion("w2", [m2])]
        for minion in minions:
            minion.plant_key()
        change(lab, "0")
        lab.start_all()
        meet(lab)
        for minion in minions:
            minion.wait_ready()
            answers(*minion.masters, minion)
        yield lab


def change(lab: Lab, number: str) -> None:
    """Another content of both sources, as an editor or git would write it."""
    files: Mapping[str, str] = {
        "states/top.sls": "base: {'*': [web]}\n",
        "states/web.sls": "web:\n  test.show_notification:\n"
        f"    - text: state {number} {{{{ pillar.number }}}}\n",
        "states/large": f"{number}\n" * LINES,
        f"states/mark/{number}": "",
        "pillar/top.sls": "base: {'*': [who]}\n",
        "pillar/who.sls": f"number: 'pillar {number}'\n",
    }
    write_sources(lab, files)
    for old in (lab.root / "git" / "states" / "mark").iterdir():
        if old.name != number:
            old.unlink()


def everywhere(lab: Lab, function: str, *args: str) -> dict[str, Any]:
    """What the minions of all masters return."""
    found: dict[str, Any] = {}
    for minion in lab.minions.values():
        (master,) = minion.masters
        found.update(master.salt(minion.name, function, *args, PATIENT).check().data)
    return found


def said(applied: Mapping[str, Any]) -> dict[str, str]:
    """The comment of each minion's only state."""
    return {minion: next(iter(states.values()))["comment"] for minion, states in applied.items()}


def deploy(master: Master, **options: Any) -> Result:
    return master.salt_run("ha.deploy", **options)


def test_minions_of_all_masters_get_what_was_deployed_on_one(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    change(lab, "1")
    planned = deploy(m1, test=True).check()
    assert {tree["tree"] for tree in planned.data["trees"]} == {"states", "pillar"}
    assert not list((lab.root / "srv" / "m2" / "states").iterdir())
    with heard(m2, "salt/ha/deployed") as events:
        deploy(m1, message="the first").check()
        wait_for(lambda: len(events) >= 2, SOON, "both are told of")
    assert {data["tree"] for _, data in events} == {"states", "pillar"}
    for tag, data in events:
        assert set(data) - {"_stamp", "fired", "proof"} == documented()[tag]
    change(lab, "2")
    deploy(m1).check()
    assert said(everywhere(lab, "state.apply")) == {
        "w1": "state 2 pillar 2",
        "w2": "state 2 pillar 2",
    }
    change(lab, "3")
    deploy(m1).check()
    text = m1.salt_run_text("ha.deployments").stdout
    assert "m1, m2" in text
    assert "the first" in text
    back = m2.salt_run("ha.rollback", tree="states").check()
    assert back.data["trees"][0]["counts"]["changed"] == 2
    assert set(said(everywhere(lab, "state.apply")).values()) == {"state 2 pillar 3"}
    plan = m1.salt_run_text("ha.deploy", test=True).stdout
    assert "+    - text: state 3 {{ pillar.number }}" in plan
    assert "pillar 3" not in plan


def test_no_file_is_ever_half_of_one_deployment(lab: Lab) -> None:
    """
    A minion of each master asks again and again while 50 deployments are made: it gets a whole
    file, a whole folder, a state of one deployment, and after a switch nothing older.
    """
    m1, _ = lab.masters.values()
    change(lab, "100")
    deploy(m1).check()
    over, torn, served = threading.Event(), [], [100]
    seen: dict[str, set[int]] = {name: set() for name in lab.minions}

    def read(minion: Minion) -> None:
        (master,) = minion.masters
        while not over.is_set():
            for function, argument, numbers_of in QUESTIONS:
                # A list that was begun before a switch is kept for two seconds after it.
                since = served[0] if function != LIST else 0
                # Only it: the other minion's key is known here too, and its answer waited for.
                answer = master.salt(minion.name, function, argument, PATIENT).data or {}
                told = answer.get(minion.name, {})
                if told == {}:
                    continue  # it was too busy to answer
                numbers = numbers_of(told)
                seen[minion.name] |= numbers
                if len(numbers) != 1 or min(numbers) < since:
                    torn.append((minion.name, function, sorted(numbers), since, str(told)[:300]))

    readers = [threading.Thread(target=read, args=(m,)) for m in lab.minions.values()]
    for reader in readers:
        reader.start()
    try:
        number = 100
        while number < 150 or min(map(len, seen.values())) < MANY:
            assert all(reader.is_alive() for reader in readers)
            number += 1
            change(lab, str(number))
            job = m1.control("deploy", {"trees": ["states"], "by": "root"})["job"]
            wait_for(
                lambda job=job: "answer" in m1.control("deploy_progress", {"job": job}),  # type: ignore[misc]
                SOON,
                "it is deployed",
            )
            served[0] = number
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert not torn
    last = set(everywhere(lab, "cp.get_file_str", "salt://large").values())
    assert last == {f"{number}\n" * LINES}


def _of_a_file(told: Any) -> set[int]:
    whole = str(told).count("\n") == LINES
    return set(map(int, str(told).split())) if whole else set()


def _of_a_list(told: Any) -> set[int]:
    return {int(str(path).removeprefix("mark/")) for path in told if str(path).startswith("mark/")}


def _of_a_state(told: Any) -> set[int]:
    return set(map(int, re.findall(r"state (\d+) ", str(told))))


MANY = 20  # deployments of which each minion got something
LIST = "cp.list_master"
QUESTIONS = (
    ("cp.get_file_str", "salt://large", _of_a_file),
    ("state.show_sls", "web", _of_a_state),
    (LIST, "base", _of_a_list),
)


def test_a_master_that_was_killed_follows_before_it_is_ready(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    m2.kill()
    change(lab, "900")
    refused = deploy(m1)
    assert refused.returncode == 2
    assert "without=m2" in refused.data["error"]
    deploy(m1, without="m2").check()
    m2.start()
    wait_for(lambda: m2.control("status")["masters"][0]["health"]["ready"], SOON, "m2 is ready")
    assert (lab.root / "srv" / "m2" / "states" / "large").read_text() == "900\n" * LINES
    answers(m2, lab.minions["w2"])
    assert set(everywhere(lab, "cp.get_file_str", "salt://large").values()) == {"900\n" * LINES}
