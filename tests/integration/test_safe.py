"""
Minions that are told of all masters: the state that does it, and what becomes of a mistake. And
whether the group can do without one of its masters.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab, Minion, wait_for
from saltext_ha.rollout import drop_in
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT, answers, group, level
from tests.integration.watching import supervised

pytestmark = pytest.mark.core

# On 3007.15 the process of a job goes on for half a minute after its return has arrived.
LONG = 240.0


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters of a group; a minion that knows the first one only, and is started again."""
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        web1 = lab.add_minion("web1", [m1, m2], "failover", config={"master": [m1.address]})
        web1.plant_key()
        supervised(web1)
        web1.start()
        web1.wait_ready()
        answers(m1, web1)
        yield lab


@pytest.fixture
def web1(lab: Lab) -> Minion:
    """The minion, whatever it has been told by now."""
    return lab.minions["web1"]


@pytest.fixture
def told(lab: Lab, web1: Minion) -> Minion:
    """The minion, when it knows both masters by the file."""
    done = apply(lab, web1, **wished(lab))
    assert done["result"] is True, done
    if done["changes"]:
        assert settled(web1)["state"] == "kept", record(web1)
    return web1


def wished(lab: Lab, **config: Any) -> dict[str, Any]:
    """What the group wants of the state, by ``ha.minion_config format=sls``."""
    answer = lab.masters["m1"].salt_run("ha.minion_config", format="sls", **config)
    text = answer.check().data["text"]
    ((_, state),) = yaml.safe_load(text)["masters of this minion"].items()
    return {name: value for each in state for name, value in each.items()}


def drop_in_of(minion: Minion) -> Path:
    return minion.config_dir / "minion.d" / drop_in.NAME


def process_of(minion: Minion) -> int:
    return int(Path(minion.opts["pidfile"]).read_text())


def record_of(minion: Minion) -> Path:
    return Path(minion.opts["cachedir"]) / "ha" / "multi_master.json"


def record(minion: Minion) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(record_of(minion).read_text())
    except FileNotFoundError:
        return {"state": "none"}
    return found


def settled(minion: Minion) -> dict[str, Any]:
    """What became of the last exchange, when it is over."""
    wait_for(lambda: record(minion)["state"] not in ("none", "trying"), LONG, "it is over")
    return record(minion)


def apply(
    lab: Lab, minion: Minion, seconds: int = 90, test: bool = False, **state: Any
) -> dict[str, Any]:
    """Run the state, out of a file, by a job of a master that the minion is bound to."""
    wait_for(lambda: bool(minion.bound_to()), LONG, "it is bound")
    master = lab.masters[minion.bound_to()[0]]
    answers(master, minion)
    settings = {"timeout": seconds, "publish_port": master.publish_port, **state}
    arguments = [{name: value} for name, value in settings.items()]
    text = yaml.safe_dump({"masters of this minion": {"ha.multi_master": arguments}})
    (folder := lab.root / "srv").mkdir(exist_ok=True)
    (folder / "masters.sls").write_text(text)
    told = ("state.apply", "masters", PATIENT)

    def ran() -> Any:
        """What the state returned; None: not before the process of the last one is gone."""
        returned = master.salt(minion.name, *told, test=test).data[minion.name]
        return None if "is running as PID" in str(returned) else returned

    returned = wait_for(ran, LONG, "no other state runs")
    assert isinstance(returned, dict), returned
    (found,) = returned.values()
    result: dict[str, Any] = found
    return result


def request_ports(lab: Lab, *hosts: str) -> list[str]:
    return [f"{host}:{lab.ports.ret}" for host in hosts]


def verdict(lab: Lab, *args: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code, and the reasons by master."""
    result = lab.masters["m1"].salt_run("ha.failover_safe", *args)
    reasons = {row["name"]: row["reasons"] for row in result.data["masters"]}
    assert result.data["safe"] is (result.returncode == 0)
    return result.returncode, reasons


def texts(reasons: list[dict[str, Any]]) -> str:
    return "; ".join(f"{reason['about']}: {reason['text']}" for reason in reasons)


def test_a_minion_of_one_master_is_not_safe(lab: Lab, web1: Minion) -> None:
    # 2: a busy minion answers late.
    code, reasons = wait_for(
        lambda: (found := verdict(lab, "m1"))[0] != 2 and found, LONG, "web1 answers in time"
    )
    assert code == 1
    assert "minions: they know no other master of the group than m1" in texts(reasons["m1"])
    nobody = lab.masters["m1"].salt_run("ha.failover_safe", "m9")
    assert (nobody.returncode, "no master 'm9' in" in nobody.data["error"]) == (2, True)


def test_a_good_file_moves_the_minion_and_is_kept(lab: Lab, web1: Minion) -> None:
    m1, m2 = lab.masters.values()
    answer = m1.salt_run("ha.minion_config").check().data
    assert answer["findings"] == []
    wish = wished(lab)

    planned = apply(lab, web1, test=True, **wish)
    assert planned["result"] is None
    assert f'+  - "{m2.address}"' in planned["changes"]["diff"]
    assert not drop_in_of(web1).exists()

    pid = process_of(web1)
    done = apply(lab, web1, **wish)
    assert done["result"] is True, done
    assert settled(web1)["state"] == "kept", record(web1)
    assert drop_in_of(web1).read_text() == answer["text"]
    assert process_of(web1) != pid, "started again"
    assert web1.salt_call("ha.lint", "--local").data["counts"]["error"] == 0

    m1.kill()
    try:
        wait_for(lambda: web1.bound_to() == ["m2"], LONG, "it goes to the other master")
        pid = process_of(web1)
        again = apply(lab, web1, **wish)
        assert (again["result"], again["changes"]) == (True, {})
        assert record(web1)["state"] == "kept"
        assert process_of(web1) == pid, "nobody was restarted"
    finally:
        m1.start()
    wait_for(lambda: level(m1), LONG, "the masters have met again")


def test_a_group_that_is_safe_until_something_differs(lab: Lab, told: Minion) -> None:
    m1, m2 = lab.masters.values()
    wait_for(lambda: verdict(lab) == (0, {"m1": [], "m2": []}), LONG, "it is safe")
    assert "without m1: safe" in m1.salt_run_text("ha.failover_safe").stdout

    m1.salt_run("ha.pause", all=True).check()
    try:
        m1.plant("minions", "db1", lab.key_pair()[1])
        wait_for(lambda: "db1" in str(m1.control("keys")), LONG, "m1 has it")
        code, reasons = verdict(lab)
        assert code == 2, "db1 does not answer either"
        assert "keys: their keys are absent on m2" in texts(reasons["m1"])
        assert "minions: they did not answer" in texts(reasons["m1"])
        assert "keys" not in {reason["about"] for reason in reasons["m2"]}
    finally:
        m1.salt_run("ha.resume", all=True).check()
        m1.salt_key("-d", "db1", "-y").check()

    m2.suspend()
    try:
        code, reasons = verdict(lab)
    finally:
        m2.resume()
    assert code == 2
    assert "m2 could not be asked" in texts(reasons["m1"])
    assert "m2 itself could not be asked" in texts(reasons["m2"])


def test_states_begin_while_the_group_is_asked(lab: Lab, told: Minion) -> None:
    """Not so while a minion runs one job of several functions."""
    (here,) = (each for each in lab.masters.values() if each.name in told.bound_to())
    (other,) = (each for each in lab.masters.values() if each is not here)

    def reports() -> bool:
        jobs = (Path(told.opts["cachedir"]) / "proc").glob("2*")
        with contextlib.suppress(FileNotFoundError):
            return any(b"ha.failover_report" in each.read_bytes() for each in jobs)
        return False

    def state() -> Any:
        """What a state returned while the minion was asked; None: not before it had answered."""
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(here.salt_run, "ha.failover_safe")
            wait_for(reports, 30, "the minion is asked")
            state = here.salt(told.name, "state.single", "test.nop", "name=x").data
            begun = reports()
            asked.result()
        # Of the state before it the process may still be there.
        late = '"state.apply" is running' in str(state)
        return state[told.name] if begun and not late else None

    other.suspend()  # the minion waits for its answer: time for a state to begin
    try:
        found = wait_for(state, LONG, "a state ends before the minion has answered")
    finally:
        other.resume()
    assert isinstance(found, dict), found
    ((_, returned),) = found.items()
    assert returned["result"] is True, found


def test_a_file_that_leads_nowhere_is_put_back(lab: Lab, told: Minion) -> None:
    before = drop_in_of(told).read_text()

    nobody = lab.new_address()
    tried = apply(lab, told, seconds=10, masters=request_ports(lab, nobody))
    assert tried["result"] is True
    found = settled(told)
    assert (found["state"], "no master was reached" in found["why"]) == ("put back", True), found
    assert drop_in_of(told).read_text() == before

    again = apply(lab, told, masters=request_ports(lab, nobody))
    assert (again["result"], "put back" in again["comment"]) == (False, True)


def test_a_way_back_where_the_file_that_named_the_master_is_gone(lab: Lab, told: Minion) -> None:
    """As with states that first remove it: two files with the same options are refused."""
    text = told.config_file.read_text()
    rest = {name: value for name, value in yaml.safe_load(text).items() if name != "master"}
    drop_in_of(told).unlink()
    told.config_file.write_text(yaml.safe_dump(rest))
    try:
        tried = apply(lab, told, seconds=10, masters=request_ports(lab, lab.new_address()))
        assert tried["result"] is True, tried
        found = settled(told)
        assert (found["state"], "again" in found["why"]) == ("put back", True), found
        assert told.bound_to()
    finally:
        told.config_file.write_text(text)


def test_a_file_with_the_watchdog_and_one_for_a_hot_minion(lab: Lab, told: Minion) -> None:
    for config, hears in (({"watchdog": True}, 1), ({"type": "hot", "watchdog": True}, 2)):
        done = apply(lab, told, **wished(lab, **config))
        assert (done["result"], bool(done["changes"])) == (True, True), done
        assert settled(told)["state"] == "kept", record(told)
        assert yaml.safe_load(drop_in_of(told).read_text())["engines"] == [{"ha_watchdog": {}}]
        wait_for(lambda n=hears: len(told.bound_to()) == n, LONG, f"it hears {hears}")
        here = lab.masters[told.bound_to()[0]]
        wait_for(
            lambda m=here: "switches" in m.salt("web1", "ha.current_master").data["web1"],
            LONG,
            "its watchdog knows where it is",
        )
        counts = told.salt_call("ha.lint", "--local").data["counts"]
        assert (counts["error"], counts["warning"]) == (0, 0), counts
