"""Joining a group with a token. Works whether or not this master's engine is running."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.errors import PeerUnreachable, TokenError, TrustError
from saltext_ha.faults import point
from saltext_ha.peering import tls, wire
from saltext_ha.peering.client import Exchange
from saltext_ha.peering.identity import Identity
from saltext_ha.peering.token import Token, decode, mac_key, reply_mac, request_mac
from saltext_ha.peering.trust import Peer, Trust, make_peer

TIMEOUT = 15.0
_RETRY = 1.0

Place = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Joined:
    """
    How it went: the group, its other members that are pinned now, who of them was not told yet
    (name → reason; they hear of it within a sync), and what the inviter handed over besides.
    """

    group: str
    members: tuple[str, ...]
    unreached: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict, repr=False)


async def join(
    identity: Identity,
    trust: Trust,
    token: str,
    name: str,
    url: str,
    group: str,
    timeout: float = TIMEOUT,
    wait: float = 0.0,
    place: Place | None = None,
) -> Joined:
    """
    Join the group that *token* invites to; all its members are pinned afterwards.

    The inviter's certificate is compared with the token before anything is sent. Repeating it
    with the same token is harmless as long as the token has not expired.

    :param name: of this master, and *url*, *group*: its own, as configured.
    :param timeout: seconds for one try.
    :param wait: seconds to go on trying while nobody answers.
    :param place: as for :func:`accept`.
    :raises TokenError: the token is damaged, or of another group, or the answer is not proven.
    :raises TrustError: a member cannot be pinned; nobody was.
    :raises PeerUnreachable: the inviter does not answer, or something else does.
    :raises PeerRefused: the inviter said no, and why.

    CLI Example:

    .. code-block:: bash

        salt-run ha.join ha1.…
    """
    ticket = decode(token)
    if ticket.group != group:
        raise TokenError(
            f"the token is of the group {ticket.group!r}, this master is configured for {group!r}; "
            f"set ha: group: {ticket.group}"
        )
    give_up = time.monotonic() + wait
    while True:
        try:
            reply = await _ask(identity, ticket, name, url, timeout)
            break
        except PeerUnreachable:
            if time.monotonic() >= give_up:
                raise
            await asyncio.sleep(_RETRY)
    return accept(identity, trust, group, reply, place)


def accept(
    identity: Identity,
    trust: Trust,
    group: str,
    reply: Mapping[str, Any],
    place: Place | None = None,
) -> Joined:
    """
    Do as a proven *reply* says: pin all members, or nobody.

    :param place: given what was handed over, before anybody is pinned: after a crash in between
        this master joins again, and does not start with a master key of its own.
    :raises TrustError: a member cannot be pinned.
    """
    members = _members(reply, identity)
    for member in members:
        trust.check(member)
    shared, unreached = reply.get("shared"), reply.get("unreached")
    shared = shared if isinstance(shared, dict) else {}
    if place is not None:
        place(shared)
    for member in members:
        point("join.pin")
        trust.pin(member)
    point("join.done")
    return Joined(
        group,
        tuple(member.name for member in members),
        unreached if isinstance(unreached, dict) else {},
        shared,
    )


def proven(answer: Mapping[str, Any], key: bytes, server: str, joiner: str) -> dict[str, Any]:
    """
    The reply in an *answer*, when who gave it knows *key* and has the certificate *server*.

    :raises TokenError: neither is shown; nothing of it may be used.
    """
    reply, mac = answer.get("reply"), answer.get("mac")
    if not isinstance(reply, bytes) or not isinstance(mac, bytes):
        raise TokenError("the answer to the join request is not one; nothing was changed here")
    if not hmac.compare_digest(mac, reply_mac(key, server, joiner, reply)):
        raise TokenError("the answer to the join request is not proven; nothing was changed here")
    try:
        return wire.unpack(reply)
    except ValueError as exc:
        raise TokenError(f"the answer to the join request is {exc}") from None


async def _ask(
    identity: Identity, ticket: Token, name: str, url: str, timeout: float
) -> dict[str, Any]:
    key = mac_key(ticket.secret)
    proof = request_mac(key, ticket.fingerprint, identity.fingerprint, name, url, ticket.group)
    request = {
        "invite": ticket.invite,
        "name": name,
        "url": url,
        "group": ticket.group,
        "certificate": identity.certificate,
        "mac": proof,
    }
    answer = await _first_answer(ticket, request, timeout)
    return proven(answer, key, ticket.fingerprint, identity.fingerprint)


async def _first_answer(
    ticket: Token, request: Mapping[str, Any], timeout: float
) -> dict[str, Any]:
    reasons = []
    for url in ticket.urls:
        expected = bytes.fromhex(ticket.fingerprint.replace(":", ""))
        exchange = Exchange(url, tls.joining_context(), expected)
        try:
            return await asyncio.wait_for(exchange.call("join", request), timeout)
        except asyncio.TimeoutError:
            reasons.append(f"{urlsplit(url).netloc} timed out")
        except PeerUnreachable as exc:
            reasons.append(str(exc))
        finally:
            await exchange.close()
    raise PeerUnreachable("; ".join(reasons))


def _members(reply: Mapping[str, Any], identity: Identity) -> list[Peer]:
    entries = reply.get("members")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise TrustError("the answer to the join request names no members")
    members = [
        make_peer(entry.get("name"), entry.get("url"), entry.get("certificate"))
        for entry in entries
    ]
    return [member for member in members if member.fingerprint != identity.fingerprint]
