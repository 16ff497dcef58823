"""
Who belongs to the group: letting new masters in, and telling each other about it.

All members are equal. Each offers the others what it has pinned and what was removed, at
intervals and whenever that changes; what a pinned peer vouches for is adopted. A master that was
down while another joined or left so hears of it later. Removals win.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.errors import InvalidRecord, PeerError, TokenError, TrustError
from saltext_ha.faults import point
from saltext_ha.peering import wire
from saltext_ha.peering.client import call_once
from saltext_ha.peering.identity import Identity
from saltext_ha.peering.invites import UNKNOWN, Invite, Invites
from saltext_ha.peering.listener import Handler, OpenHandler
from saltext_ha.peering.refusals import Allowance
from saltext_ha.peering.standing import STANDING, Standing
from saltext_ha.peering.tls import read_certificate
from saltext_ha.peering.token import plan_mac, plan_reply_mac, reply_mac, request_mac
from saltext_ha.peering.trust import Peer, Removed, Trust, make_peer

log = logging.getLogger(__name__)

MAX_MEMBERS = 128
MAX_REMOVED = 4096
# What a peer tells of strangers: half of what may be told, so that own removals always may.
MAX_HEARSAY = MAX_REMOVED // 2
MAX_WRONG_PROOFS = 5
# From one address, and from all together: who floods one does not keep others from joining.
MAX_FAILED_JOINS = 20
MAX_FAILED_ANYWHERE = 200
FAILED_JOINS_PERIOD = 60.0


@dataclass(frozen=True)
class Absorbed:
    """What was learnt from a peer: names adopted and removed, what could not be taken and why."""

    adopted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    removed_ourselves: bool = False


class Membership:
    """
    This master's part in the group.

    :param name: this master's, and *url*, *group*: as others are told.
    :param share: what to hand to a master that joins besides the members, given the invitation
        (for instance the group's master key, when ``share_master_key`` is set there).
    :param outlook: what to tell a master that only asks what joining would do, given the
        invitation and where it has got to (bytes of its own choice, at first none).
    :param timeout: seconds that telling one peer may take.
    :param standing: lets those in who know the group's secret; None: only a token does.
    """

    def __init__(
        self,
        identity: Identity,
        trust: Trust,
        invites: Invites,
        name: str,
        url: str,
        group: str,
        share: Callable[[Invite], Mapping[str, Any]] | None = None,
        outlook: Callable[[Invite, bytes], Awaitable[Mapping[str, Any]]] | None = None,
        timeout: float = 3.0,
        standing: Standing | None = None,
    ) -> None:
        self._lines = Allowance()
        self.identity = identity
        self._trust = trust
        self._invites = invites
        self._name = name
        self._url = url
        self._group = group
        self._share = share
        self._outlook = outlook
        self._timeout = timeout
        self._standing = standing
        self._wrong_proofs: dict[str, int] = {}
        self._failed: deque[tuple[float, str]] = deque(maxlen=MAX_FAILED_ANYWHERE)
        self._problems: dict[str, tuple[str, ...]] = {}

    def handlers(self) -> dict[str, Handler]:
        """What the listener is to answer pinned peers with; :meth:`join` is passed besides."""
        return {"members": self.members}

    def strangers(self) -> dict[str, OpenHandler]:
        """What the listener is to answer callers without a certificate with."""
        return {
            "join": self.join,
            "plan": self.plan,
            "certificates": self.certificates,
            "renewed": self.renewed,
        }

    async def certificates(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Handler: all the certificates of this master, which are no secret. Each proves the next,
        so that who pinned a former one can take over the present one.
        """
        return {"certificates": list(self.identity.chain)}

    async def renewed(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Handler: somebody shows all its certificates. They prove themselves, so it does not matter
        who brings them; what does not follow from a pinned one is refused.
        """
        name, shown = payload.get("name"), payload.get("certificates")
        try:
            chain = [read_certificate(pem)[0] for pem in shown] if isinstance(shown, list) else []
            return {"news": self._trust.renew(str(name), chain)}
        except TrustError as exc:
            log.debug("renewal refused name=%.80r reason=%s", name, exc)
            # Strangers are not told whom we know.
            raise TrustError("these certificates follow from none that is pinned here") from None

    def offer(self) -> dict[str, Any]:
        """What this master tells its peers: itself, whom it has pinned, who was removed."""
        return {
            "self": self._ourselves(),
            "group": self._group,
            "members": [_described(peer) for peer in self._trust.pinned().values()],
            "removed": [removed.__dict__ for removed in self._trust.removed()],
        }

    def digest(self) -> bytes:
        """16 bytes that are the same on two masters that need not tell each other their offers."""
        members = {peer.fingerprint for peer in self._trust.pinned().values()}
        removed = {note.fingerprint for note in self._trust.removed()}
        parts = [self._group, *sorted(members | {self.identity.fingerprint}), "", *sorted(removed)]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest()

    async def members(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """
        Handler: take a peer's offer, answer with ours. Or, to a digest: whether ours is the same.
        """
        if "digest" in payload:
            self.moved(peer, payload.get("self"))
            return {"self": self._ourselves(), "same": payload["digest"] == self.digest()}
        self.absorb(peer, payload)
        return self.offer()

    def _ourselves(self) -> dict[str, str]:
        return {"name": self._name, "url": self._url}

    def absorb(self, peer: Peer, payload: Mapping[str, Any]) -> Absorbed:
        """
        Take over what the pinned *peer* offers.

        :raises InvalidRecord: that is no offer; nothing was taken.
        """
        members, removed = payload.get("members", []), payload.get("removed", [])
        _check_list("members", members, MAX_MEMBERS)
        _check_list("removed", removed, MAX_REMOVED)
        problems: list[str] = []
        ours = False
        mine = self.identity.fingerprints
        out: list[str] = []
        barred = {note.fingerprint for note in self._trust.removed()}
        for entry in removed:
            note = Removed(
                _text(entry.get("fingerprint"), 100),
                _text(entry.get("name"), 64),
                _text(entry.get("removed"), 40),
            )
            if note.fingerprint in mine:
                ours = True
                continue
            pinned = self._trust.by_fingerprint(note.fingerprint)
            if len(barred) >= MAX_HEARSAY and pinned is None:
                continue
            try:
                if self._trust.bar(note):
                    barred.add(note.fingerprint)
                    out.append(note.name)
            except TrustError as exc:
                problems.append(str(exc))
        problems += self.moved(peer, payload.get("self"))
        adopted: list[str] = []
        barred = {note.fingerprint for note in self._trust.removed()}
        for entry in members:
            try:
                member = _introduced(entry)
                if member.fingerprints & (mine | barred):
                    continue
                if member.name == self._name:
                    raise TrustError(f"{member.name}: is this master's own name")
                known = self._trust.pinned().get(member.name)
                if known is not None and member.fingerprint in known.fingerprints:
                    continue  # they have a former certificate; they hear of the present one
                # Where a member is to be reached it says itself; others only introduce it.
                if self._trust.by_fingerprint(member.fingerprint) is None:
                    self._trust.pin(member)
                    adopted.append(member.name)
            except TrustError as exc:
                problems.append(str(exc))
        learnt = Absorbed(tuple(adopted), tuple(out), tuple(problems), ours)
        self._report(peer, learnt)
        return learnt

    def moved(self, peer: Peer, described: object) -> list[str]:
        """
        Call the pinned *peer* from now on where it says that it is.

        :param described: what it says about itself; its ``url`` is looked at.
        :return: why that cannot be taken, if it cannot.
        """
        if not isinstance(described, Mapping) or described.get("url") is None:
            return []
        pinned = self._trust.pinned().get(peer.name)
        if pinned is None or described["url"] == pinned.url:
            return []
        try:
            self._trust.pin(make_peer(pinned.name, described["url"], pinned.certificate))
        except TrustError as exc:
            return [str(exc)]
        return []

    async def exchange(self, skip: str = "", brief: bool = False) -> dict[str, str]:
        """
        Offer to all peers but *skip*, and absorb what they answer.

        :param brief: begin with a digest, and offer only where that differs; for when there is
            probably nothing to tell.
        :return: name → reason, of those that could not be told; they hear of it later.
        """
        peers = [peer for peer in self._trust.peers().values() if peer.name != skip]
        offer = self.offer()
        sketch = {"self": offer["self"], "group": self._group, "digest": self.digest()}

        async def tell(peer: Peer) -> str | None:
            try:
                if brief:
                    answer = await call_once(self.identity, peer, "members", sketch, self._timeout)
                    if answer.get("same") is True:
                        self.moved(peer, answer.get("self"))
                        return None
                # Also to a master of an older release, which answers a digest with its offer.
                answer = await call_once(self.identity, peer, "members", offer, self._timeout)
                self.absorb(peer, answer)
            except (PeerError, InvalidRecord) as exc:
                return str(exc)
            return None

        reasons = await asyncio.gather(*map(tell, peers))
        return {peer.name: reason for peer, reason in zip(peers, reasons, strict=True) if reason}

    async def remove(self, name: str) -> dict[str, str]:
        """
        Take *name* out of the group for good and tell the others.

        :return: as :meth:`exchange`.
        :raises TrustError: there is no such peer.
        """
        self._trust.remove(name)
        point("remove.tell")
        return await self.exchange()

    async def leave(self, renew: Callable[[], object] = lambda: None) -> dict[str, str]:
        """
        Have the others remove this master, then trust nobody any more.

        :param renew: gives this master the new identity (:func:`.identity.renew`) that it needs to
            join anywhere. Called before anybody is unpinned: while one is pinned yet, a leave that
            was interrupted can be repeated.
        :return: name → reason, of those that could not be told: ``ha.remove_peer`` on another
            member does it.
        """
        peers = list(self._trust.peers().values())
        note = {"fingerprint": self.identity.fingerprint, "name": self._name, "removed": ""}
        unreached = {}
        for peer in peers:
            point("leave.tell")
            try:
                # Only the removal: the answer to it is the last that this certificate may hear.
                payload = {"removed": [note]}
                await call_once(self.identity, peer, "members", payload, self._timeout)
            except PeerError as exc:
                unreached[peer.name] = str(exc)
        renew()
        for peer in peers:
            point("leave.unpin")
            self._trust.unpin(peer.name)
        point("leave.done")
        return unreached

    async def join(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Handler for a master with a token or the secret: let it in, and tell it and the others.

        :param host: the address that the request came from.
        :raises TokenError: that does not entitle it.
        :raises TrustError: its name or certificate cannot be taken, or there is nothing to share
            that was promised; nothing was changed.
        """
        joiner, invite = self._entitled(payload, host)
        self._check_joiner(joiner)
        shared = self._shared(invite)
        point("invite.consume")
        # Used up before it is granted: a crash in between costs a token, never a second grant.
        if invite.id != STANDING and not self._invites.consume(invite.id, joiner.fingerprint):
            raise TokenError(UNKNOWN)
        point("invite.pin")
        self._trust.pin(joiner)
        log.info(
            "joined name=%s url=%s fingerprint=%s", joiner.name, joiner.url, joiner.fingerprint
        )
        point("invite.tell")
        # The joiner itself listens to nobody yet: it learns of the group from our answer.
        unreached = await self.exchange(skip=joiner.name)
        point("invite.reply")
        reply = wire.pack(
            {
                "group": self._group,
                "members": self._introduced(joiner),
                "unreached": unreached,
                "shared": shared,
                "nonce": payload.get("nonce") if invite.id == STANDING else b"",
            }
        )
        mac = reply_mac(invite.key, self.identity.fingerprint, joiner.fingerprint, reply)
        return {"reply": reply, "mac": mac}

    async def plan(self, payload: dict[str, Any], host: str) -> dict[str, Any]:
        """
        Handler for a master with a token that asks what joining would do: nothing is done, and
        the token is as good as before.

        :raises TokenError: the token does not entitle it.
        """
        after = payload.get("after")
        if not isinstance(after, bytes):
            raise TokenError("the request does not say where it has got to")
        joiner, invite = self._entitled(payload, host, after)
        refused = ""
        try:
            self._check_joiner(joiner)
            self._shared(invite)
        except TrustError as exc:
            refused = str(exc)
        reply = wire.pack(
            {
                "name": self._name,
                "refused": refused,
                "members": self._introduced(joiner),
                "outlook": dict(await self._outlook(invite, after)) if self._outlook else {},
            }
        )
        mac = plan_reply_mac(
            invite.key, self.identity.fingerprint, joiner.fingerprint, after, reply
        )
        return {"reply": reply, "mac": mac}

    def _entitled(
        self, payload: Mapping[str, Any], host: str, after: bytes | None = None
    ) -> tuple[Peer, Invite]:
        """Who asks, and by which invitation; *after* when it only asks for a plan."""
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
        if group != self._group or invite.group != self._group:
            raise TokenError(f"this master is of the group {self._group!r}, not {group!r:.80}")
        return joiner, invite

    def _check_joiner(self, joiner: Peer) -> None:
        if joiner.name == self._name:
            raise TrustError(f"{joiner.name}: is the inviting master's own name; set ha: name")
        self._trust.check(joiner)

    def _shared(self, invite: Invite) -> dict[str, Any]:
        return dict(self._share(invite)) if self._share else {}

    def _introduced(self, joiner: Peer) -> list[dict[str, Any]]:
        """The members as a joining master is told of them: this one first."""
        ourselves = {
            "name": self._name,
            "url": self._url,
            "certificate": self.identity.certificate,
            "former": list(self.identity.former),
        }
        others = [p for p in self._trust.pinned().values() if p.fingerprint != joiner.fingerprint]
        return [ourselves, *map(_described, others)]

    def _admitted(self, payload: Mapping[str, Any], joiner: Peer) -> Invite:
        if self._standing is None:
            raise TrustError(
                "no secret is configured there (ha: secret_file): it takes a token of ha.invite"
            )
        return self._standing.admit(self.identity.fingerprint, joiner, payload)

    def _proven(
        self, payload: Mapping[str, Any], joiner: Peer, group: object, after: bytes | None
    ) -> Invite:
        invite = self._invites.find(payload.get("invite"), joiner.fingerprint)
        mac = payload.get("mac")
        asked = (self.identity.fingerprint, joiner.fingerprint, joiner.name, joiner.url)
        if after is None:
            expected = request_mac(invite.key, *asked, str(group))
        else:
            expected = plan_mac(invite.key, *asked, str(group), after)
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
            raise TokenError("this token has expired; make a new one with salt-run ha.invite")
        return invite

    def _throttle(self, host: str) -> None:
        while self._failed and self._failed[0][0] + FAILED_JOINS_PERIOD <= time.monotonic():
            self._failed.popleft()
        own = [when for when, whose in self._failed if whose == host]
        full = len(self._failed) >= MAX_FAILED_ANYWHERE
        if full or len(own) >= MAX_FAILED_JOINS:
            first = self._failed[0][0] if full else own[-MAX_FAILED_JOINS]
            wait = first + FAILED_JOINS_PERIOD - time.monotonic()
            raise TokenError(f"too many failed joins here; try again in {wait:.0f} s")

    def _report(self, peer: Peer, learnt: Absorbed) -> None:
        if (learnt.adopted or learnt.removed) and self._lines.take():
            log.info(
                "membership from=%s adopted=%s removed=%s",
                peer.name,
                ",".join(learnt.adopted[:10]) or "-",
                ",".join(learnt.removed[:10]) or "-",
            )
        problems = learnt.problems
        if learnt.removed_ourselves:
            problems += ("this master was removed from the group; join it again",)
        if problems != self._problems.get(peer.name, ()):
            self._problems[peer.name] = problems
            for problem in problems[:10]:
                if not self._lines.take():
                    break
                log.warning("membership from=%s problem=%s", peer.name, problem)


def _described(peer: Peer) -> dict[str, Any]:
    return {
        "name": peer.name,
        "url": peer.url,
        "certificate": peer.certificate,
        "former": list(peer.former),
    }


def _introduced(entry: Mapping[str, Any]) -> Peer:
    return make_peer(
        entry.get("name"),
        entry.get("url"),
        entry.get("certificate"),
        former=entry.get("former", ()),
    )


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(sign for sign in value[:limit] if sign.isprintable())


def _check_list(what: str, value: object, limit: int) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidRecord(f"{what} is not a list of maps")
    if len(value) > limit:
        raise InvalidRecord(f"{what} has {len(value)} entries, more than {limit}")
