"""``ha.restart_masters``: a master that is ended before it can answer that it begins."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from saltext_ha.commands import engine_client, restarter
from saltext_ha.commands.masters import restart_masters_runner
from saltext_ha.commands.masters.restart_masters import RestartMasters
from saltext_ha.common.errors import (
    EngineBusy,
    EngineUnavailable,
    HaError,
    PeerRefused,
    PeerUnreachable,
)
from saltext_ha.config.mapping import RESTART, HaConfig
from saltext_ha.sync.group import Group
from tests.tools import script

SERVES = {
    "state": "running",
    "behind": 0,
    "held": 0,
    "doubt": "",
    "health": {"healthy": True, "ready": True},
}


def ask(problem: HaError, **payload: Any) -> dict[str, Any]:
    """The answer about a peer that fails with *problem*."""

    async def call(name: str, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        raise problem

    group = cast(Group, SimpleNamespace(name="m1", call=call))
    return asyncio.run(RestartMasters(group, ["true"], Path()).restart({"name": "m2", **payload}))


def test_no_answer_to_the_order_is_no_failure() -> None:
    assert ask(PeerUnreachable("m2 hung up"), begin=True) == {"unanswered": "m2 hung up"}
    with pytest.raises(PeerUnreachable):
        ask(PeerUnreachable("m2 hung up"))
    with pytest.raises(PeerRefused):
        ask(PeerRefused("it was asked to restart just now"), begin=True)


def test_it_is_looked_at_whether_it_has_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this master itself: its engine ends while it answers."""
    orders: list[str] = []

    def engine(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload.get("begin"):
            orders.append(payload["name"])
            raise EngineUnavailable("the engine hung up")
        if command == "status":
            return {"masters": [{"name": "m1", **SERVES}]}
        return {"start": f"start {len(orders)}", "command": "true", "problem": ""}

    monkeypatch.setattr(restart_masters_runner, "engine", engine)
    monkeypatch.setattr(restart_masters_runner, "POLL", 0.001)
    settings = cast(HaConfig, SimpleNamespace(name="m1"))
    (row,) = restart_masters_runner.run(settings, False, 5)["masters"]
    assert (row["restarted"], row["problem"]) == (True, "")
    assert orders == ["m1"]


def test_an_engine_with_too_many_commands_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[str] = []

    def engine(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload.get("begin"):
            orders.append(payload["name"])
            if len(orders) == 1:
                raise EngineBusy("32 commands are being carried out; try again later")
        if command == "status":
            return {"masters": [{"name": "m1", **SERVES}]}
        return {"start": f"start {len(orders)}", "command": "true", "problem": ""}

    monkeypatch.setattr(restart_masters_runner, "engine", engine)
    monkeypatch.setattr(restart_masters_runner, "POLL", 0.001)
    monkeypatch.setattr(engine_client, "BUSY", 0.001)
    settings = cast(HaConfig, SimpleNamespace(name="m1"))
    (row,) = restart_masters_runner.run(settings, False, 5)["masters"]
    assert (row["restarted"], row["problem"], orders) == (True, "", ["m1", "m1"])


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ("it failed last week", "not within 0.05 s: m2 hung up"),
        ("no such unit", "restart it: no such unit"),
    ],
)
def test_why_it_did_not_restart(monkeypatch: pytest.MonkeyPatch, after: str, problem: str) -> None:
    """What was wrong the last time says nothing of an order that may not have come through."""
    orders: list[str] = []

    def engine(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if payload.get("begin"):
            orders.append(payload["name"])
            return {"unanswered": "m2 hung up"}
        if command == "status":
            return {"masters": [{"name": name, **SERVES} for name in ("m1", "m2")]}
        failed = after if orders else "it failed last week"
        return {"start": "the same", "command": "restart it", "problem": failed}

    monkeypatch.setattr(restart_masters_runner, "engine", engine)
    monkeypatch.setattr(restart_masters_runner, "POLL", 0.001)
    settings = cast(HaConfig, SimpleNamespace(name="m1"))
    rows = restart_masters_runner.run(settings, False, 0.05)["masters"]
    assert [(row["name"], row["restarted"]) for row in rows] == [("m2", False), ("m1", None)]
    assert rows[0]["problem"] == problem


@pytest.mark.parametrize(
    ("without", "hint"), [("", "m2,m3"), ("m2", "m2,m3"), (["m3"], "m2,m3"), ("m2,m3", "")]
)
def test_who_leaves_one_out_is_told_of_the_others_beside_it(
    monkeypatch: pytest.MonkeyPatch, without: str | list[str], hint: str
) -> None:
    def engine(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if command == "status":
            away = [{"name": name, **SERVES, "state": "unknown"} for name in ("m2", "m3")]
            return {"masters": [{"name": "m1", **SERVES, "held": 0 if hint else 1}, *away]}
        return {"start": "1", "command": "true", "problem": ""}

    monkeypatch.setattr(restart_masters_runner, "engine", engine)
    settings = cast(HaConfig, SimpleNamespace(name="m1"))
    with pytest.raises(HaError) as refused:
        restart_masters_runner.run(settings, False, 5, without)
    assert str(refused.value).partition("; without=")[2] == (
        f"{hint} leaves out {hint}" if hint else ""
    )


@pytest.mark.parametrize(("user", "rule"), [(0, False), (997, True)])
def test_a_user_whom_systemd_refuses_is_told_what_it_takes(
    user: int, rule: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "systemctl", "echo Interactive authentication required.", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    order = {"command": list(RESTART), "result": str(tmp_path / "result")}
    monkeypatch.setattr(restarter.detached, "take", lambda: order)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    restarter.main()
    problem = (tmp_path / "result").read_text()
    assert problem.startswith("exit code 1: Interactive authentication required.")
    assert problem.endswith(restarter.NEEDS_A_RULE) is rule
