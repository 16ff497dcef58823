"""Fail points as a test orders them while other threads of the process pass points."""

from __future__ import annotations

from pathlib import Path

import pytest

from saltext_ha.common import fail_points


def test_an_order_that_is_being_written_is_none_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / "faults"
    monkeypatch.setattr(fail_points, "_orders", str(orders))
    orders.touch()
    fail_points.point("state.look")
    orders.write_text("ENOSPC state.look")
    with pytest.raises(OSError, match=r"ordered at state\.look"):
        fail_points.point("state.look")
