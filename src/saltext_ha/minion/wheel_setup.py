"""
Installs a wheel on a minion that has nothing of ours: the text of this file is sent there as well.

Salt's own Python runs it, with one argument: JSON with ``folder`` (which it removes at the end),
and the ``name``, ``sha256`` and ``version`` of the wheel in there. Its last line is JSON:
``problem``, empty where it went well, and ``path``, where it is installed. It imports nothing that
is not Python's own, and any Python 3 can read it.
"""

import hashlib
import json
import os
import shutil
import subprocess  # nosec B404
import sys
from pathlib import Path

MODULES = "saltext_ha.modules.ha, saltext_ha.states.ha, saltext_ha.engines.ha_watchdog"
# As /usr/bin/salt-pip of Salt's own packages does: into the folder of extras.
SALT_PIP = "import sys; sys.argv[0] = 'salt-pip'; from salt.scripts import salt_pip; salt_pip()"
WHERE = (
    "import importlib.metadata as m, json, pathlib as p, saltext_ha as s;"
    "print(json.dumps([m.version('saltext-ha'), str(p.Path(s.__file__).parents[1])]))"
)


class Problem(Exception):
    """Why it is not installed."""


def main() -> None:
    """That process."""
    order = json.loads(sys.argv[1])
    os.umask(0o022)  # a minion's is often narrower than others may need who run salt-call
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
    Verify it, try it, install it.

    :return: the folder that it is installed in.
    :raises Problem: one of these failed; nothing was changed, unless it says so.
    """
    wheel = folder / order["name"]
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != order["sha256"]:
        raise Problem("what arrived is not what was sent")
    # Before anything is changed: what pip installs without its dependencies may lack one.
    run(["-c", "import " + MODULES], "it does not run here", {"PYTHONPATH": str(wheel)})
    onedir = hasattr(sys, "RELENV")
    pip = ["-c", SALT_PIP] if onedir else ["-m", "pip"]
    options = ["--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]
    # The version may be the same, and what is in it another one's.
    again = ["--upgrade", "--force-reinstall", "--quiet"]
    run([*pip, "install", *options, *again, str(wheel)], "pip", {"PIP_NO_INPUT": "1"})
    if onedir:
        forget_others(order["version"])
    version, path = json.loads(run(["-c", WHERE], "after its installation it does not run"))
    if version != order["version"]:
        raise Problem(f"installed, but Salt's Python finds {version} in {path}: remove that")
    return str(path)


def forget_others(version: str) -> None:
    """pip leaves what it knows of another version in a folder of ``--target``."""
    place = Path(json.loads(run(["-c", WHERE], "after its installation it does not run"))[1])
    for info in place.glob("saltext_ha-*.dist-info"):
        if info.name != f"saltext_ha-{version}.dist-info":
            shutil.rmtree(info, ignore_errors=True)


def run(arguments: "list[str]", what: str, env: "dict[str, str] | None" = None) -> str:
    """
    What Salt's Python prints with *arguments*.

    :raises Problem: it failed; says *what* did, and the last that it said.
    """
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
        errors = [line for line in said if line.lower().startswith("error")]
        last = (errors or said or [f"it ended with {done.returncode}"])[-1]
        raise Problem(f"{what}: {last.strip()[:300]}")
    return done.stdout


if __name__ == "__main__":
    main()
