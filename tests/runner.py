"""``salt-run ha.…`` without Salt's own start: the runner module in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engines import Place
from saltext_ha.runners import ha


def run(
    place: Place, function: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> tuple[int, dict[str, Any]]:
    """
    Call a function of the runner on the master *place*.

    :return: the exit status of the process (a signal's number negated), and the answer.
    """
    order = {
        "place": {"root": str(place.root), "name": place.name, "port": place.port},
        "ha": dict(place.ha),
        "options": dict(place.options),
        "function": function,
        "arguments": arguments,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.runner", json.dumps(order)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **(environment or {})},
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}


def _main() -> None:
    order = json.loads(sys.argv[1])
    order["place"]["root"] = Path(order["place"]["root"])
    place = Place(**order["place"], ha=order["ha"], options=order["options"])
    ha.__opts__ = place.opts
    ha.__context__ = {}  # type: ignore[attr-defined]
    print(json.dumps(getattr(ha, order["function"])(**order["arguments"])))


if __name__ == "__main__":
    _main()
