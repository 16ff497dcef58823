"""Public keys of minions that do not exist, made once a test run."""

from __future__ import annotations

import functools

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

JUNK = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"
"""In the form of a public key, and none."""

# Ids that a person, or a file system that folds names, may take for web1, or for one another.
LOOK_ALIKES = {
    "a Cyrillic e": "w\u0435b1",
    "full width": "\uff57\uff45\uff42\uff11",
    "a letter and an accent": "we\u0301b1",
    "the same as one letter": "w\u00e9b1",
    "capitals": "WEB1",
}


@functools.cache
def public_key(number: int) -> str:
    """The *number*-th public key, in Salt's normal form."""
    # Small keys are quick to make, and nothing here depends on their length.
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode().strip()


def public_keys(count: int) -> list[str]:
    return [public_key(number) for number in range(count)]
