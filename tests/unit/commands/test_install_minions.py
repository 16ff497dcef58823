"""``ha.install_minions``: what it says of minions that do not do what they are asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from saltext_ha.commands.rollout import install_minions
from saltext_ha.commands.rollout.own_wheel import OwnWheel
from saltext_ha.common.errors import HaError

WHEEL = OwnWheel("saltext_ha-2.0-py3-none-any.whl", "2.0", ">=3.10", b"PK")
FACTS: dict[str, Any] = {
    "python": "/opt/python",
    "release": [3, 11, 2],
    "kernel": "Linux",
    "cache": "/var/cache/salt/minion",
    "conf": "/etc/salt/minion",
    "delay": 0,
    "watchdog": False,
    "has": {"version": "1.0"},
}
Does = Callable[[str, list[Any]], Any]


class Minions:
    """Each does what it is asked by a function; one that returns None does not answer."""

    def __init__(self, **minions: Does) -> None:
        self._minions = minions
        self.asked: list[tuple[str, list[str]]] = []

    def ask(self, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert command == "cmd"
        ids = payload["tgt"] if payload["tgt_type"] == "list" else list(self._minions)
        self.asked.append((payload["fun"], ids))
        told = {i: self._minions[i](payload["fun"], payload["arg"]) for i in ids}
        missing = {i: "m1" for i, value in told.items() if value is None}
        return {
            "returned": {i: value for i, value in told.items() if value is not None},
            "missing": missing,
            **{name: {} for name in ("failed", "running", "unknown", "jobs", "targets")},
            "unreachable": [],
            "retcode": int(bool(missing)),
        }

    def rows(self, **options: Any) -> tuple[dict[str, dict[str, Any]], int]:
        answer = install_minions.run(self.ask, WHEEL, "*", **options)
        return {row["id"]: row for row in answer["minions"]}, answer["retcode"]


class Minion:
    """One that is installed, and restarted: a new process, or not."""

    def __init__(self, after: Any, **facts: Any) -> None:
        self._process: Any = [7, 100.0]
        self._after, self._facts = after, facts

    def __call__(self, fun: str, arg: list[Any]) -> Any:
        if fun == "file.apply_template_on_contents":
            return json.dumps({**FACTS, **self._facts})
        if fun == "ha.version":
            return {"version": "2.0", "started": 5.0, "process": self._process}
        if fun == "cmd.run_all" and "-m" in arg[0]:
            said = {"problem": "", "process": self._process}
            self._process = self._after
            return {"stdout": json.dumps(said), "retcode": 0}
        if fun == "cmd.run_all":
            return {"stdout": json.dumps({"problem": "", "path": "/x"}), "retcode": 0}
        return True


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_minions, "BACK", 0.3)
    monkeypatch.setattr(install_minions, "TURN", 0.1)


def test_only_another_process_is_a_restarted_minion() -> None:
    """An older process that still answers, and a minion without one, are none."""
    rows, retcode = Minions(
        new=Minion([8, 200.0]), same=Minion([7, 100.0]), none=Minion(None)
    ).rows()
    assert {i: row["restarted"] for i, row in rows.items()} == {
        "new": True,
        "same": False,
        "none": False,
    }
    assert (rows["new"]["result"], retcode) == ("installed", 1)
    assert "not back" in rows["same"]["problem"]


def test_a_minion_that_salt_starts_late_is_waited_for() -> None:
    """It sleeps for up to ``random_startup_delay`` before it looks for a master."""

    class Late(Minion):
        def __call__(self, fun: str, arg: list[Any]) -> Any:
            if fun == "ha.version" and self._process == self._after and time.monotonic() < back:
                return None
            return super().__call__(fun, arg)

    back = time.monotonic() + 1
    rows, retcode = Minions(late=Late([8, 200.0], delay=60)).rows()
    assert (rows["late"]["restarted"], retcode) == (True, 0)


def test_a_minion_that_was_not_restarted_after_an_installation_is_no_success() -> None:
    """Its engine is of the version before, also where another tool has installed this one."""
    has = {"version": "2.0", "started": 5.0, "process": [7, 100.0]}
    minions = Minions(
        old=Minion([8, 200.0], watchdog=True, has={**has, "outdated": True}),
        new=Minion([8, 200.0], watchdog=True, has={**has, "outdated": False}),
    )
    rows, retcode = minions.rows(test=True)
    assert (rows["old"]["result"], rows["new"]["result"]) == ("would be restarted", "already there")
    rows, retcode = minions.rows()
    assert (rows["old"]["result"], rows["old"]["restarted"]) == ("already there", True)
    assert (rows["new"]["restarted"], retcode) == (None, 0)
    assert "cp.recv_chunked" not in dict(minions.asked), "nothing is installed anew"


def test_a_master_that_is_silent_for_a_while_is_asked_again() -> None:
    """All were back in the end: the exit code said that something is unknown."""
    minions, polls = Minions(web1=Minion([8, 200.0])), list[str]()

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload["fun"] == "ha.version" and not polls:
            polls.append(command)
            nobody = {"returned": {}, "missing": {}, "unreachable": ["web1"]}
            return {**minions.ask(command, payload), **nobody, "unknown": {"m2": "timed out"}}
        return minions.ask(command, payload)

    answer = install_minions.run(ask, WHEEL, "*")
    assert polls
    assert answer["minions"][0]["restarted"] is True
    assert (answer["unknown"], answer["retcode"]) == ({}, 0)


@pytest.mark.parametrize("present", [False, True])
def test_no_more_are_restarted_when_none_of_a_batch_comes_back(present: bool) -> None:
    """As where a file that nobody has tried by a restart keeps every minion from starting."""
    has = {"version": "2.0", "outdated": True} if present else {"version": "1.0"}
    minions = {f"web{n}": Minion(None, has=has) for n in range(6)}
    rows, retcode = Minions(**minions).rows(batch=2)
    assert [row["restarted"] for row in rows.values()] == [False, False, None, None, None, None]
    assert {row["result"] for row in rows.values()} == {"failed"}
    assert "none of the batch before came back" in rows["web5"]["problem"]
    assert (rows["web5"]["now"], retcode) == (has["version"], 1)
    one_back = minions | {"web1": Minion([8, 200.0], has=has)}
    rows, _ = Minions(**one_back).rows(batch=2)
    assert [row["restarted"] for row in rows.values()] == [False, True, False, False, None, None]
    rows, _ = Minions(**minions).rows(batch=1)
    assert {row["restarted"] for row in rows.values()} == {False}, "one may be ill by itself"


def test_an_older_master_takes_nothing_back() -> None:
    """On the host of a master that was upgraded before, it would replace the master's own, too."""
    has = {i: {"version": v} for i, v in {"new": "10.0", "odd": "?", "old": "1.9"}.items()}
    minions = {i: Minion([8, 200.0], has=each) for i, each in has.items()}
    rows, retcode = Minions(**minions).rows()
    assert {i: row["result"] for i, row in rows.items()} == {
        "new": "failed", "odd": "installed", "old": "installed",
    }  # fmt: skip
    assert (rows["new"]["now"], retcode) == ("10.0", 1)
    assert "10.0, newer than 2.0" in rows["new"]["problem"]
    rows, retcode = Minions(new=minions["new"]).rows(force=True)
    assert (rows["new"]["result"], retcode) == ("installed", 0)


def test_an_engine_that_ends_meanwhile_is_not_asked_without_a_pause() -> None:
    minions = Minions(web1=Minion([8, 200.0]))
    looked: list[str] = []

    def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload["fun"] != "ha.version":
            return minions.ask(command, payload)
        looked.append(command)
        raise HaError("the ha engine of this master is not running")

    (row,) = install_minions.run(ask, WHEEL, "*")["minions"]
    assert (row["result"], row["restarted"]) == ("failed", False)
    assert len(looked) <= 4
