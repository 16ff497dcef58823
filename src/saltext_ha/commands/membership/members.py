"""Commands about the members of the group: ``ha.peers``, ``ha.leave``, ``ha.renew``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from saltext_ha.common.disk_work import DiskWork
from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.config.mapping import HaConfig
from saltext_ha.membership import group_secret
from saltext_ha.membership.invites import Invites
from saltext_ha.membership.membership import Membership
from saltext_ha.membership.renewal import Renewal
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.group import Group
from saltext_ha.sync.hello import Hello
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport import fingerprints, identity, succession
from saltext_ha.transport.client import call_once


class Members:
    """
    Shows the members of the group; has this master leave it, or take a new certificate.

    :param hello: what this master says of itself in ``hello``.
    :param disk: for work in the state folder.
    """

    def __init__(
        self,
        group: Group,
        config: HaConfig,
        core: Core,
        *,
        membership: Membership,
        renewal: Renewal,
        vouching: Vouching,
        hello: Hello,
        disk: DiskWork,
    ) -> None:
        self._group, self._config, self._core = group, config, core
        self._membership, self._renewal = membership, renewal
        self._vouching, self._hello, self._disk = vouching, hello, disk

    async def peers(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.peers``: the masters that this one trusts, and whether each is up."""
        silent = await self._group.silent()
        rows = []
        for name, peer in sorted(self._group.peers.items()):
            contact = self._group.contacts.get(name)
            at = contact.seen if contact else None
            seen = None if at is None else round(time.monotonic() - at, 1)
            rows.append(
                {
                    "name": name,
                    "url": peer.url,
                    "fingerprint": peer.fingerprint,
                    "introducer": peer.introducer if peer.introducer != "" else self._group.name,
                    "added": peer.added,
                    "state": "up" if contact and contact.up and name not in silent else "unknown",
                    "seen": seen,
                    "note": silent.get(name) or (contact.error if contact else "not connected yet"),
                }
            )
        unread, undeleted = self._group.unread, self._group.undeleted
        unknown = unread or any(row["state"] == "unknown" for row in rows)
        return {
            "kind": "peers",
            "self": {
                "name": self._group.name,
                "url": self._config.url,
                "fingerprint": self._renewal.identity.fingerprint,
            },
            "peers": rows,
            "notes": [*unread, *undeleted],
            "retcode": 2 if unknown else 1 if undeleted else 0,
        }

    async def leave(self, payload: dict[str, Any]) -> dict[str, Any]:
        names = self._group.others
        if not names:
            raise HaError("this master is in no group")
        if payload.get("test"):
            notes = [
                f"would leave the group of {', '.join(names)}; every key stays where it is",
                "minions that are connected only here stay, and no other master reaches them "
                f"then: salt-run ha.drain {self._group.name} moves them before",
            ]
            notes += await self._withdrawn(test=True)
            return {"kind": "notice", "notes": notes, "retcode": 0}
        before, done = self._renewal.identity, "nothing more was done"
        try:
            # This comes first: masters that know the secret would take this master back at once.
            await self._disk(group_secret.mark_left, self._config.state_dir)
            done = "the masters that were reached do not trust this one any more"
            told, unreached = await self._membership.leave(self._renewal.begin_anew)
        except (HaError, OSError) as exc:
            if self._renewal.identity is not before:
                # As below, when the disk responds: then the last peer may be unpinned, too, and
                # nobody can leave again.
                self._core.start(self._core.run(self._vouching.begin))
            why = f"{reason_of(exc)}; {done}; to finish: salt-run ha.leave again"
            raise HaError(why) from None
        # From now on it writes under the new certificate.
        await self._core.run(self._vouching.begin)
        notes = [*self._left(names, told, unreached), *await self._withdrawn()]
        if self._config.secret is not None:
            notes.append(
                f"for good: take {self._config.url} from ha: masters on the others, and masters "
                "and the secret from this one. It neither joins nor lets in by the secret until "
                "ha.join force=True, or with a token, is run on it"
            )
        return {"kind": "notice", "notes": notes, "retcode": 2 if unreached else 0}

    def _left(
        self, names: Iterable[str], told: Sequence[str], unreached: Mapping[str, str]
    ) -> Iterator[str]:
        """What became of each of the masters *names*, in words; *told* ones trust it no more."""
        own = self._group.name
        for name in names:
            if name not in unreached:
                yield f"left; {name} does not trust this master any more"
        # One that removed this master before may have told it, and the name may be of use again.
        then = (
            f"{told[0]} tells it when it is back"
            if told
            else f"if ha.peers still lists {own} there, run there salt-run ha.remove_peer {own}, "
            f"before {own} joins again"
        )
        for name, why in unreached.items():
            yield f"{name} was not told ({why}): {then}"
        yield "every key stays where it is"

    async def renew(self, payload: dict[str, Any]) -> dict[str, Any]:
        peers, damaged = self._group.others, self._group.damaged()
        if payload.get("test"):
            present = self._renewal.identity
            identity.check_vouches(present)
            end = succession.expiry(present.certificate)
            shown = fingerprints.short(present.fingerprint, 8)
            notes = [
                f"certificate {shown} is valid until {end:%Y-%m-%d}",
                "would take a new one and a new key; the members take it over by themselves",
                *(await self._withdrawn(test=True)),
            ]
            return {"kind": "notice", "notes": notes, "retcode": 0}
        were_up = {name for name, contact in self._group.contacts.items() if contact.up}
        former_end = succession.expiry(self._renewal.identity.certificate)
        made = await self._renewal.renew()
        unreached = await self._until_known(were_up)
        end = succession.expiry(made.certificate)
        notes = [f"new certificate {made.fingerprint}, valid until {end:%Y-%m-%d}"]
        notes += await self._withdrawn()
        for name in peers:
            if name in damaged:
                notes.append(f"{name} was not told, and hears of it when it calls: {damaged[name]}")
            elif name in unreached:
                notes.append(
                    f"{name} has not taken it over yet, and will by itself when it is back before "
                    f"{former_end:%Y-%m-%d}, the end of the former one"
                )
            else:
                notes.append(f"{name} knows it")
        return {"kind": "notice", "notes": notes, "retcode": 0}

    async def _withdrawn(self, test: bool = False) -> list[str]:
        """
        Withdraw the open invitations: their tokens name the former certificate, so nobody can join
        by them any more. Returns a note for each.
        """

        names: list[str] = []

        def withdraw() -> None:
            known = Invites(self._config.state_dir)
            for name, invitation in sorted(known.open().items()):
                if not test:
                    known.discard(invitation)
                names.append(name)

        with contextlib.suppress(HaError, OSError):  # they expire by themselves
            await self._disk(withdraw)
        does = "would be" if test else "is"
        return [
            f"invitation {name} {does} withdrawn, as its token names the former certificate: "
            "salt-ha invite  makes a new one"
            for name in names
        ]

    async def _until_known(self, were_up: set[str]) -> set[str]:
        """Wait until the peers *were_up* know this master again; returns the peers that do not."""
        waiting = set(self._group.peers)
        give_up = time.monotonic() + 2 * self._config.sync_interval + self._group.timeout
        while True:
            for name in sorted(waiting):
                peer = self._group.peers.get(name)
                with contextlib.suppress(HaError):
                    if peer is not None:
                        await call_once(
                            self._renewal.identity, peer, "hello", self._hello.describe(), 2.0
                        )
                        waiting.discard(name)
            if not waiting & were_up or time.monotonic() > give_up:
                return waiting
            await asyncio.sleep(0.2)
