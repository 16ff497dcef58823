"""
Successive certificates: finds the present certificate of a master that had another one before.

A renewed certificate is signed with the key of the one before it. A master that pinned the old one
can check the new one by itself, from any sender and at any time. So when a member renews its
certificate, no other member has to be up or to be asked.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from saltext_ha.common.errors import TrustError

# So many certificates fit into a request of a stranger.
MAX_FORMER = 16


def expiry(pem: str) -> datetime.datetime:
    """When a certificate expires."""
    certificate = x509.load_pem_x509_certificate(pem.encode("ascii"))
    # cryptography has the name with _utc since release 42, where the other is deprecated.
    aware = getattr(certificate, "not_valid_after_utc", None)
    if isinstance(aware, datetime.datetime):
        return aware
    return certificate.not_valid_after.replace(tzinfo=datetime.timezone.utc)


def expired(pem: str) -> bool:
    """Whether a certificate is not valid any more."""
    return expiry(pem) <= datetime.datetime.now(datetime.timezone.utc)


def check(chain: Sequence[str]) -> None:
    """
    Check that each certificate of *chain* (PEM, the oldest first) was signed with the key of the
    one before it.

    :raises TrustError: says what is wrong.
    """
    if len(chain) > MAX_FORMER + 1:
        raise TrustError(f"more than {MAX_FORMER} former certificates")
    certificates = [x509.load_pem_x509_certificate(pem.encode("ascii")) for pem in chain]
    for older, newer in itertools.pairwise(certificates):
        try:
            key, algorithm = older.public_key(), newer.signature_hash_algorithm
            if not isinstance(key, ec.EllipticCurvePublicKey) or algorithm is None:
                raise UnsupportedAlgorithm("not ECDSA")
            key.verify(newer.signature, newer.tbs_certificate_bytes, ec.ECDSA(algorithm))
        except UnsupportedAlgorithm:
            raise TrustError(
                "a former certificate is not of the kind that signs its successor"
            ) from None
        except InvalidSignature:
            raise TrustError("a certificate was not signed with the key of the former") from None


def after(pinned: str, chain: Sequence[str]) -> str:
    """
    The certificate that replaced *pinned*, according to *chain* (see :func:`check`).

    :raises TrustError: *chain* does not continue from *pinned*, or *pinned* has expired and cannot
        vouch for another certificate.
    """
    if pinned not in chain:
        raise TrustError("shows a certificate that does not follow from the pinned one")
    if expired(pinned) and chain[-1] != pinned:
        raise TrustError(
            f"its certificate that is pinned here ended on {expiry(pinned):%Y-%m-%d}, and vouches "
            "for no other any more. Is the clock here right? Then salt-run ha.leave here; on "
            "another member salt-ha invite; here salt-ha join --token-file -"
        )
    check(chain[chain.index(pinned) :])
    return chain[-1]
