"""The package as Salt sees it and as it is shipped."""

from __future__ import annotations

import importlib.metadata
import os
import pwd
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from proving.dist.artifacts import build, compare, tracked

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.core


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=500
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
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--wheel-dir", folder / "out", source),
    )
    (built,) = (folder / "out").iterdir()
    return built


def test_a_copy_without_git_has_a_version_below_all_releases(wheel: Path) -> None:
    assert wheel.name.startswith("saltext_ha-0.1.dev0-")


def test_on_an_index_the_links_of_readme_lead_somewhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    assert "Keywords: salt-extension," in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links), links


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has of this checkout, as one commit without a tag."""
    folder = tmp_path_factory.mktemp("clone")
    for name in tracked(ROOT):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git = ("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.com")
    run(*git, "init", "--quiet")
    run(*git, "add", "--all")
    run(*git, "commit", "--quiet", "--message", "all")
    return folder


def test_wheel_and_sdist_hold_what_git_has(clone: Path, tmp_path: Path) -> None:
    """``make dist`` does the same, then tries the wheel."""
    made = build(Path(sys.executable), clone, tmp_path)
    compare(made, tracked(clone))
    # Without a tag it is on the way to the first release, and names its commit.
    assert re.match(r"saltext_ha-0\.1\.dev1\+g[0-9a-f]+-py3-none-any\.whl", made.wheel.name)


def test_a_tag_is_the_version(clone: Path) -> None:
    run("git", "-C", clone, "tag", "v1.2.3")
    out = clone.parent / "tagged"
    assert build(Path(sys.executable), clone, out).sdist.name == "saltext_ha-1.2.3.tar.gz"


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


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a Python that has this Salt, and not the extension."""
    folder = tmp_path_factory.mktemp("without")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (there,) = folder.glob("lib/python*/site-packages")
    here = Path(str(importlib.metadata.distribution("salt").locate_file("")))
    for path in here.iterdir():
        if "saltext_ha" not in path.name and path.name not in ("__pycache__", "_virtualenv.pth"):
            (there / path.name).symlink_to(path)
    script = folder / "bin" / "salt-run"
    script.write_text(f"#!{folder}/bin/python\nimport salt.scripts\nsalt.scripts.salt_run()\n")
    script.chmod(0o755)
    return folder / "bin"


def test_what_monitoring_runs_fails_without_the_extension(without: Path, tmp_path: Path) -> None:
    """README says: salt-ha status, since salt-run exits 0 for what it does not find."""
    config = {"root_dir": str(tmp_path), "id": "m1", "user": pwd.getpwuid(os.getuid()).pw_name}
    (tmp_path / "master").write_text(yaml.safe_dump(config))
    for folder in ("var/cache/salt/master/proc", "etc/salt/pki/master"):
        (tmp_path / folder).mkdir(parents=True)

    def ended(command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"PATH": f"{without}:/usr/bin:/bin", "SALT_CONFIG_DIR": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout + done.stderr

    status, words = ended(f"salt-run -c {tmp_path} ha.status")
    assert "ha.status" in words
    assert "available" in words
    assert status == 0, "Salt tells it now: the documentation may name salt-run again"
    for command in ("status", "check_consistency", "join wait=1"):
        assert ended(f"salt-ha {command}")[0] == 127
    # What an upgrade to another Python leaves behind.
    left = Path(sys.executable).parent / "salt-ha"
    status, words = ended(f"python {left} status")
    assert status == 1
    assert "saltext_ha" in words


POOL_ALONE = """
import importlib.util, sys
assert importlib.util.find_spec("salt") is None
from saltext_ha.api import ApiPoolError, NoMasterAvailable, SaltApiPool
masters = [{"url": "https://127.0.0.1:1", "username": "operator", "password": "x"}]
with SaltApiPool(masters, deadline=5) as pool:
    try:
        pool.runner("test.arg")
    except NoMasterAvailable as exc:
        assert isinstance(exc, ApiPoolError)
        print(exc)
"""


def test_an_application_uses_the_pool_without_salt(wheel: Path, tmp_path: Path) -> None:
    """docs/api-pool.md: requests is all that it needs."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    (there,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name in ("requests", "urllib3", "certifi", "idna", "charset_normalizer"):
        here = importlib.metadata.distribution(name).locate_file(name)
        (there / name).symlink_to(Path(str(here)))
    assert "127.0.0.1:1" in run(python, "-I", "-c", POOL_ALONE)
