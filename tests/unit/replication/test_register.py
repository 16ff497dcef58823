"""What registers of trees and of runs have in common."""

from __future__ import annotations

from saltext_ha.replication import register


def test_only_a_claim_beyond_what_its_master_vouches_for_is_refuted() -> None:
    """What stays keeps a replaced value from coming back."""
    seen = (("a", 5), ("b", 6), ("c", 7))
    assert register.disclaimed((), seen, {"a": 5, "b": 5}) == (("a", 5), ("c", 7))
