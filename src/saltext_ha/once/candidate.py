"""This master as one that may lead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """
    What those who find the leader are told of it.

    :ivar unfit: says why it may not lead; else empty.
    :ivar announce: fires events.
    """

    name: str
    unfit: Callable[[], str]
    announce: Callable[[str, dict[str, Any]], None]

    def tell(self, before: str, now: str) -> None:
        """Another master leads, as far as is known here; empty: nobody."""
        log.info("ha leader: %s, before: %s", now or "nobody", before or "nobody")
        self.announce("leader", {"leader": now or None, "before": before or None})
