"""What ``ha.cmd`` says while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from saltext_ha.api.target_split import Part, divide
from saltext_ha.commands import engine_client
from saltext_ha.commands.minions import cmd, cmd_batches, where
from saltext_ha.common.errors import EngineBrokeOff, EngineBusy, EngineUnavailable, HaError
from saltext_ha.config import mapping
from saltext_ha.minions import own_jobs, publishing
from saltext_ha.minions.job_answers import Answers
from saltext_ha.minions.job_specs import CommandSpec
from saltext_ha.output import _minions
from saltext_ha.output._text import Screen
from saltext_ha.runners import ha as runner
from saltext_ha.sync.group import SLOW

pytestmark = pytest.mark.core

NONE: dict[str, Any] = {"returned": {}, "failed": {}, "missing": {}, "unknown": {}, "running": {}}
ANSWER = {**NONE, "jobs": {}, "targets": {}, "unreachable": [], "retcode": 0}


def counted(targeted: int | None, returned: int = 0, failed: int = 0) -> dict[str, int | None]:
    return {"targeted": targeted, "returned": returned, "failed": failed}


@pytest.mark.parametrize(
    ("masters", "unknown", "said"),
    [
        ({}, {}, ""),
        ({"m1": counted(None), "m2": counted(None)}, {}, ""),
        ({"m1": counted(20, 12, 1)}, {}, "12 of 20 returned, 1 failed"),
        ({"m1": counted(20, 12), "m2": counted(10, 10)}, {}, "22 of 30 returned, 0 failed"),
        ({"m1": counted(20, 12), "m2": counted(None)}, {}, "12 returned, 0 failed"),
        (
            {"m1": counted(20, 12)},
            {"m3": "timed out", "m2": "timed out"},
            "12 returned, 0 failed; nothing is known of m2, m3",
        ),
        ({}, {"m2": "timed out"}, "0 returned, 0 failed; nothing is known of m2"),
    ],
)
def test_how_far(masters: dict[str, Any], unknown: dict[str, str], said: str) -> None:
    assert cmd_batches.how_far({"masters": masters, "unknown": unknown}) == said


def test_no_number_is_made_up_where_the_engine_does_not_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cmd_batches, "EACH", 0.01)
    asked: list[dict[str, Any]] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        asked.append({"name": name, **payload})
        if name == "cmd_progress":
            raise EngineUnavailable("no command '/cmd_progress'")
        while len(asked) < 5:
            pass
        return dict(ANSWER)

    cmd_batches.run(ask, "*", "test.ping", [], {}, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["progress is not known: no command '/cmd_progress'",
                     "done: 0 returned, 0 failed, 0 missing"]  # fmt: skip
    named = {each["operation"] for each in asked}
    assert len(named) == 1
    assert all(len(name) == 32 for name in named)


def test_who_did_not_ask_for_progress_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, Any]] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload)
        return dict(ANSWER)

    cmd_batches.run(ask, "*", "test.ping", [], {})
    cmd_batches.run(ask, "*", "test.ping", [], {}, progress=True, test=True)
    assert not any("operation" in payload for payload in asked)
    assert capsys.readouterr().err == ""


def test_an_error_is_the_callers_and_nothing_more_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cmd_batches, "EACH", 0.01)

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        raise HaError("fun: is no function")

    with pytest.raises(HaError, match="no function"):
        cmd_batches.run(ask, "*", "ping", [], {}, progress=True)
    assert "done" not in capsys.readouterr().err


def cmd_lines(found: Mapping[str, Any]) -> list[str]:
    return _minions.cmd(found, Screen(), lambda minion, value, code: [f"{minion}: {value}"])


@pytest.mark.parametrize("progress", [False, True])
def test_what_came_of_earlier_batches_outlives_an_error(progress: bool) -> None:
    batches: list[list[str]] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "where":
            return {"ids": ["a", "b", "c", "d", "e", "f"]}
        if name == "cmd_progress":
            return {"masters": {}, "unknown": {}}
        batches.append(payload["tgt"])
        if len(batches) == 2:
            raise EngineUnavailable("the ha engine of this master does not answer")
        returned = dict.fromkeys(payload["tgt"], True)
        return {**ANSWER, "test": False, "returned": returned, "jobs": {"m1": "1"}}

    found = cmd_batches.run(ask, "*", "state.apply", [], {}, batch=2, progress=progress)
    assert batches == [["a", "b"], ["c", "d"]]
    assert (found["returned"], found["jobs"]) == ({"a": True, "b": True}, [{"m1": "1"}])
    assert found["unknown"] == {"this master": "the ha engine of this master does not answer"}
    assert (found["unsure"], found["not_begun"], found["retcode"]) == (["c", "d"], ["e", "f"], 2)
    shown = "\n".join(cmd_lines(found))
    assert "this master could not be asked: the ha engine of this master does not" in shown
    assert "c: may have run it" in shown
    assert "2 minions of later batches were not begun: e, f" in shown


def test_what_runs_when_the_engine_ends_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minions that said that they run it neither failed nor returned nothing."""
    monkeypatch.setattr(cmd_batches, "AGAIN", 0.0)

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "where":
            return {"ids": ["a", "b"]}
        if name == "cmd_more":
            raise EngineUnavailable("the ha engine of this master does not answer")
        (one,) = payload["tgt"]
        there = {"missing": {one: "m2"}, "running": {one: "1"}, "jobs": {"m2": "1"}}
        return {**ANSWER, "test": False, **there, "retcode": 1}

    found = cmd_batches.run(ask, "*", "state.apply", [], {}, batch=1)
    assert (found["unsure"], found["missing"], found["running"]) == (["a", "b"], {}, {})
    assert found["unknown"] == {"this master": "the ha engine of this master does not answer"}
    assert found["retcode"] == 2
    shown = "\n".join(cmd_lines(found))
    assert "a: may have run it: what came of it is not known" in shown
    assert "did not return" not in shown


def test_an_engine_with_too_many_commands_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when many schedules are due: what runs goes on, and later batches are to be begun."""
    monkeypatch.setattr(engine_client, "BUSY", 0.0)
    asked: list[str] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(name)
        if len(asked) % 2:
            raise EngineBusy("32 commands are being carried out; try again later")
        if name == "where":
            return {"ids": ["a", "b"]}
        if name == "cmd_more":
            there = {"returned": {"a": True}, "failed": {}, "running": []}
            return {"masters": {"m2": there}, "unknown": {}}
        if payload["tgt"] == ["b"]:
            return {**ANSWER, "returned": {"b": True}, "jobs": {"m2": "2"}}
        there = {"missing": {"a": "m2"}, "running": {"a": "1"}, "jobs": {"m2": "1"}}
        return {**ANSWER, **there, "retcode": 1}

    found = cmd_batches.run(ask, "*", "state.apply", [], {}, batch=1)
    assert asked[::2] == asked[1::2] == ["where", "cmd", "cmd_more", "cmd"]
    assert found["returned"] == {"a": True, "b": True}
    assert (found["unsure"], found["not_begun"], found["unknown"]) == ([], [], {})
    monkeypatch.setattr(engine_client, "PATIENCE", 0.0)
    asked.clear()
    with pytest.raises(EngineBusy):
        cmd_batches.run(ask, "*", "state.apply", [], {})
    assert asked == ["cmd"]


def test_nothing_is_unsure_where_all_batches_were_answered() -> None:
    found = cmd_batches.run(lambda *_: dict(ANSWER), "*", "test.ping", [], {})
    assert (found["unsure"], found["not_begun"]) == ([], [])


@pytest.mark.parametrize("batch", [None, 2])
def test_who_does_not_know_the_end_does_not_say_done(
    batch: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "where":
            return {"ids": ["a", "b"]}
        if name == "cmd_progress":
            return {"masters": {}, "unknown": {}}
        lost = {"returned": {"a": True}, "unknown": {"m3": "timed out", "m2": "refused"}}
        return {**ANSWER, "test": False, **lost, "unsure": ["b"], "retcode": 2}

    found = cmd_batches.run(ask, "*", "state.apply", [], {}, batch=batch, progress=True)
    assert (found["unsure"], found["retcode"]) == (["b"], 2)
    first = "batch 1 of 1 ended, in all" if batch else "ended"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"{first}: 1 returned, 0 failed, 0 missing; unknown: m2, m3"
    )


@pytest.mark.parametrize(
    ("error", "test", "may"),
    [
        (EngineBrokeOff("the ha engine does not answer"), False, True),
        (EngineBrokeOff("the ha engine does not answer"), True, False),
        (EngineUnavailable("the ha engine is not running"), False, False),
        (HaError("fun: is no function"), False, False),
    ],
)
def test_what_an_engine_may_have_begun_may_have_run(error: HaError, test: bool, may: bool) -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error), match=str(error)) as raised:
        cmd_batches.run(ask, "*", "test.ping", [], {}, test=test)
    assert ("the job may have run" in str(raised.value)) is may


@pytest.mark.parametrize("batch", ["", " ", []])
def test_an_empty_size_of_batches_is_not_all_at_once(batch: Any) -> None:
    """As of ``batch=$SIZE``, where the shell knows no SIZE."""
    asked: list[str] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(name)
        return {"ids": ["a", "b"]} if name == "where" else dict(ANSWER)

    with pytest.raises(HaError, match="takes a number from 1, or a share such as 10%"):
        cmd_batches.run(ask, "*", "state.apply", [], {}, batch=batch)
    assert not asked


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit()])
def test_who_interrupts_it_is_told_that_minions_go_on(
    end: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        raise end

    with pytest.raises(type(end)):
        cmd_batches.run(ask, "*", "state.apply", [], {})
    assert "minions go on with what was published: salt-run ha.jobs" in capsys.readouterr().err
    with pytest.raises(type(end)):
        cmd_batches.run(ask, "*", "state.apply", [], {}, test=True)
    assert capsys.readouterr().err == ""


def test_an_error_in_the_first_batch_is_the_callers() -> None:
    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        if name == "where":
            return {"ids": ["a", "b"]}
        raise HaError("fun: is no function")

    with pytest.raises(HaError, match="no function"):
        cmd_batches.run(ask, "*", "ping", [], {}, batch=1)


def test_the_runner_waits_longer_than_the_engine_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def request(
        path: Any, command: str, payload: Any, timeout: float, meanwhile: Any
    ) -> dict[str, Any]:
        waited.append(timeout)
        return dict(ANSWER)

    monkeypatch.setattr(engine_client.control_client, "request", request)
    settings = SimpleNamespace(control_socket="", peer_timeout=5.0)
    monkeypatch.setattr(mapping, "parse", lambda opts: settings)
    monkeypatch.setattr(runner, "__opts__", {}, raising=False)
    monkeypatch.setattr(runner, "__context__", {}, raising=False)
    runner.cmd("*", "test.ping", timeout=1)
    pings = where.PINGING + 2 * where.TIMEOUT
    published = 1 + publishing.PUBLISHING + 5 + own_jobs.LOOKING + own_jobs.MOST_FINDING
    assert waited[0] > SLOW + pings + published + 3 * 5.0


def test_the_runner_waits_for_an_engine_that_waits_for_a_peer_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    settings = cast(mapping.HaConfig, SimpleNamespace(control_socket="", peer_timeout=300.0))
    monkeypatch.setattr(
        engine_client.control_client, "request", lambda *given: waited.append(given[3]) or {}
    )
    engine_client.engine(settings, "resolve", {})
    assert waited[0] > 2 * 300.0


def answered(
    tgt: Any, tgt_type: str, targeted: list[str], reached: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    wanted = CommandSpec(tgt, tgt_type, "test.ping")
    returned: dict[str, tuple[float, Any]] = dict.fromkeys(targeted, (0.1, True))
    came = Answers(frozenset(targeted), returned, jid="20260131031245123456")
    told: dict[str, Any] = {"unknown": {}, "minions": reached or {}, "ids": [*(reached or {})]}
    return cmd.answer(wanted, {"m1": Part("m1", tgt, tgt_type)}, {"m1": came}, told, False)


REACHED = {"fo1": ["m1"], "fo2": ["m2"]}


def test_who_is_listed_and_has_no_key_is_not_reached() -> None:
    found = answered(["web1", "web2"], "list", ["web1"])
    assert (found["unreachable"], found["retcode"]) == (["web2"], 1)
    assert answered(["web1"], "list", ["web1"])["retcode"] == 0


def test_who_is_meant_and_not_reached_makes_no_success() -> None:
    """As where the master that publishes only observes, and has no key of it."""
    found = answered("web*", "glob", ["web1"], {"web2": []})
    assert (found["unreachable"], found["retcode"]) == (["web2"], 1)
    assert answered("web*", "glob", ["web1"], {"web1": []})["retcode"] == 0


def test_a_job_that_matched_nobody_was_not_published() -> None:
    found = answered("nosuch*", "glob", [])
    assert (found["jobs"], found["retcode"]) == ({}, 1)
    shown = cmd_lines({**found, "jobs": [{}], "targets": [found["targets"]]})
    assert shown == ["no minion with an accepted key matched"]


@pytest.mark.parametrize(
    ("tgt", "tgt_type", "unreachable"),
    [
        ("*", "glob", ["fo2", "hot"]),
        (["fo1", "fo2", "hot"], "list", ["fo2", "hot"]),
        ("G@os:x", "compound", []),
    ],
)
def test_who_has_no_key_on_its_master_is_not_reached(
    tgt: Any, tgt_type: str, unreachable: list[str]
) -> None:
    """As where the key folder of that master was wiped; of other targets nobody knows the ids."""
    plan = {part.master: part for part in divide(tgt, tgt_type, REACHED, ["m1", "m2"])}
    found = {"m1": Answers(frozenset({"fo1"}), {"fo1": (0.1, True)}), "m2": Answers()}
    told = {"unknown": {}, "minions": REACHED, "ids": [*REACHED, "hot"]}
    wanted = CommandSpec(tgt, tgt_type, "test.ping")
    ran = cmd.answer(wanted, plan, found, told, False)
    assert (ran["unreachable"], ran["retcode"]) == (unreachable, int(bool(unreachable)))
    # What came of it on a master that does not say is another matter.
    found["m2"] = Answers(error="timed out")
    ran = cmd.answer(wanted, plan, found, told, False)
    assert (ran["unreachable"], ran["retcode"]) == ([i for i in unreachable if i == "hot"], 2)


def test_minions_that_only_masters_can_find_are_pinged_before_batches_of_them() -> None:
    asked: list[tuple[str, Any]] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert name == "cmd"
        asked.append((payload["fun"], payload["tgt"]))
        if payload["fun"] == "test.ping":
            assert not payload["test"]
            return {
                **ANSWER,
                "returned": {"b": True, "a": True, "c": True},
                "missing": {"d": "m2"},
                "unsure": ["e"],
                "unknown": {"m3": "away"},
                "retcode": 2,
            }
        return {**ANSWER, "returned": dict.fromkeys(payload["tgt"], True), "jobs": {"m1": "1"}}

    found = cmd_batches.run(ask, "os:Debian", "x.y", [], {}, tgt_type="grain", batch=2)
    assert asked == [("test.ping", "os:Debian"), ("x.y", ["a", "b"]), ("x.y", ["c"])]
    assert found["returned"].keys() == {"a", "b", "c"}
    assert (found["missing"], found["not_begun"]) == ({"d": "m2"}, ["e"])
    assert (found["unknown"], found["retcode"]) == ({"m3": "away"}, 2)


def test_a_batch_of_minions_that_nobody_finds_runs_nothing() -> None:
    asked: list[str] = []

    def ask(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload["fun"])
        ping = {"jobs": {"m1": "1"}, "missing": {"d": "m1"}, "running": {"d": "1"}, "unsure": ["e"]}
        return {**ANSWER, "kind": "cmd", "test": False, **ping, "retcode": 1}

    found = cmd_batches.run(ask, "os:None", "x.y", [], {}, tgt_type="grain", batch=2)
    assert asked == ["test.ping"]
    assert (found["fun"], found["returned"], found["jobs"]) == ("x.y", {}, [])
    assert (found["missing"], found["running"]) == ({"d": "m1"}, {})
    assert (found["unsure"], found["not_begun"]) == ([], ["e"])
    assert found["retcode"] == 1
    with pytest.raises(HaError, match="takes a number"):
        cmd_batches.run(ask, "os:None", "x.y", [], {}, tgt_type="grain", batch="all")
    assert asked == ["test.ping"]
