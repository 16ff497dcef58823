"""
The members of the group, and how they tell each other of changes.

All members are equal. At intervals, and whenever that changes, each offers the others the masters
that it has pinned and those that were removed, and adopts what its pinned peers offer. So a master
that was down while another joined or left hears of it later. Removals win.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltext_ha.common.disk_work import DiskWork
from saltext_ha.common.errors import (
    DiskHangs,
    HaError,
    InvalidRecord,
    PeerError,
    PeerMistrust,
    PeerRefused,
    TrustError,
)
from saltext_ha.common.fail_points import point
from saltext_ha.common.refusals import Allowance
from saltext_ha.transport.client import call_once
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer, make_peer, read_peer
from saltext_ha.transport.removals import Removed
from saltext_ha.transport.stranger_calls import introduce
from saltext_ha.transport.trust import Trust

log = logging.getLogger(__name__)

REMOVED = "this master was removed from the group: salt-run ha.leave here, then join anew"
NOT_PINNED = "these certificates follow from none that is pinned here"
"""What a peer says to the certificates of a master that it does not trust."""
# Most members in one offer; a group may limit them to fewer.
MAX_TOLD = 1024
# So many new masters may one peer introduce in an hour.
MAX_INTRODUCED = 16
INTRODUCED_PERIOD = 3600.0
# Most removals in one offer, of 8 MiB at most: each ``ha.leave`` is one.
MAX_REMOVED = 32768
# A peer may tell so many removals of certificates not pinned here: few, so that own removals always
# fit.
MAX_HEARSAY = 2048


@dataclass
class Absorbed:
    """What came of a peer's offer: pinned and removed names, and why others were not taken."""

    adopted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    removed_ourselves: bool = False


class Membership:
    """
    This master's part in the group.

    :param name: this master's name; *url*, *group*: as others are told.
    :param timeout: seconds that telling one peer may take.
    """

    def __init__(
        self,
        identity: Identity,
        trust: Trust,
        name: str,
        url: str,
        group: str,
        timeout: float = 3.0,
    ) -> None:
        self.identity, self._trust, self._timeout = identity, trust, timeout
        self.name, self._url, self.group = name, url, group
        self._lines = Allowance()
        self._problems: dict[str, list[str]] = {}
        self._introduced: dict[str, deque[float]] = {}
        self._threads: dict[str, DiskWork] = {}
        """For what each peer tells: what one of them tells may be much."""

    def show(self, identity: Identity) -> None:
        """Show *identity* to the others from now on."""
        self.identity = identity

    def for_peers(self) -> dict[str, Handler]:
        """The listener's handlers for pinned peers."""
        return {"members": self.members}

    def offer(self) -> dict[str, Any]:
        """What this master tells its peers: itself, pinned masters and removed masters."""
        return {
            "self": self._ourselves(),
            "group": self.group,
            "members": [_described(peer) for peer in self._trust.pinned().values()],
            "removed": [removed.__dict__ for removed in self._trust.removals.notes()],
        }

    def digest(self) -> bytes:
        """16 bytes, equal on masters with the same offers: these need not exchange them."""
        members = {peer.fingerprint for peer in self._trust.pinned().values()}
        removed = {note.fingerprint for note in self._trust.removals.notes()}
        parts = [self.group, *sorted(members | {self.identity.fingerprint}), "", *sorted(removed)]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest()

    async def members(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Take in a peer's offer, and answer with ours; or say whether a digest equals ours."""
        if "digest" in payload:
            await self.moved(peer, payload.get("self"))
            same = payload["digest"] == self.digest()
            if same:
                self._problems.pop(peer.name, None)
            return {"self": self._ourselves(), "same": same}
        await self._take_in(peer, payload)
        return self.offer()

    async def _take_in(self, peer: Peer, payload: Mapping[str, Any]) -> None:
        """As :meth:`absorb`, in a thread. :raises DiskHangs: the file system hangs."""
        await self._thread(peer.name)(self.absorb, peer, payload)

    def _thread(self, name: str) -> DiskWork:
        """The thread for the peer *name*, so that none keeps the others waiting."""
        if name not in self._threads:
            for gone in self._threads.keys() - self._trust.pinned().keys():
                del self._threads[gone]
            self._threads[name] = self._trust.thread()
        return self._threads[name]

    def _ourselves(self) -> dict[str, str]:
        return {"name": self.name, "url": self._url}

    def absorb(self, peer: Peer, payload: Mapping[str, Any]) -> Absorbed:
        """Take over what the pinned *peer* offers. :raises InvalidRecord: it is no offer."""
        members, removed = payload.get("members", []), payload.get("removed", [])
        _check_list("members", members, MAX_TOLD)
        _check_list("removed", removed, MAX_REMOVED)
        learnt = Absorbed()
        self._keep_out(removed, learnt)
        learnt.problems += self._move(peer, payload.get("self"))
        self._adopt(peer, members, learnt)
        self._report(peer, learnt)
        return learnt

    def _keep_out(self, removed: list[dict[str, Any]], learnt: Absorbed) -> None:
        """Keep *removed* masters out."""
        barred = self._barred()
        members = self._trust.pinned().values()
        pinned = {fingerprint for peer in members for fingerprint in peer.fingerprints}
        for entry in removed:
            note = Removed(
                _text(entry.get("fingerprint"), 100),
                _text(entry.get("name"), 64),
                _text(entry.get("removed"), 40),
            )
            if note.fingerprint in self.identity.fingerprints:
                learnt.removed_ourselves = True
                continue
            # Most are told again and again.
            if note.fingerprint in barred:
                continue
            if len(barred) >= MAX_HEARSAY and note.fingerprint not in pinned:
                continue
            try:
                if self._trust.bar(note):
                    barred.add(note.fingerprint)
                    learnt.removed.append(note.name)
            except TrustError as exc:
                learnt.problems.append(str(exc))

    def _barred(self) -> set[str]:
        return {note.fingerprint for note in self._trust.removals.notes()}

    def _adopt(self, peer: Peer, members: list[Any], learnt: Absorbed) -> None:
        """Pin the *members* that *peer* introduces."""
        not_these = self.identity.fingerprints | self._barred()
        for entry in members:
            try:
                member = read_peer(entry)
                if member.fingerprints & not_these:
                    continue
                if member.name == self.name:
                    raise TrustError(f"{member.name}: is this master's own name")
                known = self._trust.pinned().get(member.name)
                if known is not None and member.fingerprint in known.fingerprints:
                    continue  # the peer has a former certificate, and hears of the present one
                # Only a member itself says where it is reached; others only introduce it.
                if self._trust.by_fingerprint(member.fingerprint) is None:
                    self._may_introduce(peer, member)
                    self._trust.pin(replace(member, introducer=peer.name))
                    learnt.adopted.append(member.name)
            except TrustError as exc:
                learnt.problems.append(str(exc))

    def _may_introduce(self, peer: Peer, member: Peer) -> None:
        """
        Count *member* as introduced by *peer*. :raises TrustError: as :meth:`.Trust.check`; or too
        many in an hour (every minute the next is tried).
        """
        now = time.monotonic()
        last = self._introduced.setdefault(peer.name, deque())
        while last and last[0] + INTRODUCED_PERIOD <= now:
            last.popleft()
        if len(last) >= MAX_INTRODUCED:
            raise TrustError(
                f"{member.name}: {peer.name} introduced {MAX_INTRODUCED} masters within an hour, "
                "more are not taken from it; if that was not you: salt-run ha.remove_peer "
                f"{peer.name}"
            )
        self._trust.check(member)
        last.append(now)

    async def moved(self, peer: Peer, described: object) -> None:
        """Call the pinned *peer* from now on at the URL that it tells, if that can be taken."""
        if self._is_elsewhere(peer, described):
            with contextlib.suppress(DiskHangs):  # it tells again
                await self._thread(peer.name)(self._move, peer, described)

    def _is_elsewhere(self, peer: Peer, described: object) -> bool:
        """Whether the pinned *peer* tells of another URL than it is called at."""
        if not isinstance(described, Mapping) or described.get("url") is None:
            return False
        pinned = self._trust.pinned().get(peer.name)
        return pinned is not None and described["url"] != pinned.url

    def _move(self, peer: Peer, described: Any) -> list[str]:
        """As :meth:`moved`, in a thread; returns why the URL cannot be taken."""
        pinned = self._trust.pinned().get(peer.name)
        if pinned is None or not self._is_elsewhere(peer, described):
            return []
        try:
            self._trust.pin(make_peer(pinned.name, described["url"], pinned.certificate))
        except TrustError as exc:
            return [str(exc)]
        return []

    async def exchange(
        self, skip: str = "", brief: bool = False, within: float = float("inf")
    ) -> dict[str, str]:
        """
        Make our offer to all peers except *skip*, and absorb their answers.

        :param within: seconds that telling one peer may take at most.
        :param brief: send only a digest first, and offer if that differs; use it if there is
            probably nothing new.
        :return: name → reason, for peers that could not be told; they hear of it later.
        """
        if self._trust.undeleted():
            with contextlib.suppress(DiskHangs):  # tried again
                await self._trust.disk(self._trust.delete_barred)
        peers = [peer for peer in self._trust.peers().values() if peer.name != skip]
        offer = self.offer()
        sketch = {"self": offer["self"], "group": self.group, "digest": self.digest()}
        seconds = min(self._timeout, within)

        async def tell(peer: Peer) -> str | None:
            try:
                if brief:
                    answer = await call_once(self.identity, peer, "members", sketch, seconds)
                    if answer.get("same") is True:
                        await self.moved(peer, answer.get("self"))
                        self._problems.pop(peer.name, None)
                        return None
                answer = await call_once(self.identity, peer, "members", offer, seconds)
                await self._take_in(peer, answer)
            except HaError as exc:
                return str(exc)
            return None

        reasons = await asyncio.gather(*map(tell, peers))
        return {peer.name: reason for peer, reason in zip(peers, reasons, strict=True) if reason}

    async def remove(self, name: str = "", others: Iterable[Removed] = ()) -> dict[str, str]:
        """
        Remove masters from the group for good, and tell the others.

        :param name: a peer's name. :param others: masters by their certificates, pinned here or
            not.
        :return: as :meth:`exchange`.
        :raises TrustError: there is no such peer, or a fingerprint is invalid.
        :raises DiskHangs: the file system hangs; nobody was told, and it may still be done.
        """
        await self._trust.disk(self._bar, name, others)
        point("remove.tell")
        return await self.exchange()

    def _bar(self, name: str, others: Iterable[Removed]) -> None:
        if name:
            self._trust.remove(name)
        for note in others:
            self._trust.bar(note)

    async def leave(
        self, renew: Callable[[], Awaitable[object]] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """
        Have the others remove this master, then trust no peer any more.

        :param renew: gives this master the new identity (:func:`.identity.renew`) that it needs to
            join anywhere. It is called before any peer is unpinned: as long as one is pinned, an
            interrupted leave can be repeated.
        :raises DiskHangs: the file system hangs; the others were told.
        :return: the peers that were told, and tell the others; and name → reason, for peers that
            could not be told: if none was, run ``ha.remove_peer`` there.
        """
        damaged = self._trust.damaged()
        note = {"fingerprint": self.identity.fingerprint, "name": self.name, "removed": ""}
        unreached = dict.fromkeys(damaged, "its file here cannot be read")
        unreached.pop(self.name, None)
        told: list[str] = []
        called: set[str] = set()
        # While one is called, others may be pinned.
        while left := [peer for peer in self._trust.peers().values() if peer.name not in called]:
            peer = left[0]
            called.add(peer.name)
            point("leave.tell")
            try:
                # Send only the removal: its answer is the last that this certificate may receive.
                payload = {"removed": [note]}
                await call_once(self.identity, peer, "members", payload, self._timeout)
                told.append(peer.name)
            except PeerError as exc:
                # One that removed this master, or was told before, needs not be told.
                if not (isinstance(exc, PeerMistrust) and await self._is_unpinned_by(peer)):
                    unreached[peer.name] = str(exc)
        if renew is not None:
            await renew()
        for name in (*damaged, *self._trust.pinned()):
            point("leave.unpin")
            await self._trust.disk(self._trust.unpin, name)
        # Masters that were just being let in when this began; and copies of pinned files.
        for name in (*self._trust.pinned(), *self._trust.damaged()):
            await self._trust.disk(self._trust.unpin, name)
        point("leave.done")
        return told, unreached

    async def _is_unpinned_by(self, peer: Peer) -> bool:
        """Whether *peer* says that it trusts no certificate of this master."""
        try:
            await introduce(self.identity, peer, self.name, self._timeout)
        except PeerRefused as exc:
            return exc.reason == NOT_PINNED
        except PeerError:
            pass
        return False

    def introduced(self, joiner: Peer) -> list[dict[str, Any]]:
        """The members, as *joiner* is told: this master first."""
        ourselves = {
            "name": self.name,
            "url": self._url,
            "certificate": self.identity.certificate,
            "former": list(self.identity.former),
        }
        others = [p for p in self._trust.pinned().values() if p.fingerprint != joiner.fingerprint]
        return [ourselves, *map(_described, others)]

    def notes(self) -> list[str]:
        """For the status: what could not be taken from each peer's last offer."""
        members = self._trust.peers()
        return [
            _note(name, problems)
            for name, problems in list(self._problems.items())
            if problems and name in members
        ]

    def _report(self, peer: Peer, learnt: Absorbed) -> None:
        if (learnt.adopted or learnt.removed) and self._lines.take():
            log.info(
                "membership from=%s adopted=%s removed=%s",
                peer.name,
                ",".join(learnt.adopted[:10]) or "-",
                ",".join(learnt.removed[:10]) or "-",
            )
        problems = [REMOVED] if learnt.removed_ourselves else []
        problems += learnt.problems
        if problems != self._problems.get(peer.name, []):
            self._problems[peer.name] = problems
            for problem in problems[:10]:
                if not self._lines.take():
                    break
                log.warning("membership from=%s problem=%s", peer.name, problem)


def _note(name: str, problems: Sequence[str]) -> str:
    if problems[0] == REMOVED:
        return f"{name} says: {REMOVED}"
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"members that {name} tells of are not taken: {problems[0]}{more}"


def _described(peer: Peer) -> dict[str, Any]:
    return {
        "name": peer.name,
        "url": peer.url,
        "certificate": peer.certificate,
        "former": list(peer.former),
    }


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(sign for sign in value[:limit] if sign.isprintable())


def _check_list(what: str, value: object, limit: int) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidRecord(f"{what} is not a list of maps")
    if len(value) > limit:
        raise InvalidRecord(f"{what} has {len(value)} entries, more than {limit}")
