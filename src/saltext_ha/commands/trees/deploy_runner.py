"""The runner's half of ``ha.deploy`` and ``ha.rollback``: begins it, and says how far it is."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.commands.engine_client import Answer, engine, patient, say
from saltext_ha.commands.runner_arguments import checked, text
from saltext_ha.common.errors import EngineBrokeOff, EngineBusy, EngineUnavailable, HaError
from saltext_ha.config.mapping import HaConfig

SILENT = 2.0
"""Seconds before progress is printed."""
TAKES: dict[str, Any] = {"test": False, "without": "", "message": "", "adopt": False}
"""What ``ha.deploy`` takes beside trees: Salt 3006 passes on no arguments by keyword only."""
MAY_BE = (
    "It may be deployed all the same: salt-run ha.deployments shows what each master serves, once "
    "the engine answers"
)
GOES_ON = (
    "interrupted; the engine of this master goes on, and all masters may switch: salt-run "
    "ha.deployments shows what each serves; if it was deployed, salt-run ha.rollback takes it back"
)


def deploy(settings: HaConfig, trees: Iterable[Any], options: Mapping[str, Any], by: str) -> Answer:
    """
    The answer of ``ha.deploy``; see the runner.

    :param trees: their names. Salt takes ``message=…`` for one if it has several lines.
    :raises HaError: an option is unknown, or as :func:`run`.
    """
    words = [str(each) for each in trees]
    given = {**options, **dict(each.split("=", 1) for each in words if "=" in each)}
    names = [each for each in words if "=" not in each] + named(given.pop("tree", None))
    if unknown := ", ".join(sorted(given.keys() - TAKES.keys())):
        raise HaError(f"{unknown}: takes tree, {', '.join(TAKES)}")
    return run(settings, "deploy", checked({"trees": names, **TAKES, **given, "by": by}))


def named(tree: Any) -> list[str]:
    """
    The trees in the argument ``tree``: a list, or a text such as ``states,pillar``; None: all.

    :raises HaError: it is given and names none, as ``tree=$TREE`` of a script may.
    """
    if tree is None:
        return []
    texts = tree if isinstance(tree, list) else text(tree).split(",")
    names = [name.strip() for name in map(str, texts) if name.strip()]
    if not names:
        raise HaError("tree= is empty: name a tree, or leave tree= out for all of them")
    return names


def run(settings: HaConfig, command: str, payload: dict[str, Any]) -> Answer:
    """
    The result of a deployment. If it takes long, its progress is printed on standard error. If this
    is interrupted, what the engine goes on doing is said there.

    :raises HaError: it was refused, or failed; says why, and where all masters may have switched
        nevertheless.
    """
    job = ""
    try:
        job = engine(settings, command, payload)["job"]
        return _followed(settings, job)
    except (EngineUnavailable, EngineBusy) as exc:
        if payload["test"] or not (job or isinstance(exc, EngineBrokeOff)):
            raise
        raise EngineBrokeOff(f"{exc}. {MAY_BE}") from None
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C; SIGTERM, of which Salt makes an exit
        if not payload["test"]:
            say(GOES_ON)
        raise


def _followed(settings: HaConfig, job: str) -> Answer:
    ask = patient(functools.partial(engine, settings))
    began, said = time.monotonic(), ""
    # The engine delays each of these answers.
    while "answer" not in (found := ask("deploy_progress", {"job": job})):
        text = str(found.get("text") or "")
        if text != said and time.monotonic() - began > SILENT:
            say(text)
            said = text
    answer: Answer = found["answer"]
    return answer
