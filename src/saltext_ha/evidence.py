"""
Where do the things that show a minion's master disagree?

A minion authenticates at one port of a master and listens to another: either connection may lead
elsewhere, or nowhere, and a connection may outlive the master's wits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.binding import Links, Master, Running


def remark(
    current: Master,
    known: Iterable[Master],
    links: Links,
    running: Running,
    ping: Mapping[str, Any] | None = None,
) -> str | None:
    """
    What is wrong with *current* in spite of some of the evidence, in words; None: nothing.

    :param known: the other masters, judged as well.
    :param ping: what :func:`~saltext_ha.binding.ping` returned, where it was asked for.
    """
    name = current.configured or current.host
    answers = ping.get("answers") if ping else None
    if current.connected and answers is False:
        return f"connected to {name}, but it does not answer"
    if current.connected:
        return _shared(current, running)
    if current.connected is None or links.seen is None:
        return None
    others = [str(each.configured) for each in known if each.connected and each != current]
    asked = any((ip, current.port) in links.seen for ip in current.ips)
    if others and (asked or answers):
        return f"authenticated to {name}, subscribed to {', '.join(others)}: jobs of it are lost"
    if asked or answers:
        return f"{name} answers, but the minion is not subscribed to it: jobs of it are lost"
    return None


def _shared(current: Master, running: Running) -> str | None:
    """The publisher's port belongs to two masters on one address: a port map that lacks a line."""
    same = [
        port
        for (ip, port), publish in running.told.items()
        if ip in current.ips and publish == current.publish_port and port != current.port
    ]
    if not same or running.publish_port:
        return None
    ports = ", ".join(str(port) for port in sorted(same))
    return (
        f"the masters at request ports {current.port} and {ports} of {current.host} both say that "
        f"they publish at {current.publish_port}: jobs of one of them are lost"
    )
