"""Makes key folders of any size, without making RSA key pairs."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ACCEPTED = "minions"
PENDING = "minions_pre"
FOLDERS = (ACCEPTED, PENDING, "minions_rejected", "minions_denied")
BITS = 2048


def public_keys(seed: int) -> Iterator[str]:
    """
    Endless public keys in the form that Salt writes, the same for the same *seed*.

    Each is a valid RSA public key of 2048 bits. Its modulus is a random odd number: nobody has the
    private half, and no measurement needs it, while a real pair would take 0.1 s.
    """
    source = random.Random(seed)
    while True:
        modulus = source.getrandbits(BITS) | 1 | 1 << (BITS - 1)
        key = RSAPublicNumbers(65537, modulus).public_key()
        yield key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode().strip()


def ids(count: int, prefix: str = "web") -> list[str]:
    """*count* minion ids of an ordinary length."""
    return [f"{prefix}{number:06}.prod.example.com" for number in range(count)]


def plant(pki_dir: Path, minion_ids: Iterable[str], folder: str = ACCEPTED, seed: int = 1) -> None:
    """Write one whole key file for each id into *folder*, as if the folder had been copied."""
    for name in FOLDERS:
        (pki_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for minion_id, text in zip(minion_ids, public_keys(seed), strict=False):
        # Salt and the engine skip dot files; a bare open() could be read half written.
        temporary = pki_dir / folder / ".planted.new"  # an id may be as long as a name can be
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o600)
        temporary.rename(pki_dir / folder / minion_id)


def accept(pki_dir: Path, minion_ids: Iterable[str]) -> None:
    """Move pending keys to the accepted ones, as ``salt-key -a`` does on 3006 and 3007."""
    for minion_id in minion_ids:
        (pki_dir / PENDING / minion_id).rename(pki_dir / ACCEPTED / minion_id)


def count(pki_dir: Path, folder: str = ACCEPTED) -> int:
    """How many keys *folder* holds; none if it is not there yet."""
    try:
        with os.scandir(pki_dir / folder) as entries:
            return sum(not entry.name.startswith(".") for entry in entries)
    except FileNotFoundError:
        return 0


def are_there(pki_dir: Path, folder: str = ACCEPTED) -> bool:
    """Whether *folder* holds any key; fast, however many there are."""
    with os.scandir(pki_dir / folder) as entries:
        return any(not entry.name.startswith(".") for entry in entries)


def fresh(prefix: str) -> Iterator[str]:
    """Endless ids, all different."""
    return (f"{prefix}{number:06}.prod.example.com" for number in itertools.count())
