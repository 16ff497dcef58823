"""
Contradictions in the evidence about a minion's master.

A minion authenticates at one port of a master and listens to another. Either connection may lead to
another master, or nowhere, and may stay open after the master became unresponsive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.minion.binding import Running, SeenMaster
from saltext_ha.minion.tcp_links import TcpLinks


def remark(
    master: SeenMaster,
    known: Iterable[SeenMaster],
    links: TcpLinks,
    running: Running,
    ping: Mapping[str, Any] | None = None,
) -> str | None:
    """
    What is wrong with *master* though some of the evidence looks good, in words; None: nothing.

    Only a hot-hot minion should be subscribed to masters besides its current one.

    :param known: the other masters, also judged.
    :param ping: the result of :func:`~saltext_ha.minion.pings.ping`, if one was sent.
    """
    hot = running.type == "list"
    if not (master.current or hot):
        return None
    name = master.configured or master.host
    answers = ping.get("answers") if ping else None
    if master.connected and answers is False:
        return f"connected to {name}, but it does not answer"
    if master.connected:
        return _shared(master, running)
    if master.connected is None or links.seen is None:
        return None
    others = [str(each.configured) for each in known if each.connected and each != master]
    asked = master.is_asked(links)
    if not (asked or answers):
        return None
    lost = f"jobs of {name} are lost"
    if others and not hot:
        return f"authenticated to {name}, subscribed to {', '.join(others)}: {lost}"
    if asked:
        return f"authenticated to {name}, but not subscribed to it: {lost}"
    return f"{name} answers, but the minion is not subscribed to it: {lost}"


def _shared(master: SeenMaster, running: Running) -> str | None:
    """The remark if masters at one address publish at the same port: a port map lacks a line."""
    if running.publish_port:
        same = {port for host, port in running.places() if host == master.host}
        both = f"are both to publish at {running.publish_port}, this minion's publish_port"
    else:
        same = {
            port
            for (ip, port), publish in running.told.items()
            if ip in master.ips and publish == master.publish_port
        }
        both = f"both say that they publish at {master.publish_port}"
    same -= {master.port or 0}
    if not same:
        return None
    ports = ", ".join(str(port) for port in sorted(same))
    return (
        f"the masters at request ports {master.port} and {ports} of {master.host} {both}: "
        "jobs of one of them are lost"
    )
