"""The package as Salt sees it and as it is shipped."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.core


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_salt_lists_the_extension() -> None:
    report = run(Path(sys.executable).parent / "salt", "--versions-report")
    _, heading, extensions = report.partition("Salt Extensions:")
    assert heading, report
    listed = dict(line.split(":", 1) for line in extensions.splitlines() if ":" in line)
    versions = {name.strip(): version.strip() for name, version in listed.items()}
    assert versions.get("saltext.ha", versions.get("saltext-ha")) == importlib.metadata.version(
        "saltext-ha"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build folder left in the tree would end up in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--wheel-dir", folder / "out", source),
    )
    (built,) = (folder / "out").iterdir()
    return built


def test_the_wheel_fits_every_python(wheel: Path) -> None:
    # salt-pip's folder belongs to one minor version of Python; a compiled wheel would break with
    # the next release of Salt's packages.
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_has_every_file(wheel: Path) -> None:
    package = ROOT / "src" / "saltext_ha"
    expected = {
        str(path.relative_to(ROOT / "src"))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "saltext_ha/engines/__init__.py" in shipped
    assert shipped == expected


def test_the_wheel_tells_salts_loader_and_has_the_program(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        text = archive.read(name).decode()
    assert [line for line in text.splitlines() if line] == [
        "[console_scripts]",
        "salt-ha = saltext_ha.cli:main",
        "[salt.loader]",
        "saltext-ha = saltext_ha",
    ]
