"""Key pairs for minions that do not run, and access to Salt's key files on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

STATES = ("minions", "minions_pre", "minions_rejected", "minions_denied")

_made: list[tuple[str, str]] = []


def new_pair() -> tuple[str, str]:
    """A fresh RSA 2048 pair as ``(private PEM, public PEM)``, in the form that Salt writes."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


class KeyPairs:
    """
    Key pairs: one object hands out each pair once, but a process makes each pair only once.

    A pair takes about 0.1 s of a core to make. A second lab in one process gets the same pairs
    again, which is harmless: two labs never meet.
    """

    def __init__(self) -> None:
        self._used = 0

    def next(self) -> tuple[str, str]:
        """``(private PEM, public PEM)``."""
        while len(_made) <= self._used:
            _made.append(new_pair())
        self._used += 1
        return _made[self._used - 1]


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write *text* so that no reader ever sees a part of it: a hidden file, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Salt skips dot files in its key folders.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.chmod(mode)  # the umask may have taken bits away
    temporary.replace(path)


def read_entry(pki_dir: Path, minion_id: str) -> dict[str, str]:
    """The key files of one minion: ``{state: text of the public key}``."""
    found = {}
    for state in STATES:
        with contextlib.suppress(FileNotFoundError):
            found[state] = (pki_dir / state / minion_id).read_text(encoding="utf-8")
    return found


def read_states(pki_dir: Path) -> dict[str, dict[str, str]]:
    """
    Read all key files below *pki_dir*.

    :return: ``{"minions": {minion id: text of the public key}, "minions_pre": …, …}``; all four
        states are there, empty or not.
    """
    found: dict[str, dict[str, str]] = {}
    for state in STATES:
        keys = found[state] = {}
        folder = pki_dir / state
        if not folder.is_dir():
            continue
        for path in folder.iterdir():
            if path.name.startswith("."):
                continue
            try:
                keys[path.name] = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                continue  # moved while we looked
    return found
