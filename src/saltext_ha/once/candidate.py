"""This master as a candidate: what an election needs to know of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """
    What the stores (:mod:`.group_leader`, :mod:`.etcd_leader`) know of this master.

    :ivar unfit: returns why it may not lead; empty when it may.
    :ivar announce: fires events.
    """

    name: str
    unfit: Callable[[], str]
    announce: Callable[[str, dict[str, Any]], None]

    def tell(self, before: str, now: str) -> None:
        """Log and announce that another master leads now; an empty name: none does."""
        log.info("ha leader: %s, before: %s", now or "nobody", before or "nobody")
        self.announce("leader", {"leader": now or None, "before": before or None})
