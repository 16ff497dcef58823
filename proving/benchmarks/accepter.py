"""
A ``salt-key`` that stays: accepts the minion ids that it reads from standard input.

The key is moved and the event fired by Salt's own code, just as ``salt-key -a`` does; only the
second that program needs to start is left out. Answers each id with a line when it is done.
"""

from __future__ import annotations

import contextlib
import io
import sys

import salt.config
import salt.key


def main(configuration: str) -> None:
    """Until standard input ends; *configuration* is a master's configuration file."""
    key = salt.key.get_key(salt.config.master_config(configuration))
    print("ready", flush=True)
    for line in sys.stdin:
        with contextlib.redirect_stdout(io.StringIO()):
            key.accept(match=line.strip())
        print(line, end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
