"""What ``ha.deploy`` says if its runner ends before the deployment does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from saltext_ha.commands import engine_client
from saltext_ha.commands.trees import deploy_runner
from saltext_ha.common.errors import EngineBrokeOff, EngineBusy, EngineUnavailable, HaError
from saltext_ha.config.mapping import HaConfig

pytestmark = pytest.mark.core

SETTINGS = cast(HaConfig, None)
Engine = Callable[..., None]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Sets what the engine raises when it is to begin, and when it is asked how far it is."""

    def raises(begin: BaseException | None, progress: BaseException) -> None:
        def ask(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
            if command == "deploy_progress":
                raise progress
            if begin:
                raise begin
            return {"job": "1"}

        monkeypatch.setattr(deploy_runner, "engine", ask)

    return raises


def run(test: bool = False) -> dict[str, Any]:
    return deploy_runner.run(SETTINGS, "deploy", {"trees": [], "test": test})


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit()])
def test_who_interrupts_it_is_told_that_it_goes_on(
    engine: Engine, end: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(None, end)
    with pytest.raises(type(end)):
        run()
    said = capsys.readouterr().err
    assert "the engine of this master goes on, and all masters may switch" in said
    assert "salt-run ha.rollback takes it back" in said
    with pytest.raises(type(end)):
        run(test=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("begin", "progress"),
    [
        (None, EngineUnavailable("is not running")),
        (None, EngineBrokeOff("does not respond")),
        (EngineBrokeOff("does not answer"), HaError()),
    ],
)
def test_an_engine_that_ends_meanwhile_may_have_deployed_it(
    engine: Engine, begin: BaseException | None, progress: BaseException
) -> None:
    engine(begin, progress)
    with pytest.raises(EngineUnavailable, match=r"\. It may be deployed all the same: salt-run"):
        run()
    with pytest.raises(EngineUnavailable) as planned:
        run(test=True)
    assert str(planned.value) == str(begin or progress)


def test_an_engine_with_too_many_commands_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when many schedules are due: the deployment goes on, and its end is to be told."""
    told = [EngineBusy("32 commands"), {"text": ""}, {"answer": {"kind": "x"}}]

    def ask(settings: HaConfig, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if command == "deploy":
            return {"job": "1"}
        if isinstance(answer := told.pop(0), BaseException):
            raise answer
        return answer

    monkeypatch.setattr(deploy_runner, "engine", ask)
    monkeypatch.setattr(engine_client, "BUSY", 0.0)
    assert run() == {"kind": "x"}
    told.append(EngineBusy("32 commands"))
    monkeypatch.setattr(engine_client, "PATIENCE", 0.0)
    with pytest.raises(EngineBrokeOff, match=r"32 commands\. It may be deployed all the same"):
        run()


def test_nothing_is_deployed_by_an_engine_that_does_not_run(engine: Engine) -> None:
    engine(EngineUnavailable("is not running"), HaError())
    with pytest.raises(EngineUnavailable) as plain:
        run()
    assert str(plain.value) == "is not running"


def test_what_failed_is_said_as_it_is(engine: Engine) -> None:
    engine(None, HaError("nothing was switched: m2: the disk is full"))
    with pytest.raises(HaError) as plain:
        run()
    assert str(plain.value) == "nothing was switched: m2: the disk is full"
