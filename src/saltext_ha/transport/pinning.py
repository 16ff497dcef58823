"""
What may be pinned, beside the peers that are; pure.

A name has one certificate, and a certificate one name. Only a master itself can have its
certificate followed by another: see :mod:`.succession`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from saltext_ha.common.errors import TrustError
from saltext_ha.transport import fingerprints, succession
from saltext_ha.transport.peer import Peer, make_peer


def check_room(peers: Sequence[Peer], pinned: Mapping[str, Peer], most: int) -> None:
    """
    Check that the group, including this master, has at most *most* masters with all of *peers*.

    :raises TrustError: it is full.
    """
    names = {peer.name for peer in peers}
    already = len(pinned.keys() | names)
    if names - pinned.keys() and already >= most:
        only = f"{peers[0].name}: " if len(peers) == 1 else ""
        raise TrustError(
            f"{only}this group has {already} masters already, and takes {most}; is each of them "
            "known (salt-run ha.peers)? If it is to be larger: ha: max_members on every master"
        )


def check_certificate(peer: Peer, same: Peer | None, there: Peer | None) -> None:
    """
    Check that *peer* has the certificate of its name.

    :param same: the pinned peer with that certificate, if any. :param there: that with that name.
    :raises TrustError: the certificate has another name, or the name another certificate that the
        new one does not follow.
    """
    if same is not None and same.name != peer.name:
        raise TrustError(f"{peer.name}: that certificate is pinned already, as {same.name!r}")
    if there is not None and there.certificate not in peer.former:
        _check_same(there, peer)


def merged(there: Peer, peer: Peer) -> Peer:
    """
    What is to be pinned when *peer* is pinned again, with the certificate that it has *there*.

    :raises TrustError: it has another certificate.
    """
    _check_same(there, peer)
    # A master that an operator admits here no longer counts as introduced by another.
    introducer = peer.introducer if peer.introducer == "" else there.introducer
    return replace(there, url=peer.url, introducer=introducer)


def renewed(peer: Peer, chain: Sequence[str]) -> Peer:
    """
    The pinned *peer* with the newest certificate of its *chain* (all of them, the oldest first).

    :return: *peer* itself, if it has that.
    :raises TrustError: the newest does not follow from the pinned.
    """
    try:
        newest = succession.after(peer.certificate, chain)
    except TrustError as exc:
        raise TrustError(f"{peer.name}: {exc}") from None
    if newest == peer.certificate:
        return peer
    # The certificates before the pinned one are known here.
    older = (*peer.former, *chain[chain.index(peer.certificate) : -1])
    return make_peer(peer.name, peer.url, newest, peer.added, older, peer.introducer)


def short(peer: Peer) -> str:
    """The certificate of *peer*, for messages: ``3a:9f:12:…``."""
    return fingerprints.short(peer.fingerprint, 3)


def _check_same(there: Peer, peer: Peer) -> None:
    if there.fingerprint != peer.fingerprint:
        raise TrustError(
            f"{peer.name}: pinned already with another certificate ({short(there)}, not "
            f"{short(peer)}); if that master is gone for good: salt-run ha.remove_peer {peer.name}"
        )
