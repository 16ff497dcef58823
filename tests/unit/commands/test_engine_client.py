"""What a runner says when no engine answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands import engine_client
from saltext_ha.common.errors import (
    ConfigError,
    EngineBrokeOff,
    EngineUnavailable,
    NotPermitted,
)
from saltext_ha.config import mapping
from saltext_ha.transport import control_client

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("engines", "there"),
    [
        (None, False),
        ([], False),
        # Another file of master.d has replaced it.
        ([{"reactor": {}}], False),
        ([{"ha_watchdog": {}}], False),
        # Of these Salt starts nothing.
        ("ha", False),
        ([1, {}], False),
        (1, False),
        # As Salt takes it.
        ([{"reactor": {}}, {"ha": {}}], True),
        ([{"ha": None}], True),
        (["ha"], True),
        ({"ha": {}}, True),
        ([{"of the group": {"engine_module": "ha"}}], True),
    ],
)
def test_an_engine_that_is_not_configured_is_no_question(
    engines: Any, there: bool, tmp_path: Path
) -> None:
    folders = {"pki_dir": str(tmp_path), "sock_dir": str(tmp_path)}
    opts = {**folders, "id": "m1", "interface": "10.0.0.1", "conf_file": "/etc/salt/master"}
    settings = mapping.parse({**opts, "engines": engines})
    with pytest.raises(EngineUnavailable) as refused:
        engine_client.engine(settings, "status", {})
    said = str(refused.value)
    assert said.startswith("the ha engine of this master is not running: ")
    assert ("/etc/salt/master has no '- ha: {}'" in said) == (not there)
    assert ("does its configuration have" in said) == there


@pytest.mark.parametrize(
    ("below", "named"),
    [([{"port": 4530}, "mode"], "port, mode"), ({"port": 4530}, "port"), (True, "True")],
)
def test_settings_with_which_salt_cannot_start_the_engine_are_named(
    below: Any, named: str, tmp_path: Path
) -> None:
    """It cannot say so itself: Salt fails before it is called, every ten seconds."""
    opts = {"pki_dir": str(tmp_path), "sock_dir": str(tmp_path), "id": "m1", "interface": "::1"}
    for engines in [{"ha": below}], {"ha": below}:
        with pytest.raises(ConfigError) as refused:
            mapping.parse({**opts, "conf_file": "/etc/salt/master", "engines": engines})
        said = f"/etc/salt/master: engines: ha: takes no settings ({named}); write them below ha:"
        assert str(refused.value).startswith(said)
    for fine in [], False, {"engine_module": "ha"}:
        mapping.parse({**opts, "engines": [{"ha": fine}]})


@pytest.mark.parametrize("kind", [EngineBrokeOff, NotPermitted])
def test_one_that_runs_is_not_said_to_be_missing(
    kind: type[EngineUnavailable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose entry was taken out of the configuration, before salt-master restarts."""

    def fails(*_: object) -> None:
        raise kind("it may have been carried out")

    monkeypatch.setattr(control_client, "request", fails)
    folders = {"pki_dir": str(tmp_path), "sock_dir": str(tmp_path)}
    settings = mapping.parse({**folders, "id": "m1", "interface": "10.0.0.1", "engines": []})
    with pytest.raises(kind, match=r"^it may have been"):
        engine_client.engine(settings, "refill", {})


@pytest.mark.parametrize(("code", "shown"), [(0, True), (None, True), (64, False)])
def test_who_interrupts_a_runner_is_shown_no_traceback(code: int | None, shown: bool) -> None:
    """Salt's handler of Ctrl-C raises an exit; Salt itself shows where that came from."""

    def interrupted() -> dict[str, Any]:
        raise SystemExit(code)

    if not shown:  # Salt says why, such as of its configuration
        with pytest.raises(SystemExit):
            engine_client.shaped(interrupted, {})
        return
    context: dict[str, Any] = {}
    answer = engine_client.shaped(interrupted, context)
    assert (answer["error"], answer["retcode"], context) == ("interrupted", 2, {"retcode": 2})
