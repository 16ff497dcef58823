"""The execution module: from Salt's dunders to values."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import salt.config
import salt.crypt
import salt.utils.event
from salt.exceptions import SaltInvocationError

from saltext_ha.minion import binding, options, tcp_links
from saltext_ha.minion.restarting import processes
from saltext_ha.minion.tcp_links import TcpLinks
from saltext_ha.minion.watchdog import request, run
from saltext_ha.minion.watchdog.journal import FAILED, STARTED, Journal, RecordedMove
from saltext_ha.modules import ha

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"


def links(*seen: tuple[str, int]) -> TcpLinks:
    return TcpLinks(frozenset(seen))


@pytest.fixture
def opts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The configuration of one Minion object of a hot-hot minion, and its file."""
    conf = tmp_path / "minion"
    conf.write_text(f"master: [{M1}, '{M2}:4508']\n")
    values: dict[str, Any] = {
        "master": M2,
        "master_ip": M2,
        "master_port": 4508,
        "master_uri": f"tcp://{M2}:4508",
        "master_type": "str",
        "multimaster": True,
        "conf_file": str(conf),
        "pidfile": str(tmp_path / "minion.pid"),
        "multiprocessing": False,
    }
    monkeypatch.setattr(ha, "__opts__", values, raising=False)
    monkeypatch.setattr(salt.crypt.AsyncAuth, "creds_map", {})
    return values


def test_a_process_is_the_same_when_the_clock_was_set(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this ha.install_minions sees that a minion was restarted."""
    before, run_by = ha.version(), processes.find(os.getppid())
    plain = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: plain(self) + 60)
    after = ha.version()
    assert after["started"] - before["started"] == pytest.approx(60)
    assert run_by is not None
    assert before["process"] == after["process"] != list(run_by)


def test_a_watchdog_of_before_an_installation_is_told(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = ha.version()["started"]
    monkeypatch.setattr(ha, "installed_at", lambda: started + 1)
    assert ha.version()["outdated"] is False  # nothing of it runs all the time
    opts["engines"] = [{"ha_watchdog": {}}]
    assert ha.version()["outdated"] is True
    for at in (started - 1, time.time() + 60):
        monkeypatch.setattr(ha, "installed_at", lambda at=at: at)
        assert ha.version()["outdated"] is False
    opts["caller"] = True
    assert ha.version()["outdated"] is None


def test_a_hot_minion_whose_list_is_in_an_included_file(opts: dict[str, Any]) -> None:
    conf = Path(opts["conf_file"])
    (conf.parent / "minion.d").mkdir()
    conf.rename(conf.parent / "minion.d" / "ha-masters.conf")
    assert ha.current_master()["masters"] == [M1, f"{M2}:4508"]


def test_a_hot_minion_reads_the_list_from_its_file(opts: dict[str, Any]) -> None:
    answer = ha.current_master()
    assert answer["masters"] == [M1, f"{M2}:4508"]
    assert (answer["type"], answer["port"], answer["id"]) == ("list", 4508, None)
    assert answer["connected"] is False
    assert [(row["port"], row["current"]) for row in ha.masters()] == [(4506, False), (4508, True)]


def test_each_row_says_what_does_not_fit(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = links((M1, 4506), (M2, 4508), (M2, 4505))
    monkeypatch.setattr(tcp_links, "established", lambda pid: seen)
    salt.crypt.AsyncAuth.creds_map = {
        (f"tcp://{ip}:{port}",): {"publish_port": 4505} for ip, port in ((M1, 4506), (M2, 4508))
    }
    deaf = f"authenticated to {M1}, but not subscribed to it: jobs of {M1} are lost"
    assert [row.get("note") for row in ha.masters()] == [deaf, None]
    hung = f"connected to {M2}:4508, but it does not answer"
    rows = ha.masters(ping=True, timeout=0.2)
    assert [row.get("note") for row in rows] == [deaf, hung]
    assert ha.current_master(ping=True, timeout=0.2)["note"] == hung


def test_the_id_is_the_one_that_came_with_the_job(opts: dict[str, Any]) -> None:
    assert ha.current_master(__pub_master_id="m2", __pub_jid="1")["id"] == "m2"
    with pytest.raises(SaltInvocationError, match="pong"):
        ha.current_master(pong=True)


def test_included_files_count(opts: dict[str, Any]) -> None:
    folder = Path(opts["conf_file"]).parent / "minion.d"
    folder.mkdir()
    (folder / "ha.conf").write_text(f"master: [{M2}]\nmaster_port: 4508\n")
    assert ha.current_master()["masters"] == [M2]
    assert [row["configured"] for row in ha.masters()] == [M2]


@pytest.mark.parametrize("text", [None, "master: [unclosed", "- a\n- list\n"])
def test_an_unreadable_file_leaves_the_running_master(
    opts: dict[str, Any], text: str | None
) -> None:
    conf = Path(opts["conf_file"])
    conf.unlink() if text is None else conf.write_text(text)
    answer = ha.current_master()
    assert (answer["address"], answer["masters"]) == (M2, [M2])
    assert "read" in answer["note"]


def test_an_included_file_that_cannot_be_read_leaves_the_running_master(
    opts: dict[str, Any],
) -> None:
    (Path(opts["conf_file"]).parent / "minion.d" / "ha.conf").mkdir(parents=True)
    answer = ha.current_master()
    assert (answer["address"], answer["masters"]) == (M2, [M2])
    assert "cannot read" in answer["note"]


def test_a_failover_minion_needs_no_file(opts: dict[str, Any]) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], conf_file="/nonexistent")
    answer = ha.current_master()
    assert (answer["type"], answer["masters"], answer["address"]) == ("failover", [M1, M2], M2)


def test_a_failover_minion_that_has_lost_all_its_masters(opts: dict[str, Any]) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], master=[M1, M2])
    answer = ha.current_master()
    assert (answer["address"], answer["connected"]) == (None, False)
    assert "none of its masters" in answer["note"]


def test_since_when_and_how_often(opts: dict[str, Any], tmp_path: Path) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], cachedir=str(tmp_path))
    assert "since" not in ha.current_master()
    book, now = Journal(tmp_path), time.time()
    # Of another process than this one: nobody has watched this one yet.
    book.add(
        RecordedMove(tcp_links.psutil.Process().create_time() - 5, M1, f"{M2}:4508", "no answer")
    )
    book.add(
        RecordedMove(tcp_links.psutil.Process().create_time() - 4, f"{M2}:4508", M2, "no answer")
    )
    assert "since" not in ha.current_master()
    book.add(RecordedMove(now - 0.02, None, M2, STARTED))
    book.add(RecordedMove(now - 0.01, M2, M2, f"{FAILED}: may not"))
    answer = ha.current_master()
    assert (answer["since"], answer["switches"]) == (now - 0.02, 2)
    read = datetime.strptime(answer["since_iso"], "%Y-%m-%dT%H:%M:%S%z")
    assert read.timestamp() == int(now - 0.02)


def test_a_move_without_a_running_minion_is_an_error(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opts["caller"] = True
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    answer = ha.failover()
    assert (answer["result"], ha.__context__) == (False, {"retcode": 1})
    assert f"no running minion found (pidfile {opts['pidfile']})" in answer["comment"]


def test_by_salt_ssh_the_minion_of_the_host_is_unknown(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own configuration would be clean, and no minion runs with it."""
    opts.update(caller=True, multimaster=False, root_dir=str(tmp_path / "running_data"))
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    answer = ha.lint()
    assert answer["error"].startswith(options.SALT_SSH)
    assert ha.__context__["retcode"] == 2
    assert ha.current_master()["note"] == options.SALT_SSH


@pytest.mark.parametrize("values", [{}, {"master": None}, {"master": 17}, {"master": []}])
def test_odd_configurations_do_not_raise(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(ha, "__opts__", values, raising=False)
    answer = ha.current_master(ping=True)
    assert answer["address"] is None
    assert not answer["connected"]
    assert answer["note"]
    assert answer["ping"]["answers"] is None
    ha.masters(ping=True)
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    rows = ha.ping_masters()
    assert not any(row["answers"] for row in rows)
    # 17 is an address, though nobody's.
    assert ha.__context__["retcode"] == (1 if values.get("master") == 17 else 2)


def test_whether_jobs_would_come(opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that was never met is asked at the publish port of those that were."""
    asked: list[tuple[str | None, int | None]] = []

    def reached(transport: str, known: list[binding.SeenMaster], *rest: Any) -> list[bool]:
        asked.extend((each.host, each.publish_port) for each in known)
        return [True for _ in known]

    monkeypatch.setattr("saltext_ha.minion.watchdog.publisher.reached", reached)
    told = {(M2, 4508): 4507}
    monkeypatch.setattr(binding, "told_ports", lambda creds: told)
    rows = ha.masters(ping=True, timeout=1)
    assert asked == [(M1, 4507), (M2, 4507)]
    assert [row["publishes"] for row in rows] == [True, True]
    asked.clear()
    told.clear()
    ha.masters(ping=True, timeout=1)
    assert asked == [(M1, None), (M2, None)]


def test_masters_that_do_not_answer_are_an_error(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    rows = ha.ping_masters(timeout=1)
    assert [(row["address"], row["port"], row["answers"]) for row in rows] == [
        (M1, 4506, False),
        (M2, 4508, False),
    ]
    assert all(row["note"] and row["milliseconds"] is None for row in rows)
    assert ha.__context__["retcode"] == 1


@pytest.mark.parametrize("sudo", [True, False])
def test_a_move_waits_for_the_job_that_returns(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, sudo: bool
) -> None:
    """With ``sudo_user`` the function runs in a salt-call below the job."""
    above = [each.pid for each in psutil.Process().parents()]
    job, minion = above[:2] if sudo else (None, os.getpid())
    monkeypatch.setattr(options, "pid", lambda opts: minion)
    place = SimpleNamespace(mover=SimpleNamespace(order=(M1, M2)))
    monkeypatch.setattr(run, "site", lambda *_: place)
    monkeypatch.setattr(request, "plan", lambda *_: request.MovePlan(M1, M2))
    launched: list[Any] = []
    monkeypatch.setattr(request, "launch", lambda *order: launched.append(order))
    assert ha.failover()["result"] is True
    assert launched == [(opts, M2, minion, job, (M1, M2))]


@pytest.mark.parametrize("timeout", [0, -1, "soon", None, 301, float("nan")])
def test_a_timeout_that_is_none_is_named(opts: dict[str, Any], timeout: Any) -> None:
    with pytest.raises(SaltInvocationError, match="timeout"):
        ha.masters(timeout=timeout)


@pytest.mark.parametrize("wrong", ["n", "flase", "", 2, None])
def test_a_switch_that_is_neither_on_nor_off_is_named(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    for asked in (ha.current_master, ha.masters):
        with pytest.raises(SaltInvocationError, match=f"ping={wrong!r}: takes True or False"):
            asked(ping=wrong)
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    if wrong is not None:  # as Salt's own test= says
        assert f"test={wrong!r}: takes True or False" in ha.failover(test=wrong)["comment"]
        assert ha.__context__ == {"retcode": 1}


def test_a_switch_may_be_a_text(opts: dict[str, Any]) -> None:
    """Forms of salt-api have nothing else."""
    assert "ping" not in ha.current_master(ping="False")
    assert all("ping" not in row for row in ha.masters(ping="false"))
