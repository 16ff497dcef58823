"""Whose a state folder is, while the engine that has it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.engines import Place
from saltext_ha.common.errors import TrustError
from saltext_ha.config.mapping import HaConfig
from saltext_ha.replica import state_owner
from saltext_ha.replica.replica import REPLICA_FILE

pytestmark = pytest.mark.core

# A lock is none against the process that holds it.
HOLD = """
import sys
from pathlib import Path
from saltext_ha.replica.replica import Replica
replica = Replica(Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[HaConfig]:
    """The configuration of an engine that has the folder."""
    config = Place(tmp_path, "m1").config
    database = config.state_dir / REPLICA_FILE
    config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as engine:
        assert engine.stdin
        assert engine.stdout
        assert engine.stdout.readline() == b"up\n"
        state_owner.move_in(config)
        yield config
        engine.stdin.close()


def test_another_master_is_turned_away(running: HaConfig) -> None:
    other = replace(running, name="m2", address="10.9.9.9")
    with pytest.raises(TrustError, match=r"another ha engine uses it, that of m1 .*a pki_dir"):
        state_owner.check(other)
    assert "m2 (https://10.9.9.9:" in state_owner.turned_away(running)


def test_a_new_address_takes_a_restart(running: HaConfig) -> None:
    """To give this master a folder of its own would make another one of it."""
    moved = replace(running, address="10.9.9.9")
    with pytest.raises(TrustError) as told:
        state_owner.check(moved)
    assert str(told.value) == (
        f"the ha engine of m1 runs with an older configuration, as {running.url}; the "
        f"configuration says {moved.url} now. Restart salt-master, so that the engine uses that; "
        f"or, if another master that is called m1 uses {running.state_dir}, give this one another "
        "ha: name"
    )
    assert state_owner.turned_away(running) == ""
    assert state_owner.conflict(moved) == "", "ha.lint finds no second master"
    assert state_owner.restart_due(replace(running, name="m2")) == ""
    assert state_owner.restart_due(running) == ""
