"""What became of the plan for a minion: the file is written, and the minion restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.common.validators import is_number
from saltext_ha.minion import files, options
from saltext_ha.minion.restarting import restart
from saltext_ha.minion.restarting.restart import Way
from saltext_ha.rollout import plan, record, trial
from saltext_ha.rollout.drop_in import Wanted
from saltext_ha.rollout.plan import RolloutPlan


class Applied(NamedTuple):
    """As a state of Salt tells it; ``result`` is None if a test found something to do."""

    result: bool | None
    changes: dict[str, str]
    comment: str


def apply(opts: Mapping[str, Any], wish: Wanted, timeout: Any, again: Any) -> Applied:
    """
    Bring the file on the minion with *opts* to *wish*; only say what would change if it is a test.

    :param timeout: seconds that the minion may take to reach a master after its restart.
    :param again: try a file again that was put back within the last hour.
    :raises HaError: says why nothing was changed.
    """
    if options.is_of_salt_ssh(opts):
        raise HaError(
            f"{options.SALT_SSH}, which would never see the file: use install-minion.sh, or "
            "salt-call --local on that host"
        )
    caller = options.is_caller(opts)
    if unkept := files.problem(str(opts["cachedir"])):
        raise HaError(f"{unkept}; what became of a restart could not be noted there")
    if not is_number(timeout) or timeout < 1:
        raise HaError(f"timeout: {timeout!r}: takes seconds, at least 1")
    if not isinstance(again, bool):
        raise HaError(f"again: {again!r}: takes True or False")
    if not caller and not opts.get("multiprocessing", True):
        raise HaError(
            "multiprocessing is off: the process that restarts the minion would end with it"
        )
    minion = options.pid(opts)
    made = plan.make(opts, wish, minion, again)
    way, changes = None, dict[str, str]()
    if made.changes:
        changes["diff"] = made.diff
    if minion is not None and (made.changes or made.stale) and not made.trying:
        # It fails now, while that can still be reported.
        way = restart.way(minion, opts)
        changes["restart"] = "the minion, when this job has returned"
    remarks = "".join(f"\n{remark}" for remark in made.remarks)
    if opts.get("test"):
        return Applied(None if changes else True, changes, _would(made, changes) + remarks)
    return Applied(True, changes, _carry_out(opts, made, minion, way, float(timeout)) + remarks)


def _would(made: RolloutPlan, changes: Mapping[str, str]) -> str:
    if not changes:
        return f"{made.path} is as it should be"
    return f"{made.path} would be written" if made.changes else "the minion would be restarted"


def _carry_out(
    opts: Mapping[str, Any], made: RolloutPlan, minion: int | None, way: Way | None, timeout: float
) -> str:
    """What was done. :raises HaError: that failed."""
    if made.trying:
        return f"{made.path} is just being tried"
    if made.changes:
        try:
            made.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            record.replace(made.path, made.new)
        except OSError as exc:
            raise HaError(f"{made.path}: cannot be written: {reason_of(exc)}") from None
    if minion is None or way is None:
        what = "was written; no minion runs" if made.changes else "is as it should be"
        return f"{made.path} {what}"
    try:
        trial.launch(made.order(opts, minion, way, timeout))
    except HaError as exc:
        raise HaError(
            f"{made.path} is not kept, and the minion not restarted: {exc}; run this again"
        ) from None
    back = f"; the old file comes back unless it reaches a master within {timeout:g} s"
    return f"the minion restarts when this job has returned{back if made.changes else ''}"
