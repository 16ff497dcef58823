"""
Admits new masters by a token, or by the group's secret.

A caller has no pinned certificate yet, so nothing that it sends is trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from saltext_ha.common.addresses import network_of
from saltext_ha.common.disk_work import step
from saltext_ha.common.errors import DiskHangs, HaError, TokenError, TrustError, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.common.file_looks import HANGS_AFTER
from saltext_ha.membership.group_secret import STANDING, GroupSecret
from saltext_ha.membership.invites import UNKNOWN, Invite, Invites
from saltext_ha.membership.membership import NOT_PINNED, Membership
from saltext_ha.membership.reaching import REQUIRED, TOLD, unreached
from saltext_ha.membership.token import reply_mac, request_mac
from saltext_ha.transport import wire
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.listener import OpenHandler
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.succession import MAX_FORMER
from saltext_ha.transport.tls import read_certificate
from saltext_ha.transport.trust import Trust

log = logging.getLogger(__name__)

T = TypeVar("T")

HANGS = "the file system of that master does not respond; try again when it does"
MAX_WRONG_PROOFS = 5
# From one address, from one network of IPv6 and from all together: a flood from one host must not
# keep others out.
MAX_FAILED_JOINS = 20
MAX_FAILED_NEAR = 100
MAX_FAILED_ANYWHERE = 200
FAILED_JOINS_PERIOD = 60.0
PURGE = 60.0
TELLING = 5.0
"""
Seconds for telling each member of a master that joins, whatever ``peer_timeout`` is: that master
waits 15 s for the answer.
"""


class Admission:
    """
    Answers masters that are no members yet.

    :param share: invitation → what to hand to a joining master besides the members (for instance
        the group's master key, if the invitation has ``share_master_key``).
    :param preview: invitation and position of the next part → what to tell a master that only asks
        what joining would do. This function chooses the bytes of the position; at first none.
    :param secret: admits masters that know the group's secret; None: only a token admits.
    :param seen: name of a pinned master → seconds since it was last seen to run; None: it does not
        run, as far as known here.
    """

    def __init__(
        self,
        membership: Membership,
        trust: Trust,
        invites: Invites,
        share: Callable[[Invite], Mapping[str, Any]],
        preview: Callable[[Invite, bytes], Awaitable[Mapping[str, Any]]] | None = None,
        secret: GroupSecret | None = None,
        seen: Callable[[str], float | None] = lambda name: None,
    ) -> None:
        self._membership, self._trust, self._invites = membership, trust, invites
        self._share, self._preview, self._secret, self._seen = share, preview, secret, seen
        self._wrong_proofs: dict[str, int] = {}
        self._failed: deque[tuple[float, str]] = deque(maxlen=MAX_FAILED_ANYWHERE)

    async def tidy(self) -> None:
        """As long as the engine runs, remove expired invitations and their token files."""
        while True:
            with contextlib.suppress(OSError):  # try again later
                await asyncio.to_thread(self._invites.purge)  # a file system may hang
            await asyncio.sleep(PURGE)

    def handlers(self) -> dict[str, OpenHandler]:
        """The listener's handlers for callers without a certificate."""
        return {
            "join": self.join,
            "plan": self.plan,
            "certificates": self.certificates,
            "renewed": self.renewed,
        }

    async def certificates(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """All certificates of this master, which are no secret; each proves the next."""
        return {"certificates": list(self._membership.identity.chain)}

    async def renewed(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Take over the certificates of a master. They prove each other, so any caller may bring them;
        those that do not follow from a pinned one are refused.
        """
        name, shown = payload.get("name"), payload.get("certificates")
        try:
            return {"news": await self._on_disk(self._take_over, str(name), shown)}
        except TrustError as exc:
            log.debug("renewal refused name=%.80r reason=%s", name, exc)
            # Do not tell strangers which masters are pinned.
            raise TrustError(NOT_PINNED) from None

    async def join(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Admit a master with a token or the secret, and tell the members.

        :param host: the address from which the request came.
        :raises TokenError: the token or the proof is not valid.
        :raises TrustError: the joiner cannot be taken as it is, or not now; nothing was changed.
        :raises HaError: the file system hangs; the joiner may ask again with the same token.
        """
        shown = self._membership.identity
        joiner, invite = await self._on_disk(self._entitled, payload, host)
        await self._on_disk(self._check_joiner, joiner)
        unreachable = await self._try(joiner, payload)
        shared = await self._on_disk(self._let_in, joiner, invite, shown)
        point("invite.tell")
        # The joiner takes no calls yet; our answer tells it the members.
        untold = await self._membership.exchange(skip=joiner.name, within=TELLING)
        point("invite.reply")
        answer = {
            "group": self._membership.group,
            "members": self._membership.introduced(joiner),
            "unreached": untold,
            "unreachable": unreachable,
            "shared": shared,
            "nonce": payload.get("nonce") if invite.id == STANDING else b"",
        }
        return self._proved(answer, joiner, invite)

    async def plan(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """Tell a master with a token what joining would do. :raises TokenError: it is not valid."""
        after = payload.get("after")
        if not isinstance(after, bytes):
            raise TokenError("the request does not say where it has got to")
        joiner, invite = await self._on_disk(self._entitled, payload, host, after)
        refused = unreachable = ""
        try:
            await self._on_disk(self._check_joiner, joiner)
            await self._on_disk(self._share, invite)  # are the keys there that it promises?
            if not after:  # the first of many calls
                unreachable = await self._try(joiner, payload)
        except TrustError as exc:
            refused = str(exc)
        answer = {
            "name": self._membership.name,
            "refused": refused,
            "unreachable": unreachable,
            "members": self._membership.introduced(joiner),
            "preview": dict(await self._preview(invite, after)) if self._preview else {},
        }
        return self._proved(answer, joiner, invite, after)

    def _proved(
        self, answer: dict[str, Any], joiner: Peer, invite: Invite, after: bytes | None = None
    ) -> dict[str, Any]:
        """*answer* as it is sent; *after* is given if the joiner only asked for a plan."""
        reply, own = wire.pack(answer), self._membership.identity.fingerprint
        mac = reply_mac(invite.key, own, joiner.fingerprint, reply, after)
        return {"reply": reply, "mac": mac}

    async def _try(self, joiner: Peer, payload: Mapping[str, Any]) -> str:
        """Why *joiner* is not reached, if so. :raises TrustError: it joins only if it is."""
        wish, url = payload.get("reach"), self._trust.url_of(joiner)
        why = await unreached(url, joiner.fingerprint) if wish in (REQUIRED, TOLD) else ""
        if why and wish == REQUIRED:
            raise TrustError(
                f"{self._membership.name} cannot reach you at {url}: {why}; set ha: address (and "
                "ha: port) to where you are reached, or open that port; probe=False joins anyway"
            )
        return why

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        """
        The result of *work*, which looks at files or changes them: in a thread, as they may hang.

        The event loop waits for as long as it does for a look. Otherwise a crowd that comes
        meanwhile would cut off the answer of each other's (see ``max_anonymous``).

        :raises HaError: they do, or cannot be read or written; strangers are told no more.
        """
        try:
            return await self._trust.disk(work, *arguments, patience=HANGS_AFTER)
        except DiskHangs:
            raise HaError(HANGS) from None
        except OSError as exc:
            raise HaError(f"the state folder of that master fails: {reason_of(exc)}") from None

    # -- in that thread

    def _take_over(self, name: str, shown: object) -> bool:
        if not isinstance(shown, list) or len(shown) > MAX_FORMER + 1:
            raise TrustError("no list of certificates, or too many")
        return self._trust.renew(name, [read_certificate(pem)[0] for pem in shown])

    def _let_in(self, joiner: Peer, invite: Invite, shown: Identity) -> dict[str, Any]:
        """Pin *joiner*, which has asked the master with *shown*; returns what it is handed."""
        if self._membership.identity is not shown:
            # It left its group meanwhile, or renewed: the joiner would not believe the answer.
            raise TrustError("this master took a new certificate just now; join again")
        shared = dict(self._share(invite))
        point("invite.consume")
        # Use up the token first: a crash in between costs a token, but never admits two masters.
        if invite.id != STANDING and not self._invites.consume(invite.id, joiner.fingerprint):
            raise TokenError(UNKNOWN)
        step()  # a master that was refused meanwhile is not let in
        point("invite.pin")
        self._trust.pin(replace(joiner, introducer=""))
        log.info(
            "joined name=%s url=%s fingerprint=%s", joiner.name, joiner.url, joiner.fingerprint
        )
        return shared

    def _entitled(
        self, payload: Mapping[str, Any], host: str, after: bytes | None = None
    ) -> tuple[Peer, Invite]:
        """The caller and its invitation; *after* is given if it only asks for a plan."""
        self._throttle(host)
        joiner = make_peer(payload.get("name"), payload.get("url"), payload.get("certificate"))
        group = payload.get("group")
        if not isinstance(group, str):
            raise TokenError("the join request names no group")
        try:
            if payload.get("invite") == STANDING and after is None:
                invite = self._admitted(payload, joiner)
            else:
                invite = self._proven(payload, joiner, group, after)
        except TokenError:
            self._failed.append((time.monotonic(), host))
            raise
        if group != self._membership.group or invite.group != self._membership.group:
            raise TokenError(
                f"this master is of the group {self._membership.group!r}, not {group!r:.80}"
            )
        return joiner, invite

    def _check_joiner(self, joiner: Peer) -> None:
        if joiner.name == self._membership.name:
            raise TrustError(f"{joiner.name}: is the inviting master's own name; set ha: name")
        there = self._trust.peers().get(joiner.name)
        ago = self._seen(joiner.name)
        if there and ago is not None and not there.fingerprints & joiner.fingerprints:
            raise TrustError(
                f"{joiner.name}: is the name of a master that runs at {there.url}, seen "
                f"{ago:.0f} s ago; choose another: ha: name (without it, the master's id)"
            )
        self._trust.check(joiner)

    def _admitted(self, payload: Mapping[str, Any], joiner: Peer) -> Invite:
        if self._secret is None:
            raise TrustError(
                "no secret is configured there (ha: secret_file): it takes a token of  salt-ha "
                "invite"
            )
        return self._secret.admit(self._membership.identity.fingerprint, joiner, payload)

    def _proven(
        self, payload: Mapping[str, Any], joiner: Peer, group: str, after: bytes | None
    ) -> Invite:
        invite = self._invites.find(payload.get("invite"), joiner.fingerprint)
        mac = payload.get("mac")
        asked = (self._membership.identity.fingerprint, joiner.fingerprint, joiner.name, joiner.url)
        expected = request_mac(invite.key, *asked, group, after)
        if not isinstance(mac, bytes) or not hmac.compare_digest(mac, expected):
            wrong = self._wrong_proofs[invite.id] = self._wrong_proofs.get(invite.id, 0) + 1
            if wrong >= MAX_WRONG_PROOFS:
                self._invites.discard(invite.id)
                del self._wrong_proofs[invite.id]
                log.warning("invitation withdrawn after %d wrong proofs", wrong)
            raise TokenError("the proof that came with the token is wrong")
        self._wrong_proofs.pop(invite.id, None)
        if invite.expires < time.time():
            self._invites.discard(invite.id)
            raise TokenError("this token has expired; make a new one with salt-ha invite")
        return invite

    def _throttle(self, host: str) -> None:
        while self._failed and self._failed[0][0] + FAILED_JOINS_PERIOD <= time.monotonic():
            self._failed.popleft()
        network = network_of(host)
        for most, failed in (
            (MAX_FAILED_JOINS, [when for when, whose in self._failed if whose == host]),
            (
                MAX_FAILED_NEAR,
                [when for when, whose in self._failed if network_of(whose) == network],
            ),
            (MAX_FAILED_ANYWHERE, [when for when, _ in self._failed]),
        ):
            if len(failed) >= most:
                wait = failed[-most] + FAILED_JOINS_PERIOD - time.monotonic()
                raise TokenError(f"too many failed joins here; try again in {wait:.0f} s")
