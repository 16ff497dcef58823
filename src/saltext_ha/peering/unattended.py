"""
Joining by the group's secret, without an operator: the side of the master that comes.

What the proofs are worth is said in :mod:`.standing`. Here: how one member is asked, and how a
master that has not been started yet finds its group, or founds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from saltext_ha.errors import HaError, PeerError, PeerUnreachable, TokenError, TrustError
from saltext_ha.peering import tls
from saltext_ha.peering.client import Exchange
from saltext_ha.peering.identity import Identity
from saltext_ha.peering.join import TIMEOUT, Joined, Place, accept, proven
from saltext_ha.peering.standing import NONCE, STANDING, request_mac
from saltext_ha.peering.token import mac_key, reply_mac
from saltext_ha.peering.trust import Trust, make_peer

LOOK = 5.0
FIRST_RETRY, LAST_RETRY = 0.5, 15.0
# A network that is just coming up looks like a group that is not there: before the first master
# founds a group, silence has to last. A refused connection says at once that nobody is there.
SILENCE = 10.0


class _NobodyListens(PeerUnreachable):
    """The address answers, and nobody listens there."""


@dataclass(frozen=True)
class Applicant:
    """The master that wants to join: who it is, what it calls itself, what it knows."""

    identity: Identity
    trust: Trust
    name: str
    url: str
    group: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Found:
    """
    How it ended: *joined* through the member at *url*, or None: this master founds its group.
    ``reasons``: why the other addresses did not help.
    """

    joined: Joined | None
    url: str
    reasons: dict[str, str]


async def shown(url: str, timeout: float = LOOK) -> str:
    """
    The fingerprint of the certificate that the server at *url* shows. Nothing is sent to it.

    :raises PeerUnreachable: nobody there does TLS 1.3.
    """
    parts = urlsplit(url)
    connecting = asyncio.open_connection(parts.hostname, parts.port, ssl=tls.joining_context())
    try:
        _, writer = await asyncio.wait_for(connecting, timeout)
    except asyncio.TimeoutError:
        raise PeerUnreachable(f"{parts.netloc} timed out") from None
    except ConnectionRefusedError:
        raise _NobodyListens(f"{parts.netloc} refused the connection") from None
    except OSError as exc:
        raise PeerUnreachable(f"{parts.netloc} cannot be reached: {exc.strerror or exc}") from None
    try:
        return tls.fingerprint(writer.get_extra_info("ssl_object").getpeercert(True) or b"")
    except ValueError:
        raise PeerUnreachable(f"{parts.netloc} hung up") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1.0)


async def apply(
    own: Applicant,
    url: str,
    server: str,
    place: Place | None = None,
    timeout: float = TIMEOUT,
) -> Joined:
    """
    Join through the member at *url*, which shows the certificate *server* (a fingerprint).

    :param place: takes what is handed over (see :func:`.join.accept`); with None, the master key
        is not asked for.
    :raises PeerError: it does not answer, or says no. :raises TokenError: it does not know the
        secret. :raises TrustError: a member cannot be pinned; nobody was.
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
    }
    exchange = Exchange(url, tls.joining_context(), bytes.fromhex(server.replace(":", "")))
    try:
        answer = await asyncio.wait_for(exchange.call("join", request), timeout)
    except asyncio.TimeoutError:
        raise PeerUnreachable(f"{urlsplit(url).netloc} timed out") from None
    finally:
        await exchange.close()
    reply = proven(answer, lambda text: reply_mac(key, server, ourselves.fingerprint, text))
    if reply.get("nonce") != nonce:
        raise TokenError("the answer to the join request is an old one; nothing was changed here")
    return accept(own.identity, own.trust, own.group, reply, place)


async def find_group(
    own: Applicant,
    masters: Sequence[str],
    wait: float,
    place: Place,
) -> Found:
    """
    Join the group whose members may be at *masters*: through the first that lets this one in.

    When nobody answers at all, the master that is first in the list founds the group; that it is
    the same list on all of them makes it one group.

    :param wait: seconds to go on trying.
    :raises HaError: nobody let it in, for which reasons.
    """
    began = time.monotonic()
    itself = {own.url}
    reasons: dict[str, str] = {}
    delays: dict[str, float] = {}
    due: dict[str, float] = {}
    definite: set[str] = set()
    answered: set[str] = set()
    while True:
        for url in masters:
            if url in itself or time.monotonic() < due.get(url, 0.0):
                continue
            try:
                server = await shown(url)
                if server in own.identity.fingerprints:
                    itself.add(url)  # its own engine runs, and is listed under another name
                    continue
                joined = await apply(own, url, server, place)
                reasons.pop(url, None)
                return Found(joined, url, reasons)
            except PeerUnreachable as exc:
                reasons[url] = str(exc)
                (definite.add if isinstance(exc, _NobodyListens) else definite.discard)(url)
                delay = FIRST_RETRY
            except (PeerError, TokenError, TrustError) as exc:
                answered.add(url)
                reasons[url] = str(exc) if isinstance(exc, PeerError) else f"{url}: {exc}"
                delay = min(2 * delays.get(url, FIRST_RETRY / 2), LAST_RETRY)
            delays[url] = delay
            due[url] = time.monotonic() + delay
        others = set(masters) - itself
        waited = time.monotonic() - began
        first = bool(masters) and masters[0] in itself
        silent = not answered and (others <= definite or waited >= min(wait, SILENCE))
        # A master that has peers belongs to a group that exists, whoever answers just now.
        if first and silent and not own.trust.peers():
            return Found(None, "", reasons)
        if waited >= wait:
            raise HaError(_nobody(own, masters, wait, reasons))
        await asyncio.sleep(0.2)


def _nobody(own: Applicant, masters: Sequence[str], wait: float, reasons: dict[str, str]) -> str:
    said = "; ".join(reasons.values()) or "there is no other in it"
    text = f"none of ha: masters let this master in within {wait:g} s: {said}"
    if own.url not in masters:
        text += (
            f". Its own address, {own.url}, is not in the list; write it there just as it is here "
            "(ha: address, ha: port): the first of the list founds the group"
        )
    elif masters[0] != own.url:
        text += f". The first of the list, {masters[0]}, founds the group: is it started?"
    return text
