"""``salt-run ha.…`` without Salt's own start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.engines import Place
from saltext_ha.runners import ha


def run(place: Place, function: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a function of the runner on the master *place*."""
    ha.__opts__ = place.opts
    ha.__context__ = {}
    return dict(getattr(ha, function)(**arguments))


def start(
    place: Place, function: str, environment: Mapping[str, str], **arguments: Any
) -> subprocess.Popen[bytes]:
    """As :func:`run`, in a process of its own, with *environment* in addition to ours."""
    order = {"place": place.data(), "function": function, "arguments": arguments}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runner", json.dumps(order)],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, **environment},
    )


def _main() -> None:
    order = json.loads(sys.argv[1])
    print(run(Place.of(order["place"]), order["function"], **order["arguments"]))


if __name__ == "__main__":
    _main()
