"""What a pool returns and raises in a worker process comes to the process that waits for it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from saltext_ha.api import (
    ApiPoolError,
    BadConfiguration,
    CallFailed,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    PartlyRun,
    Returns,
    TargetNotDivided,
    TimedOut,
)

pytestmark = pytest.mark.core

ERRORS = [
    ApiPoolError("closed"),
    BadConfiguration("tgt: is int"),
    NoMasterAvailable({"m1": "refused"}),
    NotAuthorised({"m1": "no"}),
    CallFailed("m1", "runner x failed", {"a": 1}),
    TimedOut("late", "m1", "1", {"a": 1}, ["b"]),
    OutcomeUnknown("m1", "reset", "1", {"a": 1}, ["b"]),
    PartlyRun({"a": 1}, {"m1": "1"}, {"m2": NotAuthorised({"m2": "no"})}),
    TargetNotDivided("os:Red Hat", "grain"),
]


def kinds(root: type[ApiPoolError]) -> set[type[ApiPoolError]]:
    return {root}.union(*map(kinds, root.__subclasses__()))


def told(error: ApiPoolError) -> Any:
    return type(error), str(error), {key: repr(value) for key, value in vars(error).items()}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors(error: ApiPoolError) -> None:
    """Otherwise multiprocessing waits for ever, and concurrent.futures breaks its whole pool."""
    public = {kind for kind in kinds(ApiPoolError) if not kind.__name__.startswith("_")}
    assert {type(each) for each in ERRORS} == public
    assert told(pickle.loads(pickle.dumps(error))) == told(error)
    assert told(copy.copy(error)) == told(error)


def test_returns() -> None:
    found = pickle.loads(pickle.dumps(Returns({"a": 1, "b": False}, {"m1": "1"}, ["b"])))
    assert (found, found.jids, found.unsure) == ({"a": 1, "b": False}, {"m1": "1"}, {"b"})
