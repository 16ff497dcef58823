"""The runner's half of ``ha.deploy`` and ``ha.rollback``: begins it, and says how far it is."""

from __future__ import annotations

import time
from typing import Any

from saltext_ha.commands.engine_client import Answer, engine, say
from saltext_ha.config.mapping import HaConfig

SILENT = 2.0
"""Seconds before progress is printed."""


def run(settings: HaConfig, command: str, payload: dict[str, Any]) -> Answer:
    """
    The result of a deployment. If it takes long, its progress is printed on standard error.

    :raises HaError: it was refused, or failed; says why.
    """
    job = engine(settings, command, payload)["job"]
    began, said = time.monotonic(), ""
    # The engine delays each of these answers.
    while "answer" not in (found := engine(settings, "deploy_progress", {"job": job})):
        text = str(found.get("text") or "")
        if text != said and time.monotonic() - began > SILENT:
            say(text)
            said = text
    answer: Answer = found["answer"]
    return answer
