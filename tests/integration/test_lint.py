"""
``ha.lint`` on real masters and minions; and the traps of which Salt's code alone does not tell
enough, as they really are on a minion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from lab import Lab, Master, Minion, wait_for
from lab.cli import Result
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT, SOON, answers, group, log_lines, logged


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters of a group, a hot-hot and a failover minion; all as the lab writes them."""
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        watched = {"engines": [{"ha_watchdog": {}}], "master_tries": -1}
        minions = [
            lab.add_minion("hot", [m1, m2]),
            lab.add_minion("roaming", [m1, m2], "failover", config=watched),
        ]
        for minion in minions:
            minion.plant_key()
        for minion in minions:
            minion.start()
        for minion in minions:
            minion.wait_ready()
        answers(m1, lab.minions["hot"])
        yield lab


@pytest.fixture
def plant() -> Iterator[Callable[..., Any]]:
    """Write options into an included file of a node; nobody is restarted. Undone afterwards."""
    written = []

    def write(node: Master | Minion, **options: Any) -> Any:
        kind = "master" if isinstance(node, Master) else "minion"
        path = node.config_dir / f"{kind}.d" / "planted.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# what somebody added\n" + yaml.safe_dump(options, sort_keys=False))
        written.append(path)
        return path

    yield write
    for path in written:
        path.unlink(missing_ok=True)


def codes(result: Result) -> set[str]:
    return {finding["code"] for finding in result.data["findings"]}


def found(data: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [finding for finding in data["findings"] if finding["code"] == code]


@pytest.mark.core
def test_no_alarm_on_what_the_lab_runs(lab: Lab) -> None:
    m1 = lab.masters["m1"]
    result = m1.salt_run("ha.lint").check()
    assert result.data["findings"] == []
    assert (result.data["status"], result.data["asked"]) == ("clean", ["m1", "m2"])
    answers = m1.salt("hot", "ha.lint", PATIENT).check().data
    assert (answers["hot"]["findings"], answers["hot"]["status"]) == ([], "clean")
    for minion in lab.minions.values():
        alone = minion.salt_call("ha.lint", "--local").check().data
        assert (alone["findings"], alone["asked"]) == ([], [minion.name])


@pytest.mark.core
def test_masters_by_themselves_and_beside_each_other(lab: Lab, plant: Callable[..., Any]) -> None:
    m1, m2 = lab.masters.values()
    path = plant(m2, rotate_aes_key=False, publish_port=14505)
    result = m1.salt_run("ha.lint")
    assert result.returncode == 1
    assert codes(result) == {"HA503", "HA701"}
    (own,) = found(result.data, "HA503")
    assert (own["on"], own["file"], own["line"], own["severity"]) == ("m2", str(path), 2, "error")
    here, there = sorted(found(result.data, "HA701"), key=lambda f: f["on"])
    assert (here["on"], here["file"]) == ("m1", str(m1.config_file))
    assert (there["on"], there["file"], there["line"]) == ("m2", str(path), 3)
    assert there["detail"] == f"m1 {m1.publish_port}, m2 14505"
    assert f"HA503 error  m2  {path}:2" in m1.salt_run_text("ha.lint").stdout
    left = m1.salt_run("ha.lint", ignore="HA503,HA701").check()
    assert (left.data["findings"], left.data["ignored"]) == ([], 3)


def test_a_master_that_cannot_be_asked_is_unknown(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    m2.suspend()
    try:
        result = m1.salt_run("ha.lint")
    finally:
        m2.resume()
    assert (result.returncode, result.data["status"]) == (2, "unknown")
    assert (set(result.data["unknown"]), result.data["asked"]) == ({"m2"}, ["m1"])


@pytest.mark.core
def test_a_minion_and_what_its_master_told_it(lab: Lab, plant: Callable[..., Any]) -> None:
    m1, hot = lab.masters["m1"], lab.minions["hot"]
    # Where its masters publish, only the running minion knows.
    path = plant(hot, master_alive_intervall=30, publish_port=14505)
    answered = m1.cli("salt", "hot", "ha.lint", PATIENT)
    assert answered.returncode == 1, "what salt ends with when a minion did not return 0"
    data = answered.data["hot"]
    assert {finding["code"] for finding in data["findings"]} == {"HA003", "HA110"}
    (misspelt,) = found(data, "HA003")
    assert (misspelt["file"], misspelt["line"]) == (str(path), 2)
    assert "HA003 warning  hot" in m1.cli("salt", "hot", "ha.lint", PATIENT, out=None).stdout

    local = hot.salt_call("ha.lint", "--local")
    assert (local.returncode, codes(local)) == (1, {"HA003"})
    path.write_text("master: [10.0.0.1\n")
    passed = hot.salt_call("ha.lint", "--local", "--retcode-passthrough")
    assert (passed.returncode, codes(passed)) == (1, {"HA001"})


# -- what Salt really does


def accepted(lab: Lab, name: str, **config: Any) -> Minion:
    """A minion that m1 and m2 know, not started."""
    masters = [*lab.masters.values()]
    minion = lab.add_minion(name, masters, config={"auth_timeout": 1, **config})
    for master in masters:
        master.plant("minions", name, minion.pub)
    return minion


def lints(minion: Minion) -> set[str]:
    return codes(minion.salt_call("ha.lint", "--local"))


def test_distributed_never_comes_up(lab: Lab) -> None:
    minion = accepted(lab, "distributed", master_type="distributed", master_alive_interval=5)
    assert "HA215" in lints(minion)
    minion.start()
    logged(minion, "TypeError: a bytes-like object is required")
    assert minion.bound_to() == []
    minion.kill()


def test_a_name_that_nobody_knows_makes_a_hot_minion_deaf_to_all(lab: Lab) -> None:
    healthy = lab.masters["m1"]
    masters = [healthy.address, "no-such-master.invalid"]
    minion = accepted(lab, "named", master=masters, retry_dns=1)
    assert lints(minion) == {"HA109", "HA113"}
    minion.start()
    logged(minion, "no-such-master.invalid", "Retrying in 1 seconds", times=5)
    assert minion.bound_to() == [], "and m1 is well"
    minion.kill()


def test_a_list_of_ports_breaks_the_minions_own_bus(lab: Lab) -> None:
    config = {"ipc_mode": "tcp", "tcp_pub_port": [14510, 14512], "tcp_pull_port": [14511, 14513]}
    minion = accepted(lab, "listed", **config)
    assert lints(minion) == {"HA401"}
    minion.start()
    text = "int() argument must be a string"
    wait_for(
        lambda: text in minion.daemon.output.read_text() or bool(log_lines(minion, text)),
        SOON,
        "it says what is wrong",
    )
    assert minion.bound_to() == []
    minion.kill()


def test_safemode_keeps_a_failover_minion_at_a_dead_master(lab: Lab) -> None:
    m1 = lab.masters["m1"]
    config = {"master_type": "failover", "master_alive_interval": 5, "retry_dns": 0}
    keepalive = {"tcp_keepalive_idle": 20, "tcp_keepalive_intvl": 5, "tcp_keepalive_cnt": 3}
    nobody = lab.new_address()
    minion = accepted(
        lab, "safe", master=[nobody, m1.address], auth_safemode=True, **config, **keepalive
    )
    assert lints(minion) == {"HA217", "HA218"}
    minion.start()
    logged(minion, "SaltReqTimeoutError", times=3)
    assert minion.bound_to() == []
    minion.kill()
