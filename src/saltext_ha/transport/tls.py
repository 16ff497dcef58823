"""
TLS between masters: version 1.3, both sides authenticated by pinned certificates.

A pinned certificate is its own trust anchor, whoever signed it; names and hosts in it are ignored.
The fingerprint of a certificate stands for it everywhere.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterable

from cryptography import x509

from saltext_ha.common.errors import TrustError, reason_of
from saltext_ha.transport import fingerprints
from saltext_ha.transport.identity import Identity

MAX_PEM = 16384
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME; ssl has no name for it


def read_certificate(pem: object) -> tuple[str, str]:
    """
    Check that *pem* is exactly one certificate that TLS accepts.

    :return: the certificate as normalized PEM, and its fingerprint.
    :raises TrustError: says what is wrong, but not where *pem* came from.
    """
    if not isinstance(pem, str) or len(pem) > MAX_PEM:
        raise TrustError("is not a PEM certificate")
    text = pem.strip()
    if text.count("-----BEGIN") != 1:
        raise TrustError("is not exactly one PEM certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(text)
        x509.load_der_x509_certificate(der).public_key()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=der)
    except Exception as exc:  # parsers raise a dozen types for damaged input
        raise TrustError(f"is not a usable PEM certificate: {reason_of(exc)}") from None
    return ssl.DER_cert_to_PEM_cert(der), fingerprints.of(der)


def server_context(identity: Identity, pinned: Iterable[str]) -> ssl.SSLContext:
    """
    The listener's context: admits holders of a *pinned* certificate (PEM), and callers without a
    certificate, which may only join.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would skip the check of the client's certificate.
    context.num_tickets = 0
    _anchor(context, pinned)
    return context


@functools.lru_cache(maxsize=128)
def client_context(identity: Identity, certificate: str) -> ssl.SSLContext:
    """
    The context for calls to a peer that must hold exactly *certificate* (PEM). The second call for
    a peer opens no file: the event loop must not wait for a file system that hangs.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, identity)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    _anchor(context, [certificate])
    return context


def joining_context() -> ssl.SSLContext:
    """
    A context that verifies nothing and shows no certificate.

    The caller must compare the server's fingerprint before it sends anything confidential.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(identity.certificate_file, identity.key_file)
    except (OSError, ssl.SSLError) as exc:
        raise TrustError(
            f"{identity.certificate_file}: cannot be used for TLS: {reason_of(exc)}"
        ) from None
    return context


def _anchor(context: ssl.SSLContext, certificates: Iterable[str]) -> None:
    # A pin ends when it is removed. A check of the dates in a certificate would only break a master
    # whose clock is years off, or a group that is ten years old.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    pem = "\n".join(certificates)
    if pem:
        context.load_verify_locations(cadata=pem)
