"""What a minion id and its public key may be: one normal form, one fingerprint, one check."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.printable import is_printable

MAX_ID_BYTES = 255  # the id is a file name
MAX_LENGTH = 4096  # a 16 384-bit RSA key in PEM takes 2.9 KB


def normalise(text: str) -> str:
    """
    *text* with ``\\n`` line ends and no white space around it, as ``salt.crypt.clean_key`` does.

    Salt itself writes and compares keys in this form.
    """
    return "\n".join(text.strip().splitlines())


def fingerprint(text: str) -> bytes:
    """
    SHA-256 over the lines between header and footer: what ``salt-key -f`` shows on 3006 and 3007
    and ``salt-call --local key.finger`` on every minion (``salt.utils.crypt.pem_finger``).
    """
    lines = list(filter(str.strip, text.strip().splitlines()))
    return hashlib.sha256("\n".join([*lines[1:-1], ""]).encode()).digest()


def show(key: bytes, short: bool = True) -> str:
    """A fingerprint for people: ``3a:9f:…``, or in full with ``short=False``."""
    return key[:4].hex(":") + ":…" if short else key.hex(":")


def find(keys: Iterable[bytes], wanted: str) -> bytes:
    """
    The only one of *keys* that begins with *wanted* (hex digits; colons are ignored).

    :raises HaError: no key or several begin so; names all of them.
    """
    digits = wanted.rstrip("…").replace(":", "").lower()
    there = sorted(keys)
    found = [key for key in there if digits and key.hex().startswith(digits)]
    if len(found) != 1:
        what = "several keys begin" if found else "no key begins"
        raise HaError(
            f"{what} with {wanted!r}; there are: {', '.join(show(key, False) for key in there)}"
        )
    return found[0]


def is_id(value: object) -> bool:
    """Whether *value* may be the id of a minion."""
    try:
        check_id(value)
    except InvalidRecord:
        return False
    return True


def check_id(minion_id: object) -> str:
    """
    *minion_id*, if it is valid.

    This is as strict as ``salt.utils.verify.valid_id`` (no path separators, no NUL, stays in its
    folder). Also: no leading dot (Salt has its own files with such names in the key folders),
    nothing unprintable, and short enough for a file name.

    :raises InvalidRecord: says why.
    """
    if not isinstance(minion_id, str) or not minion_id:
        what = "is empty" if minion_id == "" else f"is no text but {type(minion_id).__name__}"
        raise InvalidRecord(f"minion id {what}")
    flaw = _flaw(minion_id)
    if flaw:
        raise InvalidRecord(f"minion id {minion_id[:40]!a}{flaw}")
    return minion_id


def _flaw(minion_id: str) -> str:
    if len(minion_id) > MAX_ID_BYTES:  # before anything that takes time or memory
        return f"… has more than {MAX_ID_BYTES} bytes"
    if minion_id.startswith("."):
        return " starts with a dot"
    if "/" in minion_id or "\\" in minion_id:
        return " contains a path separator"
    if not is_printable(minion_id):
        return " contains an unprintable character"
    try:
        length = len(minion_id.encode())
    except UnicodeEncodeError:
        return " is not valid Unicode"
    return f"… has {length} bytes; at most {MAX_ID_BYTES}" if length > MAX_ID_BYTES else ""


def check_shape(text: str) -> None:
    """
    Refuse text without the outer form of a PEM public key; cheap enough for every file.

    :raises InvalidRecord: says why.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidRecord(f"public key of {len(text)} characters; at most {MAX_LENGTH}")
    rest, _, last = text.rpartition("\n")
    if not text.startswith("-----BEGIN") or "\n" not in rest or "-----END" not in last:
        raise InvalidRecord("not a public key in PEM: no BEGIN and END lines")


def check(text: str) -> None:
    """
    Refuse text that is not an RSA public key in PEM, the only kind that Salt uses.

    :raises InvalidRecord: says why.
    """
    check_shape(text)
    # Text after the first key would go to every master with that key.
    if text.count("-----BEGIN") != 1:
        raise InvalidRecord("not exactly one public key in PEM")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise InvalidRecord(f"not a public key in PEM: {exc}") from None
    if not isinstance(key, RSAPublicKey):
        raise InvalidRecord(f"not an RSA key but {type(key).__name__}")
