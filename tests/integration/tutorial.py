"""
Follows a tutorial of the documentation: types its commands, and reads what they print.

In a block that is fenced as ``console``, a line that begins with a prompt (``m1# salt-run …``) is
run on that node of a lab. Each line below it has to be among those that were printed; ``…`` stands
for anything. ``[exit 1]`` behind a command is its exit status, otherwise it has to be 0. What
``salt-ha join`` asks for is the token that was printed last.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from lab import Lab, Master, Minion, wait_for
from lab.cli import run
from lab.node import LIMIT

DOCS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^(\w+)# (.*?)(?:\s+\[exit (\d)\])?$")
TOKEN = re.compile(r"ha1\.[\w-]+")
SETTLING = 180.0


class Tutorial:
    """
    The commands of *name*.md, or of *text*, in *lab*, whose masters and minions it speaks of.

    :param words: what the reader is to put in the place of words like FINGERPRINT.
    """

    def __init__(self, name: str, lab: Lab, text: str = "", **words: str) -> None:
        self._words = words
        self._text = text or (DOCS / f"{name}.md").read_text()
        self._lab = lab
        self._token = ""

    def follow(self) -> int:
        """
        Type every command in order.

        :return: how many there were.
        :raises AssertionError: one ended or printed otherwise than the tutorial says.
        """
        steps = [step for block in BLOCK.findall(self._text) for step in _steps(block)]
        for node, command, status, lines in steps:
            self._check(node, command, status, lines)
        return len(steps)

    def _check(self, node: str, command: str, status: int, lines: list[str]) -> None:
        missing: list[str] = []
        printed = ""
        asks = "test=True" in command or command.startswith(
            (
                "salt-run ha.check_consistency",
                "salt-run ha.cmd",
                "salt-run ha.failover_safe",
                "salt-run ha.history",
                "salt-run ha.status",
                "salt-run ha.keys",
                "salt-run ha.minions",
                "salt-run ha.reachability",
                "salt-run ha.deployments",
                "salt-key -L",
                "salt ",
            )
        )

        def right() -> bool:
            nonlocal missing, printed
            code, printed = self._run(node, command)
            missing = [line for line in lines if not _among(line, printed)]
            return code == status and not missing

        if asks:
            # What another master does takes an instant; a person reads that longer than it takes.
            # A minion that was just accepted may still be logging in, and misses a job.
            try:
                wait_for(right, SETTLING, "")
            except TimeoutError:
                pass
            else:
                return
        assert right(), (
            f"{node}# {command}\nis to print {missing} and end with {status}:\n{printed}"
        )

    def _run(self, name: str, command: str) -> tuple[int, str]:
        node = self._node(name)
        if command.startswith("systemctl "):
            return self._systemctl(node, command.split()[1])
        for word, meant in self._words.items():
            command = command.replace(word, meant)
        for default, real in _folders(node).items():
            command = command.replace(default, str(real))
        program, *rest = shlex.split(command)
        if program in ("salt-ha", "salt-run", "salt-key", "salt"):
            return self._spawn([*node.command(program), *rest], node)
        return self._spawn(["sh", "-c", command], node)

    def _spawn(self, words: list[str], node: Master | Minion) -> tuple[int, str]:
        done = run(
            words,
            env=node.env,
            cwd=node.root,
            stdin=self._token if "join" in words else "",
            timeout=LIMIT,
            parse=False,
            server=node.server,
        )
        if found := TOKEN.search(done.stdout):
            self._token = found[0]
        return done.returncode, done.stdout + done.stderr

    def _systemctl(self, node: Master | Minion, verb: str) -> tuple[int, str]:
        if verb in ("stop", "restart"):
            node.stop()
        if verb in ("start", "restart"):
            node.launch()
            if isinstance(node, Master):
                node.wait_ready()
        return 0, ""

    def _node(self, name: str) -> Master | Minion:
        return self._lab.masters.get(name) or self._lab.minions[name]


def _folders(node: Master | Minion) -> dict[str, Path]:
    kind = "master" if isinstance(node, Master) else "minion"
    return {
        f"/etc/salt/pki/{kind}": node.pki_dir,
        f"/etc/salt/{kind}": node.config_file,
        "/srv/salt": node.root.parent / "srv" / node.name / "salt",
        "/srv/pillar": node.root.parent / "srv" / node.name / "pillar",
    }


def _steps(block: str) -> list[tuple[str, str, int, list[str]]]:
    steps: list[tuple[str, str, int, list[str]]] = []
    for line in block.splitlines():
        prompt = PROMPT.match(line)
        if prompt:
            steps.append((prompt[1], prompt[2], int(prompt[3] or 0), []))
        elif line.strip():
            steps[-1][3].append(line)
    return steps


def _among(line: str, printed: str) -> bool:
    # Columns are as wide as what else stands in them.
    words = [re.escape(word).replace("…", ".*") for word in line.split()]
    pattern = re.compile(r"\s*" + r"\s+".join(words) + r"\s*")
    return any(pattern.fullmatch(other) for other in printed.splitlines())
