"""
The peers that this master trusts: a folder of pinned certificates, one file per peer.

The folder is the truth, and another process may change it at any time (``ha.join`` runs in the
runner while the engine listens), so every answer follows from its present content. If it cannot be
read, or hangs, what was read last counts until it can, and is among the problems. A removed
certificate leaves a file in ``removed/`` and is never pinned again; a master that comes back has a
new certificate. So removals win over late gossip.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common.errors import TrustError, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import create_whole, private_dir, read_plain, sync_dir, write_whole
from saltext_ha.common.looks import Looks
from saltext_ha.config.mapping import NAME
from saltext_ha.transport import fingerprints, succession
from saltext_ha.transport.peer import Peer, Removed, make_peer

log = logging.getLogger(__name__)

PEERS_DIR = "peers"
REMOVED_DIR = "removed"
SETTLED = 2_000_000_000  # nanoseconds
MAX_MEMBERS = 64
"""Masters in a group, unless the configuration says otherwise."""
_Entry = tuple[str, int, int, int]
_Signature = tuple[_Entry, ...]


class Trust:
    """
    The pinned peers below *state_dir*.

    :param urls: name → URL, for peers that this master reaches at another URL than they tell.
    :param most: how many masters a group has at most, including this one.
    :param looks: looks at the folders.
    :raises OSError: they cannot be made or read.
    """

    def __init__(
        self,
        state_dir: Path,
        urls: Mapping[str, str] | None = None,
        most: int = MAX_MEMBERS,
        looks: Looks | None = None,
    ) -> None:
        self._peers_dir = private_dir(state_dir) / PEERS_DIR
        self._removed_dir = state_dir / REMOVED_DIR
        for folder in (self._peers_dir, self._removed_dir):
            private_dir(folder)
        self._urls = dict(urls or {})
        self._most = most
        self._looks = looks or Looks()
        # The event loop and the thread that takes in a peer's offer use this object.
        self._pinning = threading.RLock()
        self._files: dict[_Entry, Peer] = {}
        """Files as they were last read → the peer in each."""
        self._signature: _Signature | None = None
        self._pinned: dict[str, Peer] = {}
        self._reachable: dict[str, Peer] = {}
        self._by_fingerprint: dict[str, Peer] = {}
        self._with_former: dict[str, Peer] = {}
        self._problems: dict[str, str] = {}
        self._unread = ""
        """Why the folder cannot be read at present."""
        self._generation, self._changed = 0, 0.0
        self._notes: list[Removed] = []
        self._notes_of: int | None = None
        """The time of the folder that has exactly these notes."""
        # As long as it takes: a large group has many certificates, and nobody waits yet.
        self._read_notes()
        self._follow()

    def peers(self) -> Mapping[str, Peer]:
        """Name → peer, with the URL to call (overrides applied)."""
        self._refresh()
        return MappingProxyType(self._reachable)

    def pinned(self) -> Mapping[str, Peer]:
        """Name → peer as in the folder, to tell others."""
        self._refresh()
        return MappingProxyType(self._pinned)

    def url_of(self, peer: Peer) -> str:
        """The URL at which to call *peer*, pinned or not (overrides applied)."""
        return self._urls.get(peer.name, peer.url)

    def by_fingerprint(self, fingerprint: str) -> Peer | None:
        """The pinned peer with this certificate, or None."""
        self._refresh()
        return self._by_fingerprint.get(fingerprint)

    def problems(self) -> Mapping[str, str]:
        """
        File → what is wrong with it; such a file pins no peer, and does not affect others. The
        folder is among them if it cannot be read.
        """
        self._refresh()
        unread = {str(self._peers_dir): self._unread} if self._unread else {}
        return MappingProxyType({**self._problems, **unread})

    def generation(self) -> int:
        """A number that changes whenever the set of pinned peers may have changed."""
        self._refresh()
        return self._generation

    def last_change(self) -> float:
        """When :meth:`generation` last changed (``time.monotonic``); opens no file."""
        return self._changed

    def pin(self, peer: Peer) -> bool:
        """
        Trust *peer* from now on; pinning it again may change its URL.

        :return: whether that changed anything.
        :raises TrustError: the name is pinned with another certificate, or the certificate under
            another name; the certificate was removed from the group; the group is full; or the
            folder cannot be written.
        """
        with self._written(self._peers_dir), self._pinning:
            return self._pin(peer)

    def _pin(self, peer: Peer) -> bool:
        self.check(peer)
        path = self._peers_dir / f"{peer.name}.json"
        data = _encode(replace(peer, added=peer.added or _now()))
        if create_whole(path, data):
            log.info("peer pinned name=%s fingerprint=%s", peer.name, _short(peer.fingerprint))
            return True
        there = _read_peer(path)
        if self._barred(there):
            self.unpin(peer.name)  # an earlier removal was interrupted after its note
            return self._pin(peer)
        if there.certificate in peer.former:
            return self.renew(peer.name, (*peer.former, peer.certificate))
        _same_certificate(there, peer)
        # A master that an operator admits here no longer counts as introduced by another.
        introducer = peer.introducer if peer.introducer == "" else there.introducer
        if (there.url, there.introducer) == (peer.url, introducer):
            return False
        write_whole(path, _encode(replace(there, url=peer.url, introducer=introducer)))
        if there.url != peer.url:
            log.info("peer moved name=%s url=%s", peer.name, peer.url)
        return True

    def check(self, *peers: Peer) -> None:
        """
        Check that :meth:`pin` would take all of *peers*; change nothing.

        :raises TrustError: as :meth:`pin`.
        """
        for peer in peers:
            self._check_certificate(peer)
        new = {peer.name for peer in peers} - self.pinned().keys()
        already = len(self._pinned.keys() | new)
        if new and already >= self._most:
            only = f"{peers[0].name}: " if len(peers) == 1 else ""
            raise TrustError(
                f"{only}this group has {already} masters already, and takes {self._most}; is each "
                "of them known (salt-run ha.peers)? If it is to be larger: ha: max_members on "
                "every master"
            )

    def _check_certificate(self, peer: Peer) -> None:
        if self._barred(peer):
            raise TrustError(
                f"{peer.name}: certificate {_short(peer.fingerprint)} was removed from this group "
                f"and stays out; that master needs a new one (salt-run ha.leave on it, then join)"
            )
        same = self.by_fingerprint(peer.fingerprint)
        if same is not None and same.name != peer.name:
            raise TrustError(f"{peer.name}: that certificate is pinned already, as {same.name!r}")
        there = self._pinned.get(peer.name)
        if there is not None and there.certificate not in peer.former:
            _same_certificate(there, peer)

    def renew(self, name: str, chain: Sequence[str]) -> bool:
        """
        Take over the new certificate of the pinned master *name*.

        :param chain: all certificates of that master, the oldest first.
        :return: whether it was news.
        :raises TrustError: no such peer, or its new certificate does not follow from the pinned,
            or cannot be written down.
        """
        peer = self.pinned().get(_checked_name(name))
        if peer is None:
            raise TrustError(f"{name}: no such peer")
        try:
            newest = succession.after(peer.certificate, chain)
        except TrustError as exc:
            raise TrustError(f"{name}: {exc}") from None
        if newest == peer.certificate:
            return False
        # The certificates before the pinned one are known here.
        older = (*peer.former, *chain[chain.index(peer.certificate) : -1])
        renewed = make_peer(peer.name, peer.url, newest, peer.added, older, peer.introducer)
        self.check(renewed)
        with self._written(self._peers_dir):
            write_whole(self._peers_dir / f"{name}.json", _encode(renewed))
        log.info("peer renewed name=%s fingerprint=%s", name, _short(renewed.fingerprint))
        return True

    def unpin(self, name: str) -> bool:
        """
        Stop trusting *name* at once, even on open connections; True if it was pinned.

        :raises TrustError: the folder cannot be written.
        """
        file = self._peers_dir / f"{_checked_name(name)}.json"
        with self._written(self._peers_dir):
            try:
                file.unlink()
            except FileNotFoundError:
                return False
            sync_dir(self._peers_dir)
        log.info("peer unpinned name=%s", name)
        return True

    def remove(self, name: str) -> Removed:
        """
        Unpin *name*, and remember that its certificate must stay out.

        :raises TrustError: no such peer.
        """
        peer = self.pinned().get(_checked_name(name))
        if peer is None:
            known = ", ".join(sorted(self._pinned)) or "none"
            raise TrustError(f"{name}: no such peer; pinned are: {known}")
        removed = Removed(peer.fingerprint, peer.name, _now())
        self.bar(removed)
        return removed

    def _barred(self, peer: Peer) -> bool:
        """Whether a certificate of *peer*, present or former, was removed from the group."""
        return any((self._removed_dir / _file_name(fp)).exists() for fp in peer.fingerprints)

    def bar(self, removed: Removed) -> bool:
        """
        Note a removal (made here or told by a peer), and unpin the peer with that certificate.

        :return: whether it was news.
        :raises TrustError: the fingerprint is invalid, or the note cannot be written.
        """
        if not fingerprints.PATTERN.fullmatch(removed.fingerprint):
            raise TrustError(f"{removed.fingerprint!r:.80} is not the fingerprint of a certificate")
        # Write the note first: after a crash in between, the note still unpins the peer.
        self._refresh()
        news = self._note(removed)
        for peer in list(self._with_former.values()):
            if removed.fingerprint in peer.fingerprints:
                # Others may know the removed master by another of its certificates: bar all.
                for other in peer.fingerprints:
                    self._note(replace(removed, fingerprint=other))
                point("remove.unpin")
                self.unpin(peer.name)
        return news

    def _note(self, removed: Removed) -> bool:
        with self._written(self._removed_dir):
            return create_whole(
                self._removed_dir / _file_name(removed.fingerprint),
                json.dumps(removed.__dict__, indent=1).encode(),
            )

    @contextlib.contextmanager
    def _written(self, folder: Path) -> Iterator[None]:
        """
        :raises TrustError: instead of an OSError of work that writes into *folder*; and before it
            if the file system hangs, which would hold up the event loop.
        """
        try:
            self._looks(lambda: None)
            yield
        except OSError as exc:
            raise TrustError(f"{folder}: cannot be written: {reason_of(exc)}") from exc

    def removed(self) -> list[Removed]:
        """All removed certificates; a damaged note still bars its certificate."""
        with contextlib.suppress(OSError):
            self._looks(self._read_notes)
        return list(self._notes)

    def _read_notes(self) -> None:
        # Notes are read for every offer, and change a few times in the life of a group.
        seen = self._removed_dir.stat().st_mtime_ns
        if self._notes_of == seen:
            return
        notes = []
        for path in sorted(self._removed_dir.glob("[!.]*.json")):
            name = when = ""
            try:
                content = json.loads(read_plain(path))
                name, when = str(content["name"]), str(content["removed"])
            except (OSError, ValueError, TypeError, KeyError):
                log.warning("damaged file=%s; the certificate it names stays out", path)
            notes.append(Removed(_fingerprint_of(path.name), name, when))
        # Within one tick of the clock the folder may change again, and have the same time.
        settled = abs(time.time_ns() - seen) > SETTLED
        self._notes, self._notes_of = notes, seen if settled else None

    def _refresh(self) -> None:
        try:
            self._looks(self._follow)
        except OSError as exc:
            self._unread = (
                f"{self._peers_dir}: {reason_of(exc)}; until it can be read, the masters that were "
                "pinned before count"
            )
        else:
            self._unread = ""

    def _follow(self) -> None:
        """Read the folder if it has changed."""
        signature = _signature(self._peers_dir)
        if signature != self._signature:
            self._read(signature)

    def _read(self, signature: _Signature) -> None:
        found, problems = self._read_all(signature)
        for file, problem in problems.items():
            if self._problems.get(file) != problem:
                log.error("peer file ignored: %s", problem)
        pinned = {name: peer for name, peer in found.items() if not self._barred(peer)}
        reachable = {
            name: replace(peer, url=self._urls[name]) if name in self._urls else peer
            for name, peer in pinned.items()
        }
        # One assignment each: a concurrent reader gets all of the old or all of the new content.
        self._problems, self._with_former = problems, found
        self._by_fingerprint = {peer.fingerprint: peer for peer in reachable.values()}
        self._pinned, self._reachable = pinned, reachable
        self._signature = signature
        self._generation, self._changed = self._generation + 1, time.monotonic()

    def _read_all(self, signature: _Signature) -> tuple[dict[str, Peer], dict[str, str]]:
        """
        Name → pinned peer, and file → what is wrong with it. Only changed files are read: otherwise
        a group that grows by a hundred would read five thousand certificates.
        """
        peers: dict[str, Peer] = {}
        problems: dict[str, str] = {}
        owners: dict[str, str] = {}
        read: dict[_Entry, Peer] = {}
        for entry in signature:
            path = self._peers_dir / entry[0]
            try:
                peer = read[entry] = self._files.get(entry) or _read_peer(path)
                if peer.fingerprint in owners:
                    raise TrustError(
                        f"{path}: has the certificate of {owners[peer.fingerprint]}, too; remove "
                        "one of the two files"
                    )
            except FileNotFoundError:
                continue
            except TrustError as exc:
                problems[str(path)] = str(exc)
            else:
                peers[peer.name] = peer
                owners[peer.fingerprint] = peer.name
        self._files = read
        return peers, problems


def addresses(state_dir: Path) -> dict[str, str]:
    """Host → name of the pinned peer there, for display only; makes and changes nothing."""
    found = {}
    for file, *_ in _signature(state_dir / PEERS_DIR):
        with contextlib.suppress(FileNotFoundError, TrustError):
            peer = _read_peer(state_dir / PEERS_DIR / file)
            found[urlsplit(peer.url).hostname or ""] = peer.name
    return found


def _signature(folder: Path) -> _Signature:
    """A value that differs for each state of the folder; takes 10 µs for a group of three."""
    entries = []
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    try:
                        stat = entry.stat()
                    except FileNotFoundError:
                        continue
                    entries.append((entry.name, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    except FileNotFoundError:
        return ()
    return tuple(sorted(entries))


def _read_peer(path: Path) -> Peer:
    try:
        content: Any = json.loads(read_plain(path))
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        peer = make_peer(
            content.get("name"),
            content.get("url"),
            content.get("certificate"),
            content.get("added"),
            content.get("former", ()),
            _introducer(content.get("introducer")),
        )
        if path.name != f"{peer.name}.json":
            raise ValueError(f"names peer {peer.name!r}; the file must be called {peer.name}.json")
        if content.get("fingerprint") != peer.fingerprint:
            raise ValueError(f"its certificate has another fingerprint: {peer.fingerprint}")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TrustError) as exc:
        raise TrustError(
            f"{path}: {exc}; restore it from a backup, or remove it and join again"
        ) from None
    return peer


def _introducer(raw: object) -> str | None:
    return raw if isinstance(raw, str) and (raw == "" or NAME.fullmatch(raw)) else None


def _same_certificate(there: Peer, peer: Peer) -> None:
    if there.fingerprint != peer.fingerprint:
        raise TrustError(
            f"{peer.name}: pinned already with another certificate ({_short(there.fingerprint)}, "
            f"not {_short(peer.fingerprint)}); if that master is gone for good: "
            f"salt-run ha.remove_peer {peer.name}"
        )


def _encode(peer: Peer) -> bytes:
    return json.dumps(peer.__dict__, indent=1).encode()


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise TrustError(f"{name!r} cannot be the name of a peer")
    return name


def _file_name(fingerprint: str) -> str:
    return fingerprint.replace(":", "") + ".json"


def _fingerprint_of(file_name: str) -> str:
    digits = file_name.removesuffix(".json")
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))


def _short(fingerprint: str) -> str:
    return fingerprints.short(fingerprint, 3)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
