"""The ways in which a master follows a peer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from saltext_ha.replication.record import Record
from tests.functional.keepers import Follow, Master


@pytest.fixture(params=["in two steps", "at once"])
def follow(request: pytest.FixtureRequest) -> Follow:
    """How a master follows a peer: it writes down what is to be done, and does that; or at once."""

    def follow(master: Master, records: Iterable[Record]) -> None:
        learn = master.keeper.learn if request.param == "at once" else master.hear
        learn(records)
        master.keeper.reconciler.apply()

    return follow
