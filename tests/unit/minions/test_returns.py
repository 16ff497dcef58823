"""For how long a job's returns are noted."""

from __future__ import annotations

import pytest

from saltext_ha.minions.returns import Returns
from tests.unit.clock import Clock

pytestmark = pytest.mark.core

JID, LATER = "20260131031245123456", "20260131031245123457"


def test_who_expects_a_job_again_extends_the_time() -> None:
    clock = Clock(0.0)
    returns = Returns(clock)
    returns.expect([JID], 10)
    clock.now = 8
    returns.expect([JID], 10)  # it had to wait for its turn
    returns.expect([JID], 1)
    clock.now = 15
    returns.expect([LATER], 10)
    returns(f"salt/job/{JID}/ret/web1", {"id": "web1", "return": True})
    assert set(returns.of(JID)) == {"web1"}
