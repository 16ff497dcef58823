"""The description of a peer (its name, its URL, its certificates), checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common.errors import TrustError
from saltext_ha.config.mapping import NAME, check_url
from saltext_ha.transport import fingerprints, succession
from saltext_ha.transport.tls import read_certificate


@dataclass(frozen=True)
class Peer:
    """
    A pinned master. ``certificate`` is PEM, ``added`` the ISO time at which it was pinned here.

    ``introducer`` is the member that told this master of the peer; empty: the peer was admitted
    here by a token or the secret, or admitted this master; None: unknown (of an older release).
    """

    name: str
    url: str
    certificate: str
    fingerprint: str
    added: str = ""
    former: tuple[str, ...] = ()
    """The peer's earlier certificates, the oldest first; see :mod:`.succession`."""
    introducer: str | None = None

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all certificates of the peer, present and former."""
        return frozenset((self.fingerprint, *map(fingerprints.of_pem, self.former)))

    @property
    def address(self) -> str:
        """``host:port``, for messages."""
        return urlsplit(self.url).netloc


def make_peer(
    name: object,
    url: object,
    certificate: object,
    added: object = "",
    former: object = (),
    introducer: str | None = None,
) -> Peer:
    """
    Build a :class:`Peer` from values of unknown origin.

    :raises TrustError: says which value is wrong, and why.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise TrustError(f"name {name!r:.80}: takes letters, digits, '.', '_' and '-', at most 64")
    try:
        checked = check_url(url)
    except ValueError as exc:
        raise TrustError(f"url {url!r:.80}: {exc!s:.200}") from None
    try:
        pem, digest = read_certificate(certificate)
        if not isinstance(former, (list, tuple)) or len(former) > succession.MAX_FORMER:
            raise TrustError("its former certificates are no list, or too many")
        older = tuple(read_certificate(entry)[0] for entry in former)
        if older:
            succession.check((*older, pem))
    except TrustError as exc:
        raise TrustError(f"certificate of {name}: {exc}") from None
    when = added if isinstance(added, str) else ""
    return Peer(name, checked, pem, digest, when, older, introducer)


def read_peer(entry: Mapping[str, Any]) -> Peer:
    """
    The peer that *entry*, from another master, describes.

    :raises TrustError: as :func:`make_peer`.
    """
    name, url, certificate = (entry.get(key) for key in ("name", "url", "certificate"))
    return make_peer(name, url, certificate, former=entry.get("former", ()))
