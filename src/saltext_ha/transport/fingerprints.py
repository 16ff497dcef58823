"""
Fingerprints of certificates: their SHA-256, as lower-case hex pairs joined by colons.

Salt writes those of its master keys in the same way.
"""

from __future__ import annotations

import hashlib
import re
import ssl

PATTERN = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){31}")


def of(der: bytes) -> str:
    """The fingerprint of a DER certificate."""
    return hashlib.sha256(der).digest().hex(":")


def of_pem(pem: str) -> str:
    """
    The fingerprint of a PEM certificate.

    :raises ValueError: it is none.
    """
    return of(ssl.PEM_cert_to_DER_cert(pem))


def digest(fingerprint: str) -> bytes:
    """
    The 32 bytes that *fingerprint* stands for.

    :raises ValueError: it is none.
    """
    if not PATTERN.fullmatch(fingerprint):
        raise ValueError("this is no fingerprint of a certificate")
    return bytes.fromhex(fingerprint.replace(":", ""))


def short(fingerprint: str, pairs: int) -> str:
    """Its first *pairs*, for messages: ``3a:9f:12:…``."""
    return f"{fingerprint[: 3 * pairs - 1]}:…"
