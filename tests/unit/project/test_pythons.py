"""The other Pythons: which are found, which are taken, which are said not to be tried."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from lab import pythons

OWN = sys.version_info[:2]


def fake(path: Path, version: str) -> Path:
    """An interpreter that says that it is *version*; an empty one is a shim that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


def test_those_on_the_path_and_those_of_pyenv_are_found(tmp_path: Path) -> None:
    path, root = tmp_path / "bin", tmp_path / "pyenv"
    on_path = fake(path / "python3.10", "3 10")
    fake(path / "python3.12", "")
    of_pyenv = fake(root / "versions/3.12.1/bin/python3.12", "3 12")
    fake(root / "versions/3.9.1/bin/python3.9", "3 9")
    fake(path / "python3.13", "3 12")
    found = pythons.installed({"PATH": str(path), "PYENV_ROOT": str(root)})
    assert found == {(3, 10): on_path, (3, 12): of_pyenv}
    assert pythons.missing({*found}) == [(3, 11), (3, 13), (3, 14)]


def test_pyenv_itself_is_asked_where_it_is(tmp_path: Path) -> None:
    path, root = tmp_path / "bin", tmp_path / "pyenv"
    fake(path / "pyenv", str(root))
    there = fake(root / "versions/3.15.0/bin/python3.15", "3 15")
    assert pythons.installed({"PATH": str(path)}) == {(3, 15): there}
    assert pythons.installed({"PATH": ""}) == {}


def test_the_core_takes_the_oldest_and_the_newest() -> None:
    found = {(3, minor): Path(f"python3.{minor}") for minor in (13, 10, 12)}
    assert list(pythons.ends(found)) == [(3, 10), (3, 13)]
    assert pythons.ends({}) == {}


def test_what_was_not_tried_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[pythons.Version] = []

    def attempt(version: pythons.Version, python: Path, whole: bool) -> bool:
        if not whole:
            together.wait()
        tried.append(version)
        return version != (3, 19)

    together = threading.Barrier(2, timeout=30)
    found = {version: Path("p") for version in [(3, 17), (3, 18), (3, 19), OWN]}
    monkeypatch.setattr(pythons, "installed", lambda: found)
    monkeypatch.setattr(pythons, "attempt", attempt)
    assert pythons.main([]) == 1
    assert {*tried} == {(3, 17), (3, 19)}
    said = capsys.readouterr().out
    assert "3.17: passed" in said
    assert "3.19: FAILED" in said
    assert "3.18: not tried" in said
    other = (3, 10) if OWN != (3, 10) else (3, 11)
    assert f"3.{other[1]}: NOT TRIED: it is not installed here" in said
    tried.clear()
    assert pythons.main(["--all"]) == 1
    assert sorted(tried) == [(3, 17), (3, 18), (3, 19)]


@pytest.mark.parametrize("made", [True, False])
def test_install_only_makes_venvs(made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: set[pythons.Version] = set()

    def install(version: pythons.Version, python: Path) -> bool:
        wanted.add(version)
        return made or version != (3, 17)

    found = {version: Path("p") for version in [(3, 17), (3, 18), (3, 19), OWN]}
    monkeypatch.setattr(pythons, "installed", lambda: found)
    monkeypatch.setattr(pythons, "install", install)
    assert pythons.main(["--install"]) == (0 if made else 1)
    assert wanted == {(3, 17), (3, 19)}


def test_what_is_run_is_there() -> None:
    root = Path(__file__).parents[3]
    assert [name for name in (*pythons.CORE, *pythons.ALL) if not (root / name).exists()] == []
