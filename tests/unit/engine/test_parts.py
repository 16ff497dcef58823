"""What operators and peers may ask is registered once."""

from __future__ import annotations

import pytest

from saltext_ha.engine.wiring import merge

pytestmark = pytest.mark.core


def test_no_name_stands_for_two_things() -> None:
    found = {"status": 1}
    merge(found, {"keys": 2, "peers": 3})
    assert found == {"status": 1, "keys": 2, "peers": 3}
    with pytest.raises(RuntimeError, match="registered twice: keys, status"):
        merge(found, {"status": 3, "keys": 2})
