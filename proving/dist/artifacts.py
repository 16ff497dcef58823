"""Wheel and sdist of a checkout, and whether they hold what git has."""

from __future__ import annotations

import subprocess  # nosec B404
import tarfile
import zipfile
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "src/saltext_ha/"
# What the build itself adds to a source archive.
MADE = frozenset({"PKG-INFO", "setup.cfg"})
EGG_INFO = "src/saltext_ha.egg-info/"


class Unfit(Exception):
    """The files must not be published; the text says why."""


@dataclass(frozen=True)
class Artifacts:
    """The two files that are uploaded."""

    wheel: Path
    sdist: Path


def build(python: Path, checkout: Path, folder: Path) -> Artifacts:
    """
    Build both into *folder*: the wheel from the sdist, as people do who have only the sdist.

    :param python: an interpreter that has ``build``.
    :raises Unfit: they cannot be built, or *folder* has others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("saltext_ha-*.whl"), *folder.glob("saltext_ha-*.tar.gz")):
        old.unlink()
    run(python, "build", "--outdir", str(folder), str(checkout))
    wheels, sdists = [*folder.glob("*.whl")], [*folder.glob("*.tar.gz")]
    if len(wheels) != 1 or len(sdists) != 1:
        raise Unfit(f"{folder}: one wheel and one sdist were expected: {wheels + sdists}")
    return Artifacts(wheels[0], sdists[0])


def check(python: Path, artifacts: Artifacts) -> None:
    """
    Check them as an index does.

    :param python: an interpreter that has ``twine``.
    :raises Unfit: an index would refuse them, or not show README.
    """
    run(python, "twine", "check", "--strict", str(artifacts.wheel), str(artifacts.sdist))


def run(python: Path, module: str, *arguments: str) -> None:
    """
    ``python -m MODULE ARGUMENTS``.

    :raises Unfit: it fails; the text is all its output.
    """
    done = subprocess.run(  # nosec B603
        [str(python), "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise Unfit(f"{module}: exit status {done.returncode}\n{done.stdout}")


def tracked(checkout: Path) -> set[str]:
    """The files that git has, below *checkout*."""
    listed = subprocess.run(  # nosec B603 B607
        ["git", "-C", str(checkout), "ls-files", "-z"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {name for name in listed.stdout.split("\0") if name}


def in_sdist(sdist: Path) -> set[str]:
    """The files of a source archive, without its own first folder and what the build adds."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return {name for name in names if name not in MADE and not name.startswith(EGG_INFO)}


def in_wheel(wheel: Path) -> set[str]:
    """The files that a wheel installs, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {name for name in names if not name.partition("/")[0].endswith(".dist-info")}


def compare(artifacts: Artifacts, files: Set[str]) -> None:
    """
    Make sure that the sdist holds *files*, the wheel those of the package, and neither any other.

    :param files: the result of :func:`tracked`.
    :raises Unfit: naming files that are missing, and files too many.
    """
    package = {name.removeprefix("src/") for name in files if name.startswith(PACKAGE)}
    pairs = (
        (artifacts.sdist, in_sdist(artifacts.sdist), files),
        (artifacts.wheel, in_wheel(artifacts.wheel), package),
    )
    wrong = []
    for file, has, wanted in pairs:
        wrong += [f"{file.name} lacks {name}" for name in sorted(wanted - has)]
        wrong += [f"{file.name} has {name}, git does not" for name in sorted(has - wanted)]
    if wrong:
        raise Unfit("\n".join(wrong))
