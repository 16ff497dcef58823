"""What is sent to a minion that has nothing of ours, run by its own Python as the minion does."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.rollout import own_wheel
from saltext_ha.commands.rollout.own_wheel import OwnWheel
from saltext_ha.minion import wheel_setup
from tests import salt_venv


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return salt_venv.make(tmp_path_factory.mktemp("venv") / "minion")


@pytest.fixture(scope="module")
def wheel() -> OwnWheel:
    return own_wheel.make()


def run(python: Path, folder: Path, wheel: OwnWheel, **changes: str) -> dict[str, Any]:
    """What the script says, with *wheel* in *folder*, of which nothing may be left."""
    folder.mkdir()
    (folder / wheel.name).write_bytes(wheel.content)
    (folder / "setup.py").write_text(Path(wheel_setup.__file__).read_text("utf-8"), "utf-8")
    order = {"folder": str(folder), "name": wheel.name, "sha256": wheel.sha256}
    argument = json.dumps({**order, "version": wheel.version, **changes})
    command = [python, "-I", folder / "setup.py", argument]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert not folder.exists()
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def version(python: Path) -> str:
    """Which one is there; empty for none."""
    look = "import importlib.metadata as m, saltext_ha; print(m.version('saltext-ha'))"
    done = subprocess.run([python, "-I", "-c", look], capture_output=True, text=True)
    return done.stdout.strip()


def without(wheel: OwnWheel, name: str) -> OwnWheel:
    """*wheel*, where a file is missing."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry, old.read(entry))
    return replace(wheel, content=packed.getvalue())


def test_what_arrived_damaged_changes_nothing(
    python: Path, tmp_path: Path, wheel: OwnWheel
) -> None:
    answer = run(python, tmp_path / "sent", wheel, sha256="0" * 64)
    assert answer["problem"] == "what arrived is not what was sent"
    assert version(python) == ""


def test_what_does_not_run_there_changes_nothing(
    python: Path, tmp_path: Path, wheel: OwnWheel
) -> None:
    """As where a library is missing: pip is told to look for none."""
    answer = run(python, tmp_path / "sent", without(wheel, "saltext_ha/minion/binding.py"))
    assert answer["problem"].startswith("it does not run here: "), answer
    assert version(python) == ""


def test_it_is_installed_and_replaces_another_version(
    python: Path, tmp_path: Path, wheel: OwnWheel
) -> None:
    assert run(python, tmp_path / "sent", wheel)["problem"] == ""
    assert version(python) == wheel.version
    (package,) = python.parents[1].glob("lib/*/site-packages/saltext_ha")
    (package / "left_over.py").touch()
    (info,) = package.parent.glob("saltext_ha-*.dist-info")
    record = (info / "RECORD").read_text("utf-8") + "saltext_ha/left_over.py,,\n"
    (info / "RECORD").write_text(record, "utf-8")
    answer = run(python, tmp_path / "again", wheel)
    assert (answer["problem"], answer["path"]) == ("", str(package.parent))
    assert version(python) == wheel.version
    assert not (package / "left_over.py").exists()


def test_minions_that_share_a_python_install_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, pip of one fails, as that of the other has just removed what it replaces."""
    (tmp_path / "a.whl").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    alone = []

    def run(arguments: list[str], what: str, env: Any = None) -> str:
        if what == "pip":
            with pytest.raises(BlockingIOError):
                fcntl.flock(os.open(tmp_path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone.append(True)
        return json.dumps(["1.0", "/there"])

    monkeypatch.setattr(wheel_setup, "run", run)
    order = {"name": "a.whl", "sha256": hashlib.sha256().hexdigest(), "version": "1.0"}
    assert wheel_setup.install(tmp_path, order) == "/there"
    assert alone
    # Whoever holds it for ever, as any user can, is not waited for for ever.
    monkeypatch.setattr(wheel_setup, "LONGEST_WAIT", 0.3)
    assert wheel_setup.install(tmp_path, order) == "/there"


def test_what_pip_stumbled_over_is_said() -> None:
    text = "ERROR: Exception:\nTraceback (most recent call last):\nKeyError: 'x'"
    with pytest.raises(wheel_setup.Problem, match=r"^pip: KeyError: 'x'$"):
        wheel_setup.run(["-c", f"import sys; sys.exit({text!r})"], "pip")


def test_without_pip_it_says_so(python: Path, tmp_path: Path, wheel: OwnWheel) -> None:
    (pip,) = python.parents[1].glob("lib/*/site-packages/pip")
    pip.rename(pip.with_name("hidden"))
    try:
        answer = run(python, tmp_path / "sent", wheel)
    finally:
        pip.with_name("hidden").rename(pip)
    assert "No module named pip" in answer["problem"]


def test_in_the_packages_of_salt_it_goes_where_salt_pip_installs(
    tmp_path: Path, wheel: OwnWheel
) -> None:
    """As in a onedir of Salt's packages: relenv marks its Python, and a .pth names the extras."""
    onedir = tmp_path / "onedir"
    python = salt_venv.make(onedir)
    extras = onedir / f"extras-{sys.version_info.major}.{sys.version_info.minor}"
    (site,) = onedir.glob("lib/*/site-packages")
    # As Salt's _salt_onedir_extras.pth: what is there comes before all else.
    (site / "relenv.pth").write_text(
        f"import sys, pathlib; sys.RELENV = pathlib.Path({str(onedir)!r}); "
        f"sys.path.insert(0, {str(extras)!r})\n",
        "utf-8",
    )
    extras.mkdir()
    other = extras / "saltext_ha-0.0.1.dist-info"
    for _ in range(2):
        answer = run(python, tmp_path / "sent", wheel)
        assert (answer["problem"], answer["path"]) == ("", str(extras))
        assert version(python) == wheel.version
        assert not (site / "saltext_ha").exists()
        assert not other.exists()
        other.mkdir()
        (other / "METADATA").write_text("Name: saltext-ha\nVersion: 0.0.1\n", "utf-8")
    # What is there already runs; that says nothing of what was sent.
    answer = run(python, tmp_path / "sent", without(wheel, "saltext_ha/minion/binding.py"))
    assert answer["problem"].startswith("it does not run here: "), answer
    assert (extras / "saltext_ha" / "minion" / "binding.py").exists()
