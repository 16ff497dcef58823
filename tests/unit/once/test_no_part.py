"""What a refusal says of the peer: that it takes no part in leading, or something else."""

from __future__ import annotations

from typing import cast

import pytest

from saltext_ha.common.errors import HaError, PeerRefused
from saltext_ha.once import candidate
from saltext_ha.transport.peer import Peer
from tests.loop import in_a_loop

pytestmark = pytest.mark.core


@in_a_loop
async def test_the_peer_says_why() -> None:
    with pytest.raises(HaError) as told:
        await candidate.refusing("ha: leader: false there")["leader"](cast(Peer, None), {})
    reason = str(told.value)
    assert reason == "takes no part: ha: leader: false there"  # as released masters say it
    assert candidate.why_not(PeerRefused(f"m2 refused: {reason}", reason)) == (
        "ha: leader: false there"
    )


@pytest.mark.parametrize(
    "reason", ["", "internal error", "the disk takes no part: it is full", "takes no part"]
)
def test_another_reason_says_nothing_of_that(reason: str) -> None:
    assert candidate.why_not(PeerRefused("m2 refused leader", reason)) == ""
