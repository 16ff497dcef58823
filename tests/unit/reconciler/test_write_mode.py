"""Whether the key store is believed and written, and why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saltext_ha.reconciler.write_mode import ENFORCE, OBSERVE, WriteMode


def says(name: str, value: object) -> Callable[[WriteMode], None]:
    return lambda mode: setattr(mode, name, value)


@pytest.mark.parametrize(
    ("tell", "believes", "able", "writes", "why_not", "name"),
    [
        (says("doubt", ""), True, True, True, "", "enforce"),
        (says("paused", "by alice"), True, False, False, "by alice", "paused"),
        (says("shared", "it is m2's"), True, False, False, "it is m2's", "observe"),
        (says("lost", True), False, False, False, "", "enforce"),
        (says("doubt", "not mounted?"), False, True, False, "", "enforce"),
    ],
    ids=["", "paused", "shared", "lost", "doubt"],
)
def test_one_reason_is_enough(
    tell: Callable[[WriteMode], None],
    believes: bool,
    able: bool,
    writes: bool,
    why_not: str,
    name: str,
) -> None:
    mode = WriteMode()
    tell(mode)
    assert (mode.believes, mode.able, mode.writes) == (believes, able, writes)
    assert (mode.why_not, mode.name) == (why_not, name)
    assert not mode.only_reports


def test_a_store_of_salts_own_cluster_is_left_to_it() -> None:
    mode = WriteMode(in_cluster="cluster_id is set")
    assert (mode.writes, mode.believes, mode.name) == (False, True, "observe")
    assert mode.never == mode.why_not == "cluster_id is set"
    assert mode.only_reports


def test_a_master_that_observes_does_so_until_it_is_resumed() -> None:
    mode = WriteMode(OBSERVE)
    for paused, name in (("it observes", OBSERVE), ("", ENFORCE)):
        mode.paused = paused
        assert (mode.name, mode.only_reports) == (name, bool(paused))
