"""Builds the image of ``deploy/Dockerfile`` from what this host has, without an image registry."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess  # nosec B404
import sys
from importlib.metadata import version
from pathlib import Path

from proving.containers.docker import Docker, program

ROOT = Path(__file__).parents[2]
# Kept from one run to the next; "make clean" removes it. The build uses the wheels, too.
WORK = ROOT / ".containers"
BASE, WHEELS = WORK / "base.tar", WORK / "wheels"
SUITE = "bookworm"
# nginx is for the balancer, which has the same base.
INCLUDED = "python3,python3-venv,nginx-light"
PYTHON = "3.11"  # of that suite
IMAGE, BASE_IMAGE = "salt-ha-master", "salt-ha-base"


def build(docker: Docker) -> None:
    """Give the engine *docker* :data:`IMAGE` and :data:`BASE_IMAGE`."""
    WORK.mkdir(exist_ok=True)
    if not BASE.exists():
        make_base()
    fetch_wheels()
    docker("import", str(BASE), BASE_IMAGE)
    inside = f"/src/{WHEELS.relative_to(ROOT)}"
    settings = {
        "BASE": BASE_IMAGE,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": inside,
        "VERSION": version("saltext-ha"),
    }
    docker(
        *("build", "--network", "none", "--tag", IMAGE),
        *("--file", str(ROOT / "deploy" / "Dockerfile")),
        *(word for name, value in settings.items() for word in ("--build-arg", f"{name}={value}")),
        str(ROOT),
    )


def make_base() -> None:
    """A minimal Debian as a tar file."""
    new = BASE.with_suffix(".new")
    subprocess.run(  # nosec B603
        [
            *(program("mmdebstrap"), "--quiet", "--variant=minbase", "--format=tar"),
            *(f"--include={INCLUDED}", SUITE, str(new)),
        ],
        check=True,
        timeout=900,
    )
    new.rename(BASE)


def _build_requires() -> list[str]:
    """The packages with which pip builds this project, in the image."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.search(r"^requires = (\[.+\])$", project, re.M)
    if not found:
        raise RuntimeError("pyproject.toml: [build-system] has no line  requires = [...]")
    return list(ast.literal_eval(found[1]))


def fetch_wheels() -> None:
    """Get wheels of Salt and its dependencies, by this host's pip and its settings."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise RuntimeError(f"wheels for Python {PYTHON} are needed: make PYTHON=python{PYTHON} …")
    requires = _build_requires()
    wanted = [re.split(r"\W", name.replace("-", "_"))[0] for name in requires]
    if all([*WHEELS.glob(f"{name}-*")] for name in wanted):
        return
    shutil.rmtree(WHEELS, ignore_errors=True)  # of an older checkout
    new = WHEELS.with_suffix(".new")
    subprocess.run(  # nosec B603
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(new)),
            *("salt==3008.*", *requires, str(ROOT)),
        ],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
        timeout=900,
    )
    for own in new.glob("saltext_ha-*"):
        own.unlink()  # the image is built from the checkout
    new.rename(WHEELS)
