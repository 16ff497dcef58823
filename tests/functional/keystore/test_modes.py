"""Who may read what an engine keeps: the same whatever umask it was started with."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from tests.engines import join, places, running
from tests.loop import until


@pytest.mark.parametrize("umask", [0, 0o077])
def test_all_in_the_state_folder_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def act() -> None:
        async with running(one, two) as (m1, m2):
            await join(one, two)
            await m1.meets(m2)
            await until(
                lambda: (one.config.state_dir / "peers" / "m2.json").exists(), "m2 is pinned"
            )
            check(one.config.state_dir)
            check(two.config.state_dir)
            sockets = [place.config.control_socket.stat().st_mode for place in (one, two)]
            assert [oct(stat.S_IMODE(mode)) for mode in sockets] == ["0o600"] * 2
        check(one.config.state_dir)

    before = os.umask(umask)
    try:
        asyncio.run(act())
    finally:
        os.umask(before)


def check(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        try:
            found = path.lstat().st_mode
        except FileNotFoundError:
            continue  # one under a temporary name, which has its own by now
        public = path.suffix == ".crt"
        wanted = 0o700 if stat.S_ISDIR(found) else 0o644 if public else 0o600
        assert (str(path), oct(stat.S_IMODE(found))) == (str(path), oct(wanted))
