"""What all mappings of the configuration are read with."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.common import validators

CHECKS = {"on": validators.flag}


def test_what_may_be_left_out_or_turned_off() -> None:
    assert validators.switch(False, CHECKS) is None
    assert validators.switch(None, CHECKS) == validators.switch({}, CHECKS) == {}
    assert validators.switch({"on": True}, CHECKS) == {"on": True}


@pytest.mark.parametrize("value", [True, 0, "", "on", [], ["on"]])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="takes false, or a mapping with some of the keys on"):
        validators.switch(value, CHECKS)
