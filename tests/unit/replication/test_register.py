"""What registers of trees and of runs have in common."""

from __future__ import annotations

from saltext_ha.replication.runs import RunRegister


def test_only_a_claim_beyond_what_its_master_vouches_for_is_refuted() -> None:
    """What stays keeps a replaced value from coming back."""
    register = RunRegister((), (("a", 5), ("b", 6), ("c", 7)))
    assert register.disclaimed({"a": 5, "b": 5}).context == (("a", 5), ("c", 7))
