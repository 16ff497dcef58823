"""What a step of an orchestration shows of the answer of ``ha.cmd``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from saltext_ha.commands.minions import cmd_batches
from saltext_ha.common.errors import HaError
from saltext_ha.minions.own_jobs import NO_ROOM
from saltext_ha.salt_bus.intake import TOO_MUCH

Answer = Mapping[str, Any]

LISTED = 20
"""Minions that the comment of a step names."""
LONGEST = 300
"""Characters of what one of them said; the changes of the step show all."""


class Expected(NamedTuple):
    """
    When a step has succeeded.

    :ivar good: whether what a minion returned is a success.
    :ivar minions: whether all minions must have returned.
    :ivar masters: whether it must be known whom the target meant on all masters.
    :ivar may_fail: ids whose failure does not count. :ivar allowed: how many others may fail.
    """

    good: Callable[[Any], bool]
    minions: bool
    masters: bool
    may_fail: Collection[str]
    allowed: int = 0


def check_target(tgt: Any) -> None:
    """:raises HaError: YAML has made something else of a target, such as a number."""
    for each in tgt if isinstance(tgt, list) else [tgt]:
        if not isinstance(each, str):
            raise HaError(f"tgt: takes a text, or a list of them, not {each!r:.80}: quote it")


def arguments(arg: Any, kwarg: Any) -> tuple[list[Any], dict[str, Any]]:
    """
    ``arg`` and ``kwarg`` of a function, as somebody wrote them: a list, or its only entry; a
    mapping.

    :raises HaError: *kwarg* is none.
    """
    if kwarg is not None and not isinstance(kwarg, Mapping):
        raise HaError(f"kwarg: takes a mapping, not {kwarg!r:.80}")
    listed = arg if isinstance(arg, (list, tuple)) else [] if arg is None else [arg]
    return list(listed), dict(kwarg or {})


def ids(value: Any) -> list[str]:
    """
    The ids of ``fail_minions``, as somebody wrote them: a list, or a text with commas.

    :raises HaError: it is neither.
    """
    found = value.split(",") if isinstance(value, str) else value or ()
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise HaError(f"fail_minions: takes ids of minions, as texts, not {value!r:.80}")
    return [each.strip() for each in found]


def number(value: Any) -> int:
    """
    ``allow_fail``, as somebody wrote it.

    :raises HaError: it is no number.
    """
    try:
        return int(value)
    except (TypeError, ValueError):
        raise HaError(f"allow_fail: takes a number, not {value!r:.80}") from None


def shown(
    answer: Answer, tgt_type: str, expected: Expected, is_change: Callable[[Any], bool]
) -> dict[str, Any]:
    """
    What a state function returns, without its name; ``result`` is true or false.

    :param is_change: whether what a minion returned is shown as a change.
    """
    returned, failed = answer["returned"], _failed(answer, expected)
    counted = sorted(failed.keys() - expected.may_fail)
    masters = _masters(answer, tgt_type) if expected.masters else []
    nobody = expected.minions and not (returned or failed)
    changes = {
        i: left_out(value) or value
        for i, value in returned.items()
        if i in failed or is_change(value)
    }
    lines = [f"{i}: {failed[i]}" for i in counted[:LISTED]]
    if len(counted) > LISTED:
        lines += [f"and {len(counted) - LISTED} more"]
    lines += masters
    if uncounted := sorted(failed.keys() - counted):
        lines += [f"failed, which is allowed: {', '.join(uncounted)}"]
    jobs = [f"{jid} of {name}" for part in answer["jobs"] for name, jid in part.items()]
    plural = "s" * (len(returned) != 1)
    count = f"{len(returned)} minion{plural} returned; jobs: {', '.join(jobs) or 'none'}"
    lines += ["no minion matches, or none returned" if nobody else count]
    return {
        "result": not (len(counted) > expected.allowed or masters or nobody),
        "changes": changes,
        "comment": "\n".join(lines),
    }


def _failed(answer: Answer, expected: Expected) -> dict[str, str]:
    """Id → why it failed."""
    codes, found = answer["failed"], dict[str, str]()
    for minion_id, value in answer["returned"].items():
        if minion_id in codes or not expected.good(value):
            code = f", exit code {codes[minion_id]}" if minion_id in codes else ""
            found[minion_id] = _said(value) or f"failed{code}"
    if expected.minions:
        for minion_id, master in answer["missing"].items():
            jid = answer["running"].get(minion_id)
            still = f"; it says that it still runs job {jid}" if jid else ""
            found[minion_id] = f"did not return to {master} in time{still}"
        nowhere = "no master reaches it, or its key is not accepted there"
        found |= dict.fromkeys(answer["unreachable"], nowhere)
    unsure = "may have run it: the master that published it cannot be asked any more"
    found |= dict.fromkeys(answer["unsure"], unsure)
    return found | dict.fromkeys(answer["not_begun"], "was not asked: an earlier batch was cut off")


def _masters(answer: Answer, tgt_type: str) -> list[str]:
    """
    Masters that could not be asked, if that leaves open whom the target meant, or who has run it.
    """
    known = tgt_type in cmd_batches.LISTABLE
    planned = {name for part in answer["targets"] for name in part} | {cmd_batches.THIS}
    return [
        f"master {name}: {why}"
        for name, why in sorted(answer["unknown"].items())
        if not known or name in planned
    ]


def _said(value: Any) -> str:
    """What a minion returned, if that is a text or texts: Salt's errors, mostly; its beginning."""
    texts = value if isinstance(value, list) else [left_out(value) or value]
    if not texts or not all(isinstance(each, str) for each in texts):
        return ""
    text = "; ".join(texts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def left_out(value: Any) -> str:
    """
    The text in place of what a minion returned, if that was too large; else empty. Whether it was a
    success tells the exit code; whether it changed something is not known.
    """
    text = value.get("error") if isinstance(value, Mapping) and len(value) == 1 else value
    return text if isinstance(text, str) and text.startswith((TOO_MUCH, NO_ROOM)) else ""


def changed(states: Any) -> bool:
    """Whether *states*, which a minion returned, changed something there, or may have."""
    if left_out(states):
        return True
    each = states.values() if isinstance(states, Mapping) else ()
    return any(isinstance(state, Mapping) and state.get("changes") for state in each)
