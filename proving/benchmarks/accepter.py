"""
A ``salt-key`` that keeps running: it accepts the minion ids that it reads from standard input.

Salt's own code moves the key and fires the event, as in ``salt-key -a``; only the second that this
program needs to start is left out. It answers each id with a line when it is done.
"""

from __future__ import annotations

import contextlib
import io
import sys

import salt.config
import salt.key


def main(configuration: str) -> None:
    """Run until standard input ends; *configuration* is a master's configuration file."""
    key = salt.key.get_key(salt.config.master_config(configuration))
    print("ready", flush=True)
    for line in sys.stdin:
        with contextlib.redirect_stdout(io.StringIO()):
            key.accept(match=line.strip())
        print(line, end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
