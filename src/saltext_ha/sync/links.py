"""Keeps one link to every pinned peer, as members come, move, renew certificates and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from saltext_ha.common.tasks import Tasks
from saltext_ha.replication.record import Record
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.link import Link
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import RECENT, Pins


class Links(Mapping[str, Link]):
    """
    The links to the peers that *pins* has, by the peer's name.

    :ivar contacts: the contact of each link, for those who only ask peers.
    :param identity: returns the present identity of this master.
    :param make: makes the link to a peer, with that identity.
    :param tasks: runs the links.
    """

    def __init__(
        self,
        pins: Pins,
        identity: Callable[[], Identity],
        make: Callable[[Peer, Identity], Link],
        tasks: Tasks,
    ) -> None:
        self._pins, self._identity, self._make = pins, identity, make
        self._tasks = tasks
        self._links: dict[str, Link] = {}
        self.contacts: dict[str, Contact] = {}
        self._seen: tuple[int, Identity] | None = None

    def __getitem__(self, name: str) -> Link:
        return self._links[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    def push(self, records: Sequence[Record]) -> None:
        """Send records that changed here to every peer."""
        for link in self._links.values():
            link.push(records)

    async def close(self) -> None:
        """Close all links, breaking off calls."""
        for link in list(self._links.values()):
            await link.close()

    async def follow(self) -> None:
        """Give every pinned peer one link, under its present address and certificate."""
        identity = self._identity()
        seen = self._pins.generation(RECENT), identity
        if seen == self._seen:
            return
        peers = dict(self._pins.peers())
        renewed = self._seen is not None and self._seen[1] is not identity
        former: dict[str, Contact] = {}
        for name, link in list(self._links.items()):
            if renewed or peers.get(name) != link.contact.peer:
                del self._links[name]
                former[name] = self.contacts.pop(name)
                await link.close()
                self._tasks.cancel(_task(name))
        for name, peer in peers.items():
            if name not in self._links:
                self._links[name] = link = self._make(peer, identity)
                self.contacts[name] = link.contact
                if name in former:
                    link.contact.follows(former[name])
                self._tasks.start(_task(name), link.run())
        self._seen = seen


def _task(name: str) -> str:
    return f"link {name}"
