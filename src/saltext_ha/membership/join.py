"""Joins a group with a token, whether or not this master's engine runs."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import (
    PeerMistrust,
    PeerUnreachable,
    TokenError,
    TrustError,
    reason_of,
)
from saltext_ha.common.fail_points import point
from saltext_ha.membership.reaching import Reach, answering, wish
from saltext_ha.membership.token import (
    JoinToken,
    decode,
    mac_key,
    reply_mac,
    request_mac,
)
from saltext_ha.transport import wire
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer, read_peer
from saltext_ha.transport.pins import Pins
from saltext_ha.transport.stranger_calls import call_stranger, shown
from saltext_ha.transport.trust import Trust

TIMEOUT = 15.0
_RETRY = 1.0
ITSELF = (
    "the token says that the inviting master is at {}, and that leads to this master itself: set "
    "ha: address there to where this one reaches it, restart salt-master there, and make another "
    "token"
)

Place = Callable[[Mapping[str, Any]], None]
Tell = Callable[[str], None]
"""Called with messages about the progress."""


def silently(words: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Applicant:
    """
    The master that wants to join, with its name, URL and group as configured.

    :ivar secret: the group's; empty: it has a token.
    :ivar reach: where the inviter tries this master before it admits it; None: it does not.
    """

    identity: Identity
    trust: Trust
    name: str
    url: str
    group: str
    secret: bytes = field(default=b"", repr=False)
    reach: Reach | None = None


@dataclass(frozen=True)
class Joined:
    """
    The result: the group; its other members, which are pinned now; those that were not told of this
    master yet (name → reason; they hear of it within a minute); and why the inviter does not reach
    this master (empty: it does, or did not try).
    """

    group: str
    members: tuple[str, ...]
    unreached: Mapping[str, str] = field(default_factory=dict)
    unreachable: str = ""


@dataclass(frozen=True)
class Preview:
    """
    One part of what joining would do: the inviter's name, the members, why this master would be
    refused (empty if it would not), what else the inviter tells, and why it does not reach this
    master (as in :class:`Joined`).
    """

    inviter: str
    members: tuple[Peer, ...]
    refused: str
    told: Mapping[str, Any]
    unreachable: str = ""


async def join(
    own: Applicant,
    token: str,
    timeout: float = TIMEOUT,
    wait: float = 0.0,
    place: Place | None = None,
    tell: Tell = silently,
    merge: bool = False,
) -> Joined:
    """
    Join the group of *token*, and pin all its members.

    The inviter's certificate is compared with the token before anything is sent. It is harmless to
    repeat this with the same token, as long as the token has not expired.

    :param timeout: seconds for one try.
    :param wait: seconds to keep trying while there is no answer.
    :param place: as for :func:`accept`.
    :param tell: called once if there is no answer yet.
    :param merge: join also if that makes one group of two.
    :raises TokenError: the token is damaged, or of another group, or the answer is not proven.
    :raises TrustError: as for :func:`accept`; or this master is in another group.
    :raises PeerUnreachable: the inviter does not answer, or something else does.
    :raises PeerRefused: the inviter refuses, and says why.
    """
    ticket = decode(token)
    if ticket.group != own.group:
        raise TokenError(
            f"the token is of the group {ticket.group!r}, this master is configured for "
            f"{own.group!r}; set ha: group: {ticket.group}"
        )
    give_up = time.monotonic() + wait
    while True:
        try:
            if own.trust.pinned() and not merge:
                first = await preview(own.identity, token, own.name, own.url)
                if why := other_group(own.trust, first.members):
                    raise TrustError(why)
            reply = await _ask(own.identity, ticket, own.name, own.url, timeout, own.reach)
            break
        except PeerUnreachable as exc:
            if time.monotonic() >= give_up:
                raise
            tell(f"{exc}; trying for {give_up - time.monotonic():.0f} s more")
            tell = silently
            await asyncio.sleep(_RETRY)
    return accept(own, reply, place)


def other_group(pins: Pins, members: Sequence[Peer]) -> str:
    """
    Why this master must not join *members*: it has peers, and these are several others. Empty if it
    may: one alone comes into its group. A peer that has another certificate now counts as the same.
    """
    peers = pins.pinned()
    known = {fingerprint for peer in peers.values() for fingerprint in peer.fingerprints}
    if not peers or len(members) < 2:
        return ""
    if any(member.name in peers or member.fingerprints & known for member in members):
        return ""
    return (
        f"this master is in a group with {', '.join(sorted(peers))}, and the token is of another "
        "one: salt-run ha.leave first takes it out of its group; force=True makes one group of both"
    )


@contextlib.contextmanager
def let_in() -> Iterator[None]:
    """
    For what this master still has to do after the group let it in: a TrustError or OSError within
    becomes a TrustError that also says what the others list.
    """
    try:
        yield
    except (OSError, TrustError) as exc:
        raise TrustError(
            f"{reason_of(exc)}. No member was pinned here, but the other masters list this one "
            "already: correct that and join again, or  salt-run ha.remove_peer  on one of them"
        ) from None


@let_in()
def accept(own: Applicant, reply: Mapping[str, Any], place: Place | None = None) -> Joined:
    """
    Do as a proven *reply* says: pin all members, or none.

    :param place: called with the keys that were handed over, before any member is pinned. So after
        a crash in between this master joins again, and does not start with its own master key.
    :raises TrustError: a member cannot be pinned; none was, see :func:`let_in`.
    """
    members = _members(reply, own.identity)
    own.trust.check(*members)
    shared, unreached = reply.get("shared"), reply.get("unreached")
    if place is not None:
        place(shared if isinstance(shared, dict) else {})
    inviter = members[0].name if members else ""
    introduced = [
        replace(member, introducer="" if member.name == inviter else inviter) for member in members
    ]
    _pin_all(own.trust, introduced)
    point("join.done")
    return Joined(
        own.group,
        tuple(member.name for member in members),
        unreached if isinstance(unreached, dict) else {},
        str(reply.get("unreachable", "")),
    )


def _pin_all(trust: Trust, members: list[Peer]) -> None:
    """Pin *members*; if one cannot be pinned, unpin those of which there was no file before."""
    there = {*trust.pinned(), *(Path(file).stem for file in trust.problems())}
    new = [member.name for member in members if member.name not in there]
    try:
        for member in members:
            point("join.pin")
            trust.pin(member)
    except (OSError, TrustError):
        for name in new:
            with contextlib.suppress(TrustError):
                trust.unpin(name)
        raise


def one_way(unreachable: str) -> list[str]:
    """The message for operators about :attr:`Joined.unreachable`, if there is one."""
    if not unreachable:
        return []
    return [
        f"the inviting master cannot reach this one: {unreachable}. Decisions made there come here "
        "only when this master asks for them, and ha.status there shows this master as unknown"
    ]


def proven(answer: Mapping[str, Any], expected: Callable[[bytes], bytes]) -> dict[str, Any]:
    """
    The reply in an *answer*. :raises TokenError: its proof is not *expected*; use nothing of it.
    """
    reply, mac = answer.get("reply"), answer.get("mac")
    if not isinstance(reply, bytes) or not isinstance(mac, bytes):
        raise TokenError("the answer to the join request is malformed; nothing was changed here")
    if not hmac.compare_digest(mac, expected(reply)):
        raise TokenError(
            "the proof in the answer to the join request is wrong; nothing was changed here"
        )
    try:
        return wire.unpack(reply)
    except ValueError as exc:
        raise TokenError(f"the answer to the join request is {exc}") from None


async def preview(
    identity: Identity,
    token: str,
    name: str,
    url: str,
    after: bytes = b"",
    reach: Reach | None = None,
) -> Preview:
    """
    Ask what :func:`join` would do; the token stays valid, and no master is pinned.

    :param identity: this master's identity, or a temporary one.
    :param after: which part of the inviter's answer to ask for; empty: the first.
    :raises HaError: as :func:`join`, except for reasons in :attr:`Preview.refused`.
    """
    reply = await _ask(identity, decode(token), name, url, TIMEOUT, reach, after)
    told = reply.get("preview")
    return Preview(
        str(reply.get("name")),
        tuple(_members(reply, identity)),
        str(reply.get("refused", "")),
        told if isinstance(told, dict) else {},
        str(reply.get("unreachable", "")),
    )


async def _ask(
    identity: Identity,
    ticket: JoinToken,
    name: str,
    url: str,
    timeout: float,
    reach: Reach | None,
    after: bytes | None = None,
) -> dict[str, Any]:
    """The inviter's proven reply to a join or, with *after*, to the question what it would do."""
    key = mac_key(ticket.secret)
    both = ticket.fingerprint, identity.fingerprint
    if ticket.fingerprint == identity.fingerprint:
        raise TokenError(
            "this master made that token itself: join on the other master with it; or, if its "
            f"machine was copied to here, remove {identity.key_file.parent} here first"
        )
    request = {
        "invite": ticket.invite,
        "name": name,
        "url": url,
        "group": ticket.group,
        "certificate": identity.certificate,
        "mac": request_mac(key, *both, name, url, ticket.group, after),
        **wish(reach),
        **({} if after is None else {"after": after}),
    }
    method = "join" if after is None else "plan"
    async with answering(reach, identity):
        answer = await _first_answer(identity, ticket, method, request, timeout)
    return proven(answer, lambda reply: reply_mac(key, *both, reply, after))


async def _first_answer(
    identity: Identity,
    ticket: JoinToken,
    method: str,
    request: Mapping[str, Any],
    timeout: float,
) -> dict[str, Any]:
    reasons = []
    for url in ticket.urls:
        try:
            return await call_stranger(url, ticket.fingerprint, method, request, timeout)
        except PeerUnreachable as exc:
            itself = isinstance(exc, PeerMistrust) and await _leads_to(url, identity)
            reasons.append(ITSELF.format(url) if itself else str(exc))
    raise PeerUnreachable("; ".join(reasons))


async def _leads_to(url: str, identity: Identity) -> bool:
    try:
        return await shown(url) in identity.fingerprints
    except PeerUnreachable:
        return False


def _members(reply: Mapping[str, Any], identity: Identity) -> list[Peer]:
    entries = reply.get("members")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise TrustError("the answer to the join request names no members")
    members = map(read_peer, entries)
    return [member for member in members if not member.fingerprints & identity.fingerprints]
