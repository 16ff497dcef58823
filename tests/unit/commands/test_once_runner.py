"""``ha.once`` in the runner: how long it waits for the master that leads."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import salt.client

from saltext_ha.commands.once import once_runner
from saltext_ha.commands.once.once_runner import usual_wait
from saltext_ha.common.errors import HaError

SCHEDULED = {"__pub_schedule": "nightly"}


def waited(monkeypatch: pytest.MonkeyPatch, begins: float, arguments: Mapping[str, Any]) -> bool:
    """Whether it gives up before the leader begins, so many seconds later."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def ask(command: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        begun = now[0] >= 100.0 + begins
        return {
            "do": "skip" if begun else "wait",
            "why": "m1 runs it" if begun else "m1 leads, and has not begun it",
            "leader": "m1",
            "fence": None,
        }

    monkeypatch.setattr(once_runner, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    functions = once_runner.Functions({}, {"test.arg": lambda: None}, {})
    wait = usual_wait(arguments, {"loop_interval": 60})
    answer = once_runner.run(ask, functions, "test.arg", (), {}, name="nightly", wait=wait)
    assert answer["skipped"]
    found: bool = answer["waited"]
    return found


def test_salt_masters_look_at_their_schedules_at_different_seconds_of_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not waited(monkeypatch, 59, SCHEDULED)
    assert waited(monkeypatch, 80, SCHEDULED)
    assert waited(monkeypatch, 59, {}), "cron is punctual"


@pytest.mark.parametrize(
    ("arguments", "opts", "seconds"),
    [
        ({}, {"loop_interval": 60}, 15),
        (SCHEDULED, {"loop_interval": 60}, 75),
        (SCHEDULED, {"loop_interval": 2.5}, 17.5),
        (SCHEDULED, {"loop_interval": 3600}, 300),
        (SCHEDULED, {}, 15),
    ],
)
def test_what_a_schedule_waits(
    arguments: Mapping[str, Any], opts: Mapping[str, Any], seconds: float
) -> None:
    assert usual_wait(arguments, opts) == seconds


@pytest.mark.parametrize("wait", [None, "long", -1, 301])
def test_a_wait_that_makes_no_sense_is_refused(wait: Any) -> None:
    functions = once_runner.Functions({}, {"test.arg": lambda: None}, {})
    with pytest.raises(HaError, match="wait: takes seconds"):
        once_runner.run(lambda *_: {}, functions, "test.arg", (), {}, wait=wait)


@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, "60.0"), ({"within": ""}, "60.0"), ({"within": None}, "60.0"), ({"within": 0}, "0")],
)
def test_a_period_that_is_left_empty_is_the_usual_one(given: Mapping[str, Any], sent: str) -> None:
    """With none at all it would run again. The name 0 is one, too."""
    asked: list[Mapping[str, Any]] = []

    def ask(command: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(payload)
        return {"do": "skip", "why": "it ran", "leader": "m1", "fence": None}

    functions = once_runner.Functions({}, {"test.arg": lambda: None}, {})
    once_runner.run(ask, functions, "test.arg", (), {}, name=0, **given)
    assert (asked[0]["name"], asked[0]["within"]) == ("0", sent)


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ({"web1": {"ret": 1, "retcode": 0}}, {"return": {"web1": 1}, "retcode": 0}),
        ({"web1": {"ret": 1, "retcode": 2}}, {"return": {"web1": 1}, "retcode": 1}),
        # Salt 3006 and 3007 have False in the place of a return; 3008 says so itself.
        (
            {"web1": {"ret": 1, "retcode": 0}, "web2": False},
            {"return": {"web1": 1, "web2": "did not return in time"}, "retcode": 1},
        ),
        ({"web2": False}, {"return": {"web2": "did not return in time"}, "retcode": 1}),
        ({}, {"error": "no minion with an accepted key matches", "retcode": 1}),
    ],
)
def test_who_did_not_return_is_named(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], answer: dict[str, Any]
) -> None:
    class Client:
        def __init__(self, **_: object) -> None: ...

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None: ...

        def cmd(self, *_: object, **__: object) -> dict[str, Any]:
            return told

    monkeypatch.setattr(salt.client, "LocalClient", Client)
    functions = once_runner.Functions({}, {}, {})
    call = functions.call("local.test.arg", ["web*"], {})
    assert functions.carry_out(call, None) == answer
