"""What operators and peers may ask is registered once."""

from __future__ import annotations

import pytest

from saltext_ha.engine.wiring import _together

pytestmark = pytest.mark.core


def test_no_name_stands_for_two_things() -> None:
    assert _together([{"status": 1}, {"keys": 2, "peers": 3}]) == {
        "status": 1,
        "keys": 2,
        "peers": 3,
    }
    with pytest.raises(RuntimeError, match="registered twice: keys, status"):
        _together([{"status": 1, "keys": 2}, {"status": 3, "keys": 2}])
