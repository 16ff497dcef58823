"""Where the metrics about this master itself come from; those of the group come from its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from saltext_ha.common.counters import Counters
from saltext_ha.health.watcher import Watcher
from saltext_ha.minions.failovers import Failovers
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.transport.identity import Identity


class OwnSources(NamedTuple):
    """``refused``: reason → how many peers and strangers were turned away for it."""

    name: str
    group: str
    mode: WriteMode
    health: Watcher
    identity: Callable[[], Identity]
    counters: Counters
    failovers: Failovers
    refused: Callable[[], Mapping[str, int]]
