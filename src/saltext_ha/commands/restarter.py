"""
The process that runs ``ha: restart:``; it outlives the salt-master that it ends.

It keeps its name: when the package is upgraded, the masters that still run start it by that.
"""

from __future__ import annotations

import subprocess  # nosec B404
from pathlib import Path

from saltext_ha.common.files import write_whole
from saltext_ha.minion.restarting import detached

END_WITHIN = 600.0  # seconds for the command
MOST_OUTPUT = 1000  # characters


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
        problem = f"exit code {done.returncode}: {said}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    write_whole(Path(order["result"]), problem.encode())


if __name__ == "__main__":
    main()
