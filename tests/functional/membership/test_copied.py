"""A machine that was copied, with the state folder of the master on it, under another name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lab.engines import Engine, EngineProcess, Place
from saltext_ha.common.errors import TrustError
from saltext_ha.transport import identity
from tests.engines import invited, join_by, running
from tests.engines import join as join_group
from tests.loop import in_a_loop

pytestmark = pytest.mark.usefixtures("no_bus")


@in_a_loop
async def test_a_copy_of_a_master_that_runs_does_not_start(tmp_path: Path) -> None:
    m2, m3 = Place(tmp_path, "m2"), Place(tmp_path, "m3")
    folder = m3.config.state_dir
    said = f"{folder} is a copy of the state folder of m2 ({m2.config.url}), which was seen running"
    with EngineProcess(m2):
        shutil.copytree(m2.config.state_dir, folder)
        with pytest.raises(TrustError, match=re.escape(said)):
            await Engine(m3).start()
        token = await invited(m2)
        for test in (True, False):
            assert (await join_by(m3, token, test=test))["error"].startswith(said)
    with pytest.raises(TrustError, match=re.escape(said)):  # also while the other one is down
        await Engine(m3).start()
    with EngineProcess(m2):
        token = await invited(m2)
        shutil.rmtree(folder)
        assert (await join_by(m3, token))["members"] == ["m2"]
        async with Engine(m3) as three:
            await three.meets(m2)


@in_a_loop
async def test_a_master_under_another_name_and_address_starts(tmp_path: Path) -> None:
    m2, m3 = Place(tmp_path, "m2"), Place(tmp_path, "m3")
    with EngineProcess(m2):
        pass
    m2.config.state_dir.rename(m3.config.state_dir)
    async with Engine(m3):
        pass


@pytest.mark.parametrize("renewed", [False, True])
@in_a_loop
async def test_the_identity_of_a_peer_does_not_start_here(tmp_path: Path, renewed: bool) -> None:
    """If only these files are copied: the group would call m2 at the address of m1."""
    m1, m2 = Place(tmp_path, "m1"), Place(tmp_path, "m2")
    async with running(m1, m2):
        await join_group(m1, m2)
    if renewed:  # m1 has not heard of it yet
        identity.succeed(m2.config.state_dir, "m2")
    for path in m1.config.state_dir.glob("identity.*"):
        path.unlink()
    for path in m2.config.state_dir.glob("identity.*"):
        shutil.copy2(path, m1.config.state_dir)
    file = m1.config.state_dir / ("identity.pem" if renewed else "identity.crt")
    said = f"{file} is the identity of m2 ({m2.config.url})"
    with pytest.raises(TrustError, match=re.escape(said)):
        await Engine(m1).start()
