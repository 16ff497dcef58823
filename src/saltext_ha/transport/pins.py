"""
Which peers are pinned now: follows the folder with their certificates.

The folder is the truth, and another process may change it at any time (``ha.join`` runs in the
runner while the engine listens), so every answer follows from its present content, or from that of
a moment ago where the caller says so. The same holds for the notes of removals: these bar peers
whose files are there still. If a folder cannot be read, or hangs, what was read last counts until
it can, and is among the problems.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import MisnamedPeer, TrustError, reason_of
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import private_dir
from saltext_ha.config.mapping import NAME
from saltext_ha.transport import peer_files
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.peer_files import PEERS_DIR, Entry
from saltext_ha.transport.removals import Removals

log = logging.getLogger(__name__)

RECENT = 0.25
"""
Seconds for which a look at the folder will do for the many requests of known peers: a look changes
threads twice, which takes up to half of the time of a small request. What this process pins and
unpins counts at once.
"""


@dataclass(frozen=True)
class Folder:
    """
    What the folder says. It is exchanged as a whole, for readers in other threads.

    :ivar found: the peers in it, by name; also those that are barred, and still have their files.
    :ivar pinned: those of them that are pinned. :ivar reachable: the same, with the URL to call.
    :ivar by_fingerprint: the same, by the fingerprint of their certificate.
    :ivar problems: file → what is wrong with it.
    :ivar misnamed: files among these that are called after another name → the peer in each.
    """

    found: Mapping[str, Peer] = field(default_factory=dict)
    pinned: Mapping[str, Peer] = field(default_factory=dict)
    reachable: Mapping[str, Peer] = field(default_factory=dict)
    by_fingerprint: Mapping[str, Peer] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    misnamed: Mapping[str, str] = field(default_factory=dict)


class Pins:
    """
    The pinned peers below *state_dir*.

    :param urls: name → URL, for peers that this master reaches at another URL than they tell.
    :param removals: files of peers that these bar pin nobody.
    :param looks: looks at the folder.
    :raises OSError: it cannot be made or read.
    """

    def __init__(
        self, state_dir: Path, urls: Mapping[str, str], removals: Removals, looks: Looks
    ) -> None:
        self._peers_dir = private_dir(state_dir / PEERS_DIR)
        self._urls, self._removals, self._looks = dict(urls), removals, looks
        self._files: dict[Entry, Peer] = {}
        """Files as they were last read → the peer in each."""
        self._seen: tuple[tuple[Entry, ...], frozenset[str]] | None = None
        """The files of peers, and those of removals, as they were last read."""
        self._folder = Folder()
        self._unread = ""
        """Why the folder cannot be read at present."""
        self._generation, self._changed, self._looked = 0, 0.0, float("-inf")
        # As long as it takes: a large group has many certificates, and nobody waits yet.
        self._follow()

    def peers(self) -> Mapping[str, Peer]:
        """Name → peer, with the URL to call (overrides applied)."""
        self._refresh()
        return MappingProxyType(self._folder.reachable)

    def pinned(self) -> Mapping[str, Peer]:
        """Name → peer as in the folder, to tell others."""
        self._refresh()
        return MappingProxyType(self._folder.pinned)

    def url_of(self, peer: Peer) -> str:
        """The URL at which to call *peer*, pinned or not (overrides applied)."""
        return self._urls.get(peer.name, peer.url)

    def by_fingerprint(self, fingerprint: str, within: float = 0.0) -> Peer | None:
        """
        The pinned peer with this certificate, or None.

        :param within: as for :meth:`generation`. For a certificate that was not there, the folder
            is looked at now.
        """
        if not self._looked_within(within) or fingerprint not in self._folder.by_fingerprint:
            self._refresh()
        return self._folder.by_fingerprint.get(fingerprint)

    def is_former(self, fingerprint: str | None) -> bool:
        """Whether a pinned peer had this certificate before it renewed it."""
        peers = self.pinned().values()
        return any(fingerprint in peer.fingerprints for peer in peers)

    def problems(self) -> Mapping[str, str]:
        """
        File → what is wrong with it; such a file pins no peer, and does not affect others. The
        folder is among them if it cannot be read.
        """
        self._refresh()
        unread = {str(self._peers_dir): self._unread} if self._unread else {}
        return MappingProxyType({**self._folder.problems, **unread})

    def damaged(self) -> dict[str, str]:
        """
        Masters whose files cannot be read, and why; these files are among :meth:`problems`. A copy
        of a pinned peer's file under another name is no master's.
        """
        self._refresh()
        folder = self._folder
        # Not the folder itself: what was read of it before still counts.
        return {
            name: why
            for path, why in folder.problems.items()
            if NAME.fullmatch(name := Path(path).stem)
            and folder.misnamed.get(path) not in folder.pinned
        }

    def undeleted(self) -> dict[str, str]:
        """The removed peers whose files are there still, and what to do; they are not pinned."""
        self._refresh()
        folder, at = self._folder, self._peers_dir
        return {
            name: f"{at / name}.json: {name} was removed from the group and stays out, but this "
            "file of it could not be deleted; delete it"
            for name in folder.found.keys() - folder.pinned.keys()
        }

    def generation(self, within: float = 0.0) -> int:
        """
        A number that changes whenever the set of pinned peers may have changed.

        :param within: what was read no more than so many seconds ago will do.
        """
        if not self._looked_within(within):
            self._refresh()
        return self._generation

    def last_change(self) -> float:
        """When :meth:`generation` last changed (``time.monotonic``); opens no file."""
        return self._changed

    def look(self) -> None:
        """Look now, as part of another look of *looks*."""
        self._look(self._follow)

    def _looked_within(self, seconds: float) -> bool:
        return 0 <= boot_clock() - self._looked < seconds

    def _refresh(self) -> None:
        self._look(lambda: self._looks(self._follow))

    def _look(self, follow: Callable[[], None]) -> None:
        try:
            follow()
        except OSError as exc:
            folder = exc.filename or self._peers_dir
            self._unread = (
                f"{folder}: {reason_of(exc)}; until it can be read, the masters that were pinned "
                "before count"
            )
        else:
            self._unread = ""

    def _follow(self) -> None:
        """Read the folder if it has changed, or other certificates are barred."""
        began = boot_clock()
        seen = peer_files.entries(self._peers_dir), self._removals.files()
        if seen != self._seen:
            self._read(seen[0])
            self._seen = seen
        self._looked = began

    def _read(self, entries: tuple[Entry, ...]) -> None:
        found, problems, misnamed = self._read_all(entries)
        for file, problem in problems.items():
            if self._folder.problems.get(file) != problem:
                log.error("peer file ignored: %s", problem)
        pinned = {name: peer for name, peer in found.items() if not self._removals.barred(peer)}
        reachable = {name: replace(peer, url=self.url_of(peer)) for name, peer in pinned.items()}
        by_fingerprint = {peer.fingerprint: peer for peer in reachable.values()}
        self._folder = Folder(found, pinned, reachable, by_fingerprint, problems, misnamed)
        self._generation, self._changed = self._generation + 1, time.monotonic()

    def _read_all(
        self, entries: tuple[Entry, ...]
    ) -> tuple[dict[str, Peer], dict[str, str], dict[str, str]]:
        """
        Name → peer; file → what is wrong with it; misnamed file → the peer in it. Only changed
        files are read: otherwise a group that grows by a hundred would read five thousand
        certificates.
        """
        peers: dict[str, Peer] = {}
        problems: dict[str, str] = {}
        misnamed: dict[str, str] = {}
        owners: dict[str, str] = {}
        read: dict[Entry, Peer] = {}
        for entry in entries:
            path = self._peers_dir / entry[0]
            try:
                peer = read[entry] = self._files.get(entry) or peer_files.read(path)
                if peer.fingerprint in owners:
                    raise TrustError(
                        f"{path}: has the certificate of {owners[peer.fingerprint]}, too; remove "
                        "one of the two files"
                    )
            except FileNotFoundError:
                continue
            except TrustError as exc:
                problems[str(path)] = str(exc)
                if isinstance(exc, MisnamedPeer):
                    misnamed[str(path)] = exc.name
            else:
                peers[peer.name] = peer
                owners[peer.fingerprint] = peer.name
        self._files = read
        return peers, problems, misnamed
