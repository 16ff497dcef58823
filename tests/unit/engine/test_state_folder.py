"""When the state folder is looked at, and for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from saltext_ha.common.file_looks import Looks
from saltext_ha.engine import state_folder
from saltext_ha.engine.state_folder import LATELY, StateFolder
from saltext_ha.transport.identity import KEY_FILE, RENEWED_FILE, Identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "peers").mkdir()
    for name in (KEY_FILE, "replica.db"):
        (tmp_path / name).touch()
    return tmp_path


def test_only_who_says_so_gets_an_answer_of_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(state_folder, "boot_clock", lambda: now[0])
    looks: list[float] = []
    shown = [Identity(folder / KEY_FILE, folder / KEY_FILE, "", "")]
    watched = StateFolder(folder, lambda: shown[0], Looks(), lambda: looks.append(now[0]))
    assert watched.problem(lately=True) == ""
    (folder / KEY_FILE).unlink()
    now[0] += LATELY - 0.1
    assert watched.problem(lately=True) == ""
    assert "identity.key was removed" in watched.problem()
    (folder / RENEWED_FILE).touch()
    assert "identity.key was removed" in watched.problem(lately=True)
    now[0] += LATELY
    assert watched.problem(lately=True) == ""
    assert looks == [100.0, 101.9, 103.9]


def test_a_renewal_is_no_exchange(folder: Path) -> None:
    """Its files are there a moment before it is shown."""
    shown = [Identity(folder / KEY_FILE, folder / KEY_FILE, "", "")]
    watched = StateFolder(folder, lambda: shown[0], Looks(), lambda: None)
    (folder / RENEWED_FILE).write_text("new")
    (folder / KEY_FILE).unlink()
    assert watched.problem() == ""
    shown[0] = Identity(folder / RENEWED_FILE, folder / RENEWED_FILE, "", "")
    assert [watched.problem() for _ in range(3)] == ["", "", ""]
    (folder / RENEWED_FILE).write_text("of somebody else")
    assert watched.problem() == ""
    assert f"{folder / RENEWED_FILE} was replaced by another one" in watched.problem()
