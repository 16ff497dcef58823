"""
The process that runs ``ha: restart:``; it outlives the salt-master that it ends.

It keeps its name: when the package is upgraded, the masters that still run start it by that.
"""

from __future__ import annotations

import os
import subprocess  # nosec B404
from collections.abc import Sequence
from pathlib import Path

from saltext_ha.common.files import write_whole
from saltext_ha.minion.restarting import detached

END_WITHIN = 600.0  # seconds for the command
MOST_OUTPUT = 1000  # characters
NEEDS_A_RULE = "; salt-master does not run as root here, and systemd takes a rule for its user"


def main() -> None:
    """Run the command, and write to a file why it failed; an empty file: it did not."""
    order = detached.take()
    try:
        done = subprocess.run(  # nosec B603
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=END_WITHIN,
        )
        said = done.stdout.decode(errors="replace").strip()[-MOST_OUTPUT:]
        problem = _problem(order["command"], done.returncode, said)
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    write_whole(Path(order["result"]), problem.encode())


def _problem(command: Sequence[str], code: int, said: str) -> str:
    if not code:
        return ""
    rule = NEEDS_A_RULE if command[0] == "systemctl" and os.geteuid() else ""
    return f"exit code {code}: {said}{rule}"


if __name__ == "__main__":
    main()
