"""What a runner says when no engine answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands import engine_client
from saltext_ha.common.errors import EngineUnavailable
from saltext_ha.config import mapping

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
