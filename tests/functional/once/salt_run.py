"""``salt-run ha.once`` of a place, by Salt's own loader: here, or in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import salt.loader

from lab.engines import Place

RUNNER = '''
"""Side effects that can be counted from outside."""

import os
import time


def append(file, line, fail=False, until=""):
    with open(file, "a", encoding="utf-8") as out:
        out.write(line + " " + os.environ.get("SALT_HA_FENCE", "-") + "\\\\n")
    while until and not os.path.exists(until):
        time.sleep(0.02)
    if fail:
        raise ValueError("as it was told to")
    return line


def echo(what):
    return what
'''.replace("\\\\n", "\\n")


def options(root: Path) -> dict[str, Any]:
    """For the masters of a test: with the runner ``effect``."""
    folder = root / "runners"
    folder.mkdir(exist_ok=True)
    (folder / "effect.py").write_text(RUNNER)
    return {"runner_dirs": [str(folder)]}


def once(place: Place, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What it returns."""
    functions = salt.loader.runner(dict(place.opts))
    answer: dict[str, Any] = functions["ha.once"](*args, **kwargs)
    return answer


def begun(place: Place, *args: Any, **kwargs: Any) -> subprocess.Popen[str]:
    """The same in a process of its own, which prints what it returned."""
    asked = json.dumps({"place": place.data(), "args": args, "kwargs": kwargs})
    return subprocess.Popen(
        [sys.executable, "-m", __name__, asked], stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    asked = json.loads(sys.argv[1])
    print(json.dumps(once(Place.of(asked["place"]), *asked["args"], **asked["kwargs"])))


if __name__ == "__main__":
    main()
