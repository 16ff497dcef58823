"""Packed marks are a dict of marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.keystore import marks as module
from saltext_ha.keystore.marks import Marks

pytestmark = pytest.mark.core

ids = st.sampled_from([*(f"web{number}" for number in range(20)), "büro", "x" * 255])
numbers = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(autouse=True, scope="module", params=[module.PARTS, 2])
def parts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also where many ids share a part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PARTS", request.param)
        yield


@given(st.lists(st.tuples(ids, st.just(0) | numbers)), st.dictionaries(ids, numbers))
def test_they_tell_what_changed_as_a_dict_would(
    noted: list[tuple[str, int]], found: dict[str, int]
) -> None:
    packed = Marks()
    packed.update(noted)
    known = {minion_id: mark for minion_id, mark in dict(noted).items() if mark}
    assert dict(packed) == known
    there = {minion_id: mark for minion_id, mark in found.items() if mark}
    assert packed.changed(dict(there)) == {i for i, _ in there.items() ^ known.items()}
    assert dict(packed) == known, "to ask changes nothing"


def test_a_store_that_shows_what_was_noted_is_not_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed, found = Marks(), {"web1": 7, "web2": -1}
    packed.update([("web1", 1), ("gone", 5), *found.items(), ("gone", 0)])

    def unpack(part: bytes) -> Any:
        raise AssertionError("a third of the time of a pass")

    monkeypatch.setattr(module.msgpack, "unpackb", unpack)
    assert packed.changed(found) == set()
    assert found == {}, "used up all the same"
    with pytest.raises(AssertionError, match="a third"):
        packed.changed({"web1": 7, "web2": -2})
