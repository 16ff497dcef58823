"""A rotation of the AES key that salt-master leaves undone is told."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.keystore import revoke, rotation
from tests.loop import in_a_loop, until


def master(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "cache").mkdir()
    return {"cachedir": str(tmp_path / "cache"), "id": "m1", "user": None, "loop_interval": 60}


def test_a_rotation_that_salt_master_does_not_make_is_told(tmp_path: Path) -> None:
    opts = master(tmp_path)
    assert rotation.overdue(opts, 1e12) == "", "none is due"
    revoke._rotate(opts)
    since = (tmp_path / "cache" / rotation.DUE).stat().st_mtime
    assert rotation.overdue(opts, since + 120) == "", "Salt takes up to a minute"
    assert "keys were revoked 10 minutes ago" in rotation.overdue(opts, since + 600)
    assert rotation.overdue({**opts, "loop_interval": 600}, since + 600) == ""


@in_a_loop
async def test_the_note_is_there_until_salt_has_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "EVERY", 0.01)
    monkeypatch.setattr(rotation, "LATE", -60.0)
    opts, notes = master(tmp_path), dict[str, str]()
    revoke._rotate(opts)
    watching = asyncio.ensure_future(rotation.watch(opts, notes))
    await until(lambda: "keys were revoked" in notes.get("rotation", ""))
    (tmp_path / "cache" / rotation.DUE).unlink()  # as Maintenance does
    await until(lambda: notes["rotation"] == "")
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
