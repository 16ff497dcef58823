"""A wheel in a Python that has Salt and nothing else: does Salt take it, and let go of it again?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess  # nosec B404
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.pythons import Version, text

CHECKOUT = Path(__file__).parents[2]
INSTALL, CALL, DEMO = 900.0, 120.0, 600.0
# Salt and its dependencies are there before, so nothing else may be there after.
OURS = "saltext-ha"


class Failed(Exception):
    """A step did not hold; the text is one line that says why."""


@dataclass(frozen=True)
class Pair:
    """
    One Python with one release of Salt, and the result of trying the wheel there.

    :ivar salt: the release, such as ``3008``.
    :ivar installed: the version of Salt that pip took; empty: none can be installed.
    :ivar why: what failed; empty: nothing did.
    :ivar demo: the demo was run, and succeeded.
    """

    python: Version
    interpreter: Path
    salt: str
    installed: str = ""
    why: str = ""
    demo: bool = False

    @property
    def name(self) -> str:
        """For people and folders."""
        return f"Python {text(self.python)}, Salt {self.salt}"


def attempt(pair: Pair, wheel: Path, folder: Path, demo: bool) -> Pair:
    """
    Install Salt, then *wheel*, look, and uninstall it.

    :param folder: the environment is made there, and removed.
    :param demo: also run the demo on what is installed.
    :return: *pair* with what was found.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = Environment(folder)
    installed = ""
    try:
        environment.make(pair.interpreter, pair.salt)
        installed = environment.frozen().get("salt", "")
        environment.take(wheel)
        if demo:
            environment.demo(wheel)
        environment.let_go()
    except Failed as exc:
        return replace(pair, installed=installed, why=str(exc))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return replace(pair, installed=installed, demo=demo)


class Environment:
    """A venv below *folder*, and a folder of configuration for Salt."""

    def __init__(self, folder: Path) -> None:
        self.bin, self._root = folder / "venv" / "bin", folder / "root"
        self._before: dict[str, str] = {}

    def make(self, interpreter: Path, salt: str) -> None:
        """A venv of *interpreter* with the release *salt*."""
        self._root.mkdir()
        config = json.dumps({"root_dir": str(self._root), "id": "m1", "file_client": "local"})
        for name in ("master", "minion"):
            (self._root / name).write_text(config)
        run([str(interpreter), "-m", "venv", str(self.bin.parent)], CALL)
        self.pip("install", f"salt~={salt}.0", what=f"Salt {salt} does not install")
        self._before = self.frozen()
        # If Salt does not run by itself, the extension is not to blame.
        self._works(f"Salt {salt} does not run")

    def pip(self, *arguments: str, what: str = "pip") -> str:
        """The output of ``pip ARGUMENTS``; *what* begins the text of a failure."""
        command = [str(self.bin / "python"), "-m", "pip", "--disable-pip-version-check"]
        return run([*command, *arguments], INSTALL, what)

    def frozen(self) -> dict[str, str]:
        """Distribution → version, of all that is installed."""
        rows = json.loads(self.pip("list", "--format=json"))
        return {row["name"].lower(): row["version"] for row in rows}

    def take(self, wheel: Path) -> None:
        """Install *wheel* alone, and see whether Salt has it."""
        self.pip("install", str(wheel), what="the wheel does not install")
        version = wheel.name.split("-")[1]
        added = dict(self.frozen().items() - self._before.items())
        if added != {OURS: version}:
            raise Failed(f"more was installed, or other versions, than {OURS} {version}: {added}")
        report = self.salt("salt", "--versions-report")
        _, _, extensions = report.partition("Salt Extensions:")
        if version not in extensions:
            raise Failed(f"salt --versions-report does not list {OURS} {version}")
        for function in ("ha.status", "ha.join"):
            if f"{function}:" not in self.salt("salt-run", "-d", function):
                raise Failed(f"salt-run -d {function} shows nothing")
        # Its exit status may be 2: no engine runs here that could tell about the group.
        if "m1" not in self.salt("salt-ha", "lint", fine=(0, 2)):
            raise Failed("salt-ha lint does not name this master")

    def demo(self, wheel: Path) -> None:
        """Run the demo of the checkout, on what is installed."""
        self.pip("install", f"{wheel}[test]", what="what the demo takes does not install")
        # Of the checkout only lab/ can be imported; src/ is on no path.
        where = run(
            [str(self.bin / "python"), "-c", "import saltext_ha; print(saltext_ha.__file__)"], CALL
        )
        if not where.startswith(str(self.bin.parent)):
            raise Failed(f"it is not the wheel that is tried: {where}")
        run([str(self.bin / "python"), "-m", "lab.demo"], DEMO, "the demo fails", cwd=CHECKOUT)

    def let_go(self) -> None:
        """Uninstall it: Salt goes on, and nothing is left."""
        self.pip("uninstall", "--yes", OURS, what="it does not uninstall")
        left = [path.name for path in self.bin.parent.rglob("saltext*ha*")]
        if left or (self.bin / "salt-ha").exists():
            raise Failed(f"uninstalled, and still there: {left or 'salt-ha'}")
        if OURS in self._works("without the extension Salt does not run"):
            raise Failed("salt --versions-report lists what was uninstalled")

    def _works(self, what: str) -> str:
        """The versions report of a Salt that also runs a function."""
        said = self.salt("salt-call", "--local", "--out=json", "test.ping", what=what)
        if '"local": true' not in said:
            raise Failed(f"{what}: salt-call test.ping says {said.strip()[-200:]}")
        return self.salt("salt", "--versions-report", what=what)

    def salt(
        self, program: str, *arguments: str, what: str = "", fine: Sequence[int] = (0,)
    ) -> str:
        """The output of one of the programs, with the configuration of this environment."""
        command = [str(self.bin / program), *arguments]
        env = {**os.environ, "SALT_CONFIG_DIR": str(self._root), "PYTHONWARNINGS": "ignore"}
        return run(command, CALL, what or " ".join([program, *arguments]), env, fine=fine)


def run(
    command: Sequence[str],
    timeout: float,
    what: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    fine: Sequence[int] = (0,),
) -> str:
    """
    The standard output of *command*.

    :param fine: the exit statuses that are no failure.
    :raises Failed: it takes longer than *timeout* seconds, or fails; with *what* and a reason.
    """
    what = what or " ".join(command)
    try:
        done = subprocess.run(  # nosec B603
            command, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: no end after {timeout:.0f} s") from None
    if done.returncode not in fine:
        raise Failed(f"{what}: {reason(done.stderr or done.stdout)}")
    return done.stdout


def reason(said: str) -> str:
    """The line of *said* that tells most: the last one that names an error, or the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR:|\w*(Error|Exception)\b|✗ )", line)]
    return (errors or lines or ["it says nothing"])[-1][:300]
