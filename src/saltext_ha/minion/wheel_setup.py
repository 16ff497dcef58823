"""
Installs a wheel on a minion that has nothing of saltext-ha: this file travels with the wheel.

Salt's own Python runs it with one argument: JSON with ``folder``, which it removes at the end, and
the ``name``, ``sha256`` and ``version`` of the wheel in this folder. Its last line of output is
JSON: ``problem``, empty on success, and ``path``, the folder of the installation. It imports only
the standard library, and any Python 3 can read it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess  # nosec B404
import sys
import time
from pathlib import Path

# Before what is installed, which in Salt's own packages even comes before PYTHONPATH.
TRY = (
    "import sys; sys.path.insert(0, {!r});"
    "import saltext_ha.modules.ha, saltext_ha.states.ha, saltext_ha.engines.ha_watchdog"
)
# Installs into the folder of extras, like /usr/bin/salt-pip of Salt's own packages.
SALT_PIP = "import sys; sys.argv[0] = 'salt-pip'; from salt.scripts import salt_pip; salt_pip()"
LONGEST_WAIT = 600.0  # seconds
WHERE = (
    "import importlib.metadata as m, json, pathlib as p, saltext_ha as s;"
    "print(json.dumps([m.version('saltext-ha'), str(p.Path(s.__file__).parents[1])]))"
)


class Problem(Exception):
    """Why the wheel is not installed."""


def main() -> None:
    """Carry out the order, and print the answer."""
    order = json.loads(sys.argv[1])
    os.umask(0o022)  # a minion's is often too narrow for other users, who run salt-call
    answer = {"problem": "", "path": ""}
    try:
        answer["path"] = install(Path(order["folder"]), order)
    except (Problem, OSError) as exc:
        answer["problem"] = str(exc)
    finally:
        shutil.rmtree(order["folder"], ignore_errors=True)
    print(json.dumps(answer))


def install(folder: Path, order: "dict[str, str]") -> str:
    """
    Verify the wheel, try it, install it.

    :return: the folder of the installation.
    :raises Problem: a step failed; nothing was changed, unless the message says so.
    """
    wheel = folder / order["name"]
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != order["sha256"]:
        raise Problem("what arrived is not what was sent")
    wait_for_others()
    # Before anything is changed: pip does not install dependencies, so one may be missing.
    run(["-c", TRY.format(str(wheel))], "it does not run here")
    onedir = hasattr(sys, "RELENV")
    pip = ["-c", SALT_PIP] if onedir else ["-m", "pip"]
    options = ["--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    # What is installed may have the same version and other contents.
    again = ["--upgrade", "--force-reinstall", "--quiet"]
    run([*pip, "install", *options, *again, str(wheel)], "pip", {"PIP_NO_INPUT": "1"})
    if onedir:
        forget_others(order["version"])
    version, path = json.loads(run(["-c", WHERE], "after its installation it does not run"))
    if version != order["version"]:
        raise Problem(f"installed, but Salt's Python finds {version} in {path}: remove that")
    return str(path)


def wait_for_others() -> None:
    """Minions of one host may share a Python. None waits for ever: any user can hold this lock."""
    with contextlib.suppress(OSError):  # a file system without locks
        place = os.open(sys.prefix, os.O_RDONLY)
        end = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < end:
            try:
                # It is released when this process ends.
                return fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
    return None


def forget_others(version: str) -> None:
    """Remove the metadata of other versions: pip leaves it in a folder of ``--target``."""
    place = Path(json.loads(run(["-c", WHERE], "after its installation it does not run"))[1])
    for info in place.glob("saltext_ha-*.dist-info"):
        if info.name != f"saltext_ha-{version}.dist-info":
            shutil.rmtree(info, ignore_errors=True)


def run(arguments: "list[str]", what: str, env: "dict[str, str] | None" = None) -> str:
    """The output of Salt's Python. :raises Problem: it failed: *what*, and its last line."""
    done = subprocess.run(  # nosec B603
        [sys.executable, *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        cwd="/",
        check=False,
        text=True,
    )
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        # Below "ERROR: Exception:" pip shows a traceback, of which the last line says what it is.
        errors = [line for line in said if line.lower().startswith("error")]
        errors = [line for line in errors if line.strip() != "ERROR: Exception:"]
        last = (errors or said or [f"it ended with {done.returncode}"])[-1]
        raise Problem(f"{what}: {last.strip()[:300]}")
    return done.stdout


if __name__ == "__main__":
    main()
