"""
In which order does Salt try the masters?

Not in that of the configuration: ``MinionBase.eval_master`` goes by a list of its own, which it
keeps in ``opts["local_masters"]``. When a master fails it is put at the end of that list, and the
first one that lets the minion in is taken; those that were passed by stay in front, and are tried
first the next time (salt/minion.py: 3006.28 and 3007.15 lines 901 to 908 and 950, 3008.3 lines 959
to 966 and 1008). With the list as it is configured Salt begins again at a failback (line 894; 952),
and where it does not find the failed master in its list: it looks for the bare host, so it never
finds an entry with a port (line 910; 968).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Order = tuple[str, ...]


def after(order: Order, configured: Order, failed: str | None) -> Order:
    """
    The list that Salt goes through, and keeps, when the minion's master has failed.

    :param order: the list that it has kept.
    :param configured: the list that it starts with.
    :param failed: what Salt calls the failed master: its entry, without a port.
    """
    if failed is None or failed not in order:
        return configured
    return (*(each for each in order if each != failed), failed)


def kept(found: Iterable[Any] | None, configured: Order) -> Order:
    """
    The list that Salt has kept, as it was *found* (``local_masters`` in the minion's options);
    *configured* where that is none, or one of other masters.
    """
    order = tuple(map(str, found or ()))
    return order if set(order) == set(configured) else configured
