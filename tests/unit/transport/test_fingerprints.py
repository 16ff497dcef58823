"""Fingerprints of certificates, and the bytes that they stand for."""

from __future__ import annotations

import hashlib

import pytest

from saltext_ha.transport import fingerprints


def test_the_bytes_of_a_fingerprint() -> None:
    assert fingerprints.digest(fingerprints.of(b"x")) == hashlib.sha256(b"x").digest()


@pytest.mark.parametrize("text", ["", "abcd", "aa:bb", "z" * 95, "aa" * 32, ":".join(["AA"] * 32)])
def test_what_is_no_fingerprint_has_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        fingerprints.digest(text)
