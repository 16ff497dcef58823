"""
In which order does Salt try the masters?

Not in the order of the configuration: ``MinionBase.eval_master`` keeps its own list in
``opts["local_masters"]``. It puts a master that fails at the end of that list, and takes the first
one that accepts the minion. Masters that it skipped stay in front, and it tries them first the next
time (salt/minion.py: 3006.28 and 3007.15 lines 901 to 908 and 950, 3008.3 lines 959 to 966 and
1008). Salt starts again with the configured list at a failback (line 894; 952), and if the failed
master is not in its list: it looks for the bare host, so it never finds an entry with a port (line
910; 968).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Order = tuple[str, ...]


def after(order: Order, configured: Order, failed: str | None) -> Order:
    """
    Salt's new list after the minion's master has failed; Salt tries its masters in that order.

    :param order: its list so far. :param configured: the list that it starts with.
    :param failed: Salt's name of the failed master: its entry, without a port.
    """
    if failed is None or failed not in order:
        return configured
    return (*(each for each in order if each != failed), failed)


def kept(found: Iterable[Any] | None, configured: Order) -> Order:
    """Salt's own list (``local_masters``); *configured* if it has other masters, or none."""
    order = tuple(map(str, found or ()))
    return order if set(order) == set(configured) else configured
