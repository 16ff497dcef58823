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


def wrong(check: validators.Check, value: Any) -> str:
    with pytest.raises(ValueError) as found:  # noqa: PT011
        check(value)
    return str(found.value)


def test_the_ends_of_a_range_belong_to_it() -> None:
    seconds, whole = validators.seconds(2, 5), validators.whole(2, 5)
    assert (seconds(2), seconds(5), whole(2), whole(5)) == (2.0, 5.0, 2, 5)
    for check in (seconds, whole):
        for value in (1, 6, 0, True, "3", None, float("nan")):
            assert "from 2 to 5" in wrong(check, value)
    assert wrong(whole, 3.0) == "takes a whole number from 2 to 5"
    assert wrong(validators.whole(0, 1), True) == "takes a whole number from 0 to 1"
    assert wrong(validators.seconds(0, 1), False) == "takes seconds from 0 to 1"


def test_zero_may_mean_something_of_its_own() -> None:
    check = validators.seconds(2, 5, or_zero="never")
    assert check(0) == 0.0
    assert wrong(check, 1) == "takes seconds from 2 to 5, or 0 for never"
    assert wrong(validators.seconds(2, 5), 0) == "takes seconds from 2 to 5"


def test_words_paths_and_hosts() -> None:
    assert validators.word("x") == "x"
    for value in ("", 5, None):
        assert wrong(validators.word, value) == "takes a name"
    for value in ("", "etc/salt", 5):
        assert wrong(validators.path, value) == "takes an absolute path"
    assert validators.host("[::1]") == validators.host("::1") == "::1"
    for value in ("[m1", "m1]", "[]", "[::1", "[::1]x", "", "m1/x", "m1:4506", 5):
        assert "takes a host name or an IP address" in wrong(validators.host, value)


def test_an_unknown_key_is_named() -> None:
    assert validators.read({"on": True}, CHECKS) == {"on": True}
    with pytest.raises(ValueError, match=r"^: unknown key 'onn'; did you mean 'on'"):
        validators.read({"onn": True}, CHECKS)
