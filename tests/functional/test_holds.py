"""How often it is said that keys are held back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.functional.keepers import Master, exchange, shared

NAMES = [f"web{number:02}" for number in range(30)]


def test_keys_that_go_one_by_one_are_not_told_of_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As ``salt-key -D`` of 3008 deletes them: a reactor is to page somebody once, not for each."""
    m1, m2 = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    shared(m1, m2, *NAMES)
    told: list[dict[str, Any]] = []
    m1.keeper.holds._announce = lambda event, data: told.append({"event": event, **data})
    for name in NAMES:
        m1.remove(name)
        m1.keeper.observe([name], by="operator", deleted=True)
    assert [data["count"] for data in told] == [1, 2, 4, 8, 16]
    assert {(data["event"], data["master"]) for data in told} == {("held", "m1")}
    assert told[-1]["ids"] == NAMES[10:26]
    assert len([line for line in caplog.messages if line.startswith("ha held")]) == len(told)
    # All are held, whatever was said.
    assert list(m1.replica.held()) == NAMES[10:]
    exchange(m1, m2)
    assert m2.files().keys() == {("accepted", name) for name in NAMES[10:]}
