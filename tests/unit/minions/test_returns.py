"""For how long a job's returns are noted."""

from __future__ import annotations

import pytest

from saltext_ha.minions.returns import Returns

pytestmark = pytest.mark.core

JID, LATER = "20260131031245123456", "20260131031245123457"


def test_who_expects_a_job_again_extends_the_time() -> None:
    now = [0.0]
    returns = Returns(lambda: now[0])
    returns.expect([JID], 10)
    now[0] = 8
    returns.expect([JID], 10)  # it had to wait for its turn
    returns.expect([JID], 1)
    now[0] = 15
    returns.expect([LATER], 10)
    returns(f"salt/job/{JID}/ret/web1", {"id": "web1", "return": True})
    assert set(returns.of(JID)) == {"web1"}
