"""The runner's half of ``ha.deploy`` and ``ha.rollback``: begins it, and says how far it is."""

from __future__ import annotations

import sys
import time
from typing import Any

from saltext_ha.commands.engine_client import Answer, engine
from saltext_ha.config.mapping import HaConfig

SILENT = 2.0
"""Seconds before anything is said of how far it is."""


def run(settings: HaConfig, command: str, payload: dict[str, Any]) -> Answer:
    """
    What came of it. How far it is is said on standard error, when it takes long.

    :raises HaError: it was refused, or failed; says why.
    """
    job = engine(settings, command, payload)["job"]
    began, said = time.monotonic(), ""
    # Each of these waits in the engine.
    while "answer" not in (found := engine(settings, "deploy_progress", {"job": job})):
        text = str(found.get("text") or "")
        if text != said and time.monotonic() - began > SILENT:
            print(text, file=sys.stderr, flush=True)
            said = text
    answer: Answer = found["answer"]
    return answer
