"""
Runs Salt's ``scenarios/failover`` and ``scenarios/multimaster`` with our engines switched on.

A test that fails is run once more without ours: what fails then, too, is Salt's own or this
machine's. What passes then is run by itself with ours, to compare like with like. The exit code is
0 when nothing failed because of ours.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from lab.network import is_free

HERE = Path(__file__).resolve().parent
SUITES = ("tests/pytests/scenarios/failover", "tests/pytests/scenarios/multimaster")
REQUIREMENTS = "requirements/pytest.txt"
ADDRESSES = ("127.0.0.1", "127.0.0.2")  # where Salt's suites start their masters
LIMIT = 3600.0  # seconds for all of them
HANGS = 900  # seconds after which a test is given up; on a busy machine some take 300


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv* and do it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proving.suites", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".salt-suites"), metavar="DIR")
    parser.add_argument("--without", action="store_true", help="only without ours, to compare")
    parser.add_argument("tests", nargs="*", default=SUITES, help="default: both suites, whole")
    options = parser.parse_args(argv)
    version = importlib.metadata.version("salt")
    work = options.work.absolute() / version
    tree, python = prepare(work, version)
    failed = run(tree, python, options.tests, ours=not options.without)
    if failed is None:
        return 1
    if options.without or not failed:
        print(f"Salt {version}: {len(failed)} failed")
        return 1 if failed else 0
    print(f"Salt {version}: {len(failed)} failed; the same once more without ours", flush=True)
    own = run(tree, python, failed, ours=False)
    if own is None:
        return 1
    # A test may pass now because no other tests were run before it.
    passed = [test for test in failed if test not in own]
    ours = run(tree, python, passed, ours=True) if passed else []
    if ours is None:
        return 1
    for test in failed:
        print(f"{verdict(test, own, ours)}: {test}")
    return 1 if ours else 0


def verdict(test: str, own: Sequence[str], ours: Sequence[str]) -> str:
    """Why *test* failed: those in *own* fail without ours; those in *ours* alone, with ours on."""
    if test in own:
        return "without ours, too"
    return "with ours only" if test in ours else "not by itself, with ours or without"


def prepare(work: Path, version: str) -> tuple[Path, Path]:
    """
    Salt's tests, and a Python with that Salt, the needs of its tests, and saltext-ha.

    :return: the folder that holds ``tests/``, and the interpreter.
    """
    tree, environment, done = work / "tree", work / "venv", work / "prepared"
    python = environment / "bin" / "python"
    if not done.exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        unpack(fetch(work, version), tree)
        venv.create(environment, with_pip=True)
        pip(python, "install", f"salt=={version}", "-r", str(tree / REQUIREMENTS))
        pip(python, "install", "--editable", str(HERE.parents[1]))
        done.touch()
    return tree, python


def fetch(work: Path, version: str) -> Path:
    """The source archive of Salt, from the package index that pip uses."""
    pip(
        Path(sys.executable),
        *("download", "--no-deps", "--no-binary", "salt", "--dest", str(work), f"salt=={version}"),
    )
    (archive,) = work.glob("salt-*.tar.gz")
    return archive


def unpack(archive: Path, tree: Path) -> None:
    """
    Unpack the tests from *archive*, and nothing else: Salt itself must be the installed one.

    :raises SystemExit: *archive* has no tests.
    """
    with tarfile.open(archive) as source:
        # By hand: the Python of Debian 12 has no filters for extractall yet.
        for member in source:
            name = member.name.partition("/")[2]
            wanted = name.startswith("tests/") or name == REQUIREMENTS
            content = source.extractfile(member) if wanted and member.isfile() else None
            if content is None:
                continue
            target = (tree / name).resolve()
            if not target.is_relative_to(tree.resolve()):
                raise SystemExit(f"{archive}: {name} would lie outside")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
    missing = [name for name in (*SUITES, REQUIREMENTS) if not (tree / name).exists()]
    if missing:
        raise SystemExit(f"{archive}: has no {', '.join(missing)}")


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", "--quiet", *arguments], check=True)


def run(tree: Path, python: Path, tests: Sequence[str], ours: bool) -> list[str] | None:
    """
    Run *tests*; show what pytest shows.

    :return: the names of those that failed, or None if they are unknown.
    """
    # Short, for the sake of the sockets in it: their paths must fit into 108 bytes.
    scratch = Path(tempfile.mkdtemp(prefix="ss-"))
    secret, report = scratch / "secret", scratch / "report.xml"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32), encoding="ascii")
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(HERE / "plugin"),
        "SALTEXT_HA_ON": "1" if ours else "0",
        "SALTEXT_HA_PORT": str(free_port()),
        "SALTEXT_HA_SECRET_FILE": str(secret),
    }
    command = [
        *(str(python), "-m", "pytest", "-p", "saltext_ha_on", "-p", "no:cacheprovider"),
        # Not the settings of the repository around it, which lack what Salt's suites need.
        *("-c", os.devnull, "--rootdir", str(tree), "--timeout", str(HANGS)),
        *("-v", "--core", "--run-slow", "-o", "junit_family=xunit1", f"--junitxml={report}"),
        *tests,
    ]
    print(f"{' and '.join(tests)}: {'with' if ours else 'without'} saltext-ha", flush=True)
    done = subprocess.run(command, cwd=tree, env=environment, timeout=LIMIT)
    failed = failures(report) if done.returncode in (0, 1) else None
    if failed is None or failed:
        print(f"what the daemons left: {scratch}")
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    return failed


def failures(report: Path) -> list[str]:
    """The tests of a JUnit report that failed or could not run, as pytest takes them."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):  # nosec B314
        if case.find("failure") is not None or case.find("error") is not None:
            test = f"{case.get('file')}::{case.get('name')}"
            if test not in found:
                found.append(test)
    return found


def free_port() -> int:
    """
    The first of two TCP ports that nobody uses on any of :data:`ADDRESSES`, below those of
    connections.
    """
    for port in range(24530, 30000, 10):
        if all(is_free(address, port + more) for address in ADDRESSES for more in (0, 1)):
            return port
    raise SystemExit("no free TCP port from 24530 to 30000")


if __name__ == "__main__":
    sys.exit(main())
