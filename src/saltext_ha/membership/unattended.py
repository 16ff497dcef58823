"""
Joins by the group's secret, without an operator: the side of the joining master.

:mod:`.group_secret` explains the proofs. This module asks one member, and lets a master that was
never started find its group, or found it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.errors import (
    DiskHangs,
    HaError,
    NobodyListens,
    PeerError,
    PeerUnreachable,
    TokenError,
    TrustError,
)
from saltext_ha.membership.group_secret import NONCE, STANDING, request_mac
from saltext_ha.membership.join import (
    TIMEOUT,
    Applicant,
    Joined,
    Place,
    Tell,
    accept,
    let_in,
    proven,
    silently,
)
from saltext_ha.membership.reaching import answering, unreached, wish
from saltext_ha.membership.token import mac_key, reply_mac
from saltext_ha.transport.peer import make_peer, read_peer
from saltext_ha.transport.pins import Pins
from saltext_ha.transport.stranger_calls import call_stranger, shown

FIRST_RETRY, LAST_RETRY = 0.5, 15.0
# A network that is just coming up looks as if there were no group, so the first master founds one
# only after a long silence. A refused connection says at once that no engine listens.
SILENCE = 10.0


@dataclass(frozen=True)
class JoinOutcome:
    """``joined`` by way of ``url``, or None: it founds the group; why other addresses failed."""

    joined: Joined | None
    url: str
    reasons: dict[str, str]


@dataclass
class Address:
    """
    One address of ``ha: masters``, and how the last try to join there ended.

    :ivar server: the certificate that is shown there, by its fingerprint.
    :ivar reason: why that try failed; empty: it did not.
    :ivar silent: whether it failed because certainly nobody listens there.
    :ivar answered: whether a master there ever answered, and refused.
    :ivar pause: seconds until the next try. :ivar due: when that is, by ``time.monotonic``.
    """

    url: str
    server: str = ""
    reason: str = ""
    silent: bool = False
    answered: bool = False
    pause: float = 0.0
    due: float = 0.0

    def failed(self, reason: str, pause: float) -> None:
        self.reason, self.pause, self.due = reason, pause, time.monotonic() + pause


async def apply(
    own: Applicant,
    url: str,
    server: str,
    place: Place | None = None,
    timeout: float = TIMEOUT,
) -> Joined:
    """
    Join through the member at *url*, which shows the certificate *server* (a fingerprint).

    :param place: called with the keys that are handed over (see :func:`.join.accept`); None: do not
        ask for the master key.
    :raises PeerError: the member does not answer, or refuses. :raises TokenError: it does not know
        the secret. :raises TrustError: as :func:`.join.accept`; or it is not reached where it says.
    :raises DiskHangs: the file system hangs; the members may still be pinned when it responds.
    """
    key, nonce, wants_key = mac_key(own.secret), secrets.token_bytes(NONCE), place is not None
    ourselves = make_peer(own.name, own.url, own.identity.certificate)
    proof = request_mac(key, server, ourselves, own.group, nonce, wants_key)
    request = {
        "invite": STANDING,
        "name": ourselves.name,
        "url": ourselves.url,
        "group": own.group,
        "certificate": ourselves.certificate,
        "nonce": nonce,
        "wants_key": wants_key,
        "mac": proof,
        **wish(own.reach),
    }
    async with answering(own.reach, own.identity):
        answer = await call_stranger(url, server, "join", request, timeout)
    reply = proven(answer, lambda text: reply_mac(key, server, ourselves.fingerprint, text))
    if reply.get("nonce") != nonce:
        raise TokenError("the answer to the join request is an old one; nothing was changed here")
    if own.reach and own.reach.required:
        with let_in():
            await _check_inviter(own.trust, reply, url, server)
    return await own.trust.disk(accept, own, reply, place)


async def _check_inviter(pins: Pins, reply: Mapping[str, Any], url: str, server: str) -> None:
    """
    Try to reach the inviter where this master will call it from now on: not at *url*, where it was
    found, but at the URL in ``ha: peers``, or else at the URL that it tells.

    :raises TrustError: the inviter is not reached there.
    """
    entries = reply.get("members")
    first = entries[0] if isinstance(entries, list) and entries else None
    if not isinstance(first, Mapping):
        return
    there = read_peer(first)
    called = pins.url_of(there)
    why = "" if called == url else await unreached(called, server)
    if why and called != there.url:
        raise TrustError(
            f"ha: peers has {there.name} at {called}, and it cannot be reached there: {why}; write "
            f"there where it is, or leave it out: it says that it is at {there.url}"
        )
    if why:
        raise TrustError(
            f"{there.name} says that it is at {there.url}, and cannot be reached there: {why}; set "
            "ha: address on it to where the others reach it"
        )


async def find_group(
    own: Applicant,
    masters: Sequence[str],
    wait: float,
    place: Place,
    tell: Tell = silently,
) -> JoinOutcome:
    """
    Join the group whose members may be at *masters*, through the first that admits this one.

    If none answers at all, the first master in the list founds the group. All masters have the same
    list, so it becomes one group.

    :param wait: seconds to keep trying.
    :param tell: called once with each reason to go on trying.
    :raises HaError: none admitted this master; says why.
    """
    began = time.monotonic()
    others = [Address(url) for url in masters if url != own.url]
    told: set[str] = set()
    while True:
        for there in list(others):
            if time.monotonic() < there.due:
                continue
            joined = await _try(own, there, place)
            if joined or there.server in own.identity.fingerprints:
                others.remove(there)  # in the latter case its own engine runs, under another name
            if joined:
                return JoinOutcome(joined, there.url, _reasons(others))
        waited = time.monotonic() - began
        answered = any(there.answered for there in others)
        if _founds(own, masters, others, patient=waited < min(wait, SILENCE)):
            return JoinOutcome(None, "", _reasons(others))
        reasons = _reasons(others).values()
        if waited >= wait:
            raise HaError(_nobody(own, masters, wait, reasons, answered))
        for reason in [each for each in reasons if each not in told]:
            told.add(reason)
            tell(f"{reason}; trying for {wait - waited:.0f} s more")
        await asyncio.sleep(0.2)


async def _try(own: Applicant, there: Address, place: Place) -> Joined | None:
    """Join at one address. None: not joined, and *there* says why, unless this master is there."""
    listens = False
    try:
        there.server = await shown(there.url)
        listens = True
        if there.server in own.identity.fingerprints:
            return None
        return await apply(own, there.url, there.server, place)
    except PeerUnreachable as exc:
        # One that ends while it is asked may be back in a moment.
        there.silent = isinstance(exc, NobodyListens) and not listens
        there.failed(str(exc), FIRST_RETRY)
    except (PeerError, TokenError, TrustError, DiskHangs) as exc:
        there.answered = True
        told_by = "" if isinstance(exc, (PeerError, DiskHangs)) else f"{there.url}: "
        there.failed(f"{told_by}{exc}", min(2 * there.pause or FIRST_RETRY, LAST_RETRY))
    return None


def _founds(
    own: Applicant, masters: Sequence[str], others: Sequence[Address], *, patient: bool
) -> bool:
    """
    Whether this master founds the group: it is the first in the list, and there is no group.

    :param patient: whether to wait longer for masters that may only be slow to answer.
    """
    first = bool(masters) and masters[0] not in {there.url for there in others}
    silent = all(there.silent for there in others) or not patient
    no_group = silent and not any(there.answered for there in others)
    # A master that has peers belongs to an existing group, even if none answers now.
    return first and no_group and not own.trust.peers()


def _reasons(failed: Iterable[Address]) -> dict[str, str]:
    return {there.url: there.reason for there in failed if there.reason}


def _nobody(
    own: Applicant,
    masters: Sequence[str],
    wait: float,
    reasons: Iterable[str],
    answered: bool,
) -> str:
    said = "; ".join(reasons) or "there is no other in it"
    text = f"none of ha: masters let this master in within {wait:g} s: {said}"
    if own.url not in masters:
        text += (
            f". Its own address, {own.url}, is not in the list; write it there just as it is here "
            "(ha: address, ha: port): the first of the list founds the group"
        )
    elif masters[0] != own.url and not answered:
        text += f". The first of the list, {masters[0]}, founds the group: is it started?"
    return text
