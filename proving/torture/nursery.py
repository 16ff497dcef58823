"""
Starts engines in a few milliseconds: one process imports Salt and the product, and forks them.

Starting an interpreter takes a second of CPU, and a history starts a dozen engines. There is one
nursery for each release of Salt that takes part. It answers lines of JSON on stdin; when that ends,
so do all its engines, stopped ones too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START_TIMEOUT = 180.0


class Nursery:
    """The nursery of one Python *interpreter*; ``salt`` is the release that it has."""

    def __init__(self, interpreter: str = sys.executable) -> None:
        self.interpreter = interpreter
        self._process = subprocess.Popen(
            [interpreter, "-m", "proving.torture.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            # A Ctrl-C is for the process that acts the history out, which then closes this one.
            start_new_session=True,
        )
        line = self._stdout.readline()
        if not line:
            raise RuntimeError(f"{interpreter}: no engine can be started with it")
        self.salt = str(json.loads(line)["salt"])

    @property
    def _stdout(self) -> Any:
        return self._process.stdout

    def start(self, spec: Mapping[str, Any]) -> int:
        """Fork an engine, see :func:`proving.torture.engine.run`; return its pid."""
        return int(self._ask({"start": dict(spec)}))

    def ended(self, pid: int) -> bool:
        """Whether that engine has ended; no other process gets its pid before this call."""
        return bool(self._ask({"ended": pid}))

    def wait(self, pid: int) -> None:
        self._ask({"wait": pid})

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        if self._process.stdin is None:
            raise RuntimeError("the nursery is closed")
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("the nursery has ended")
        return json.loads(line)["answer"]


def _main() -> None:
    from proving.torture import clock

    clock.set_up()  # first of all: what is imported next uses it
    import salt.version

    from proving.torture import engine

    # What was imported stays: no engine looks through it for garbage.
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    print(json.dumps({"salt": salt.version.__version__}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        ((word, value),) = json.loads(line).items()
        if word == "start":
            answer: Any = _fork(value, engine.run)
            children.add(answer)
        else:
            answer = value not in children
            if not answer:
                pid, _ = os.waitpid(value, 0 if word == "wait" else os.WNOHANG)
                answer = pid == value
                if answer:
                    children.discard(value)
        print(json.dumps({"answer": answer}), flush=True)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _fork(spec: Mapping[str, Any], run: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        run(spec)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _main()
