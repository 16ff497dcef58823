"""
``python -m lab.pythons``: the suite, or a core of it, on the other Pythons that are installed here.

Looks on PATH and among pyenv's versions, makes a venv ``.venv-3.x`` for each, with a Salt that
installs there, and says which Pythons were not tried. Without ``--all`` it takes the oldest and the
newest, and the tests that meet most of what Pythons differ in; with it, all of them, and the whole
unit and functional suite. With ``--install`` it only makes the venvs: other tests use their Salt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Version = tuple[int, int]

OLDEST: Version = (3, 10)
NEWEST: Version = (3, 14)
"""The newest release, as far as this file knows; a newer Python that is found is tried."""
LATER = 5
AT_ONCE = 2

# Python → the Salt whose own packages run it; every other Python is tried with the last Salt.
SALT = {(3, 10): "salt~=3007.0", (3, 11): "salt~=3006.0"}
LAST_SALT = "salt>=3006"

ALL = ("tests/functional", "tests/unit")
CORE = (
    "tests/unit/sync/test_codec.py",
    "tests/unit/project/test_deprecations.py",
    "tests/unit/common/test_errors.py",
    "tests/unit/minions/test_presence.py",
    "tests/unit/membership/test_token.py",
    "tests/unit/transport/test_wire.py",
    "tests/functional/sync/test_antientropy.py",
    "tests/functional/transport/test_control.py",
    "tests/functional/sync/test_exchange.py",
    "tests/functional/sync/test_retention.py",
    "tests/functional/sync/test_shared_store.py",
    "tests/functional/commands/test_decisions.py",
    "tests/functional/commands/test_held.py",
    "tests/functional/commands/test_pausing.py",
    "tests/functional/commands/test_unknown_keys.py",
    "tests/functional/membership/test_joining.py",
    "tests/functional/membership/test_leaving.py",
    "tests/functional/keystore/test_keystore_cache.py",
    "tests/functional/keystore/test_keystore_files.py",
    "tests/functional/keystore/test_keystore_writing.py",
    "tests/functional/transport/test_peering.py",
    "tests/functional/replica/test_replica.py",
    "tests/functional/web/test_status_listener.py",
)

_printing = threading.Lock()

PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the Pythons side by side; 1 if anything failed on one of them."""
    parser = argparse.ArgumentParser(prog="python -m lab.pythons", description=__doc__)
    parser.add_argument("--all", action="store_true", help="each Python, and the whole suite")
    parser.add_argument("--install", action="store_true", help="make the venvs, and try nothing")
    options = parser.parse_args(arguments)
    own = sys.version_info[:2]
    others = {version: path for version, path in installed().items() if version != own}
    tried = others if options.all else ends(others)
    if options.install:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return 0 if all(list(threads.map(install, tried.keys(), tried.values()))) else 1
    # Two at a time, as they mostly wait.
    with ThreadPoolExecutor(AT_ONCE) as threads:
        passed = threads.map(attempt, tried.keys(), tried.values(), [options.all] * len(tried))
        failed = [version for version, fine in zip(tried, passed, strict=True) if not fine]
    print(f"pythons: {text(own)}: the one of this venv")
    for version in tried:
        print(f"pythons: {text(version)}: {'FAILED' if version in failed else 'passed'}")
    for version in others.keys() - tried.keys():
        print(f"pythons: {text(version)}: not tried; make test-all does")
    for version in missing({own, *others}):
        print(f"pythons: {text(version)}: NOT TRIED: it is not installed here")
    return 1 if failed else 0


def installed(environment: Mapping[str, str] = os.environ) -> dict[Version, Path]:
    """
    The Pythons that run here and can make a venv.

    :param environment: has PATH and PYENV_ROOT; without the latter, ``pyenv root`` is asked.
    :return: version → interpreter, the oldest first.
    """
    found: dict[Version, Path] = {}
    root = pyenv_root(environment)
    for minor in range(OLDEST[1], NEWEST[1] + LATER):
        version = (3, minor)
        for candidate in _candidates(version, root, environment):
            # pyenv has a shim on PATH for each of its versions, which fails if that is not set.
            if version not in found and _version(candidate) == version:
                found[version] = candidate
    return found


def _candidates(
    version: Version, root: Path | None, environment: Mapping[str, str]
) -> Iterator[Path]:
    if there := shutil.which(f"python{text(version)}", path=environment.get("PATH", "")):
        yield Path(there)
    if root is not None:
        yield from sorted(root.glob(f"versions/{text(version)}.*/bin/python{text(version)}"))


def pyenv_root(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of pyenv, if it is installed."""
    pyenv = shutil.which("pyenv", path=environment.get("PATH", ""))
    if not environment.get("PYENV_ROOT") and pyenv:
        done = subprocess.run(  # nosec B603
            [pyenv, "root"], capture_output=True, text=True, env=dict(environment), check=False
        )
        return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None
    root = environment.get("PYENV_ROOT")
    return Path(root) if root else None


def _version(python: Path) -> Version | None:
    try:
        done = subprocess.run(  # nosec B603
            [python, "-c", PROBE], capture_output=True, text=True, timeout=30, check=False
        )
        major, minor = done.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def ends(found: Mapping[Version, Path]) -> dict[Version, Path]:
    """The oldest and the newest of *found*."""
    return {
        version: found[version] for version in sorted({*sorted(found)[:1], *sorted(found)[-1:]})
    }


def missing(found: set[Version]) -> list[Version]:
    """The supported Pythons that are not in *found*."""
    every = [(3, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    return [version for version in every if version not in found]


def install(version: Version, python: Path) -> bool:
    """Whether the venv of *python* could be made, or was there."""
    return _make(version, python, f"{venv(version)}/.installed").returncode == 0


def attempt(version: Version, python: Path, whole: bool) -> bool:
    """Whether the tests pass on *python*, and, unless *whole*, the demo; prints all at the end."""
    print(f"pythons: {text(version)} ({python}) with {_salt(version)}", flush=True)
    tests, demo = " ".join(ALL if whole else CORE), "" if whole else "yes"
    done = _make(
        version, python, "on-python", f"TESTS={tests}", f"DEMO={demo}", stdout=subprocess.PIPE
    )
    with _printing:
        print(f"pythons: what {text(version)} says", done.stdout, sep="\n", flush=True)
    return done.returncode == 0


def _make(
    version: Version, python: Path, *words: str, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """``make`` *words* with the venv of *python*."""
    venv_words = (
        f"VENV={venv(version)}", f"PYTHON={python}", f"SALT={_salt(version)}", "EXTRAS=test",
    )  # fmt: skip
    return subprocess.run(  # nosec B603 B607
        ["make", "--no-print-directory", *words, *venv_words],
        check=False, stdout=stdout, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def venv(version: Version) -> str:
    """The folder of its venv, in the checkout."""
    return f".venv-{text(version)}"


def _salt(version: Version) -> str:
    return SALT.get(version, LAST_SALT)


def text(version: Version) -> str:
    """The version as in the interpreter's name."""
    return f"{version[0]}.{version[1]}"


if __name__ == "__main__":
    sys.exit(main())
