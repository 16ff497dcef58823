"""The wheel of what is installed, into a venv of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import saltext_ha
from saltext_ha.commands.rollout import own_wheel
from saltext_ha.common.version import ours


def test_it_has_every_file_and_installs(tmp_path: Path) -> None:
    wheel = own_wheel.make()
    assert wheel.version == ours()
    (tmp_path / wheel.name).write_bytes(wheel.content)
    here = Path(saltext_ha.__file__).parent
    files = {p for p in here.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    with zipfile.ZipFile(tmp_path / wheel.name) as archive:
        packed = {name for name in archive.namelist() if name.startswith("saltext_ha/")}
        assert packed == {f"saltext_ha/{p.relative_to(here)}" for p in files}
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    # pip compares each file with RECORD.
    subprocess.run([*pip, "--target", target, tmp_path / wheel.name], check=True, timeout=120)
    (found,) = metadata.distributions(path=[str(target)])
    assert found.version == wheel.version
    assert {point.group for point in found.entry_points} == {"salt.loader", "console_scripts"}


def test_installed_from_its_own_wheel_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By RECORD, as on a master where nothing is checked out."""
    wheel = own_wheel.make()
    (tmp_path / wheel.name).write_bytes(wheel.content)
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, tmp_path / wheel.name], check=True, timeout=120)
    (installed,) = metadata.distributions(path=[str(target)])
    monkeypatch.setattr(metadata, "distribution", lambda name: installed)
    assert own_wheel.make().content == wheel.content


@pytest.mark.parametrize("version", ["0.0.1", "99.0"])
def test_metadata_that_an_upgrade_has_left_is_not_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """salt-pip installs with ``--target``, where pip removes nothing of the older version."""
    wheel = own_wheel.make()
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        archive.extractall(tmp_path)
    old = tmp_path / f"saltext_ha-{version}.dist-info"
    old.mkdir()
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: saltext-ha\nVersion: {version}\n")
    (old / "RECORD").write_text("saltext_ha/gone.py,,\n")
    os.utime(old / "METADATA", (1, 1))
    left = metadata.Distribution.at(old)
    monkeypatch.setattr(metadata, "distribution", lambda name: left)  # whichever comes first
    assert own_wheel.make().content == wheel.content
    assert ours.__wrapped__() == wheel.version
