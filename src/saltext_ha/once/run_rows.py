"""Registers of runs between masters and in replica.db, checked as if a stranger had sent them."""

from __future__ import annotations

from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.replication.record import Dot
from saltext_ha.replication.runs import STATES, Run, RunRegister
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync import register_rows
from saltext_ha.sync.codec import MAX_TIME, NODE

LONGEST = 128
_KINDS = (str, int, str, str, str, str, float, float, int, str, int)


def to_rows(register: RunRegister, now: float) -> list[Any]:
    """
    The rows of a register.

    :param now: rows have times as seconds before it, because clocks of masters differ; 0 in
        replica.db, for times by this master's clock.
    """
    values = (
        (
            *run.dot,
            run.state,
            run.on,
            run.by,
            run.function,
            now - run.began,
            now - run.ended if run.ended else 0.0,
            run.fence,
            *run.start,
        )
        for run in register.values
    )
    return register_rows.to_rows(values, register.context)


def from_rows(raw: Any, now: float) -> RunRegister:
    """The register in rows, with times before *now*. :raises InvalidRecord: a row is invalid."""

    def read(*row: Any) -> Run:
        node, counter, state, on, by, function, began, ended, fence, starter, start = row
        if (
            state not in STATES
            or not NODE.fullmatch(starter)
            or not 1 <= start <= MOST_WRITES
            or not 0 <= fence < 2**63
            or not (abs(began) < MAX_TIME and abs(ended) < MAX_TIME)
            or any(len(text) > LONGEST for text in (on, by, function))
        ):
            raise InvalidRecord("malformed run")
        over = now - ended if ended else 0.0
        return Run(
            Dot(node, counter), state, on, by, function, now - began, over, fence,
            Dot(starter, start),
        )  # fmt: skip

    return RunRegister(*register_rows.from_rows(raw, "register of runs", _KINDS, read))
