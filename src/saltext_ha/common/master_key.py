"""
The key by which this master identifies itself, and whether its two halves fit.

Where Salt keeps it, by version:

- 3006, 3007: ``master.pem`` / ``master.pub`` in ``pki_dir``;
- 3008: ``<id>.pem`` / ``<id>.pub`` when there is such a pair (it renames ``master.*`` to that at
  its first start and leaves links behind), in the store named by ``keys.cache_driver``;
- with ``cluster_id``: ``cluster.*`` in ``cluster_pki_dir`` is what minions see.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common import cluster, key_driver

# The pair by which minions know a master, and the pair that vouches for it.
MASTER, SIGN = ROLES = ("master", "sign")
FITS = "fits"
DOES_NOT_FIT = "does not fit"


def describe(opts: Mapping[str, Any]) -> dict[str, Any]:
    """
    The master's keys in words and fingerprints; no key material.

    :returns: ``fingerprint`` (SHA-256 as ``master_finger`` of a minion takes it), ``pair``
        (``fits`` or ``does not fit``) and, of a master that signs, ``sign_fingerprint`` and
        ``sign_pair``; each a text, None where there is no such key, or ``{"unknown": why}`` where
        it could not be read.
    """
    described: dict[str, Any] = dict.fromkeys(("fingerprint", "pair"))
    described.update(dict.fromkeys(("sign_fingerprint", "sign_pair")))
    try:
        name = name_of(opts)
        described["fingerprint"] = fingerprint(read(opts, f"{name}.pub"))
        described["pair"] = _pair(
            read(opts, f"{name}.pem"), read(opts, f"{name}.pub"), passphrase(opts)
        )
        if opts.get("master_sign_pubkey"):
            name = name_of(opts, SIGN)
            sign = read(opts, f"{name}.pub")
            described["sign_fingerprint"] = fingerprint(sign)
            described["sign_pair"] = _pair(read(opts, f"{name}.pem"), sign, passphrase(opts, SIGN))
    except Exception as exc:
        # A key store of the site's own may raise anything. The text of such an error may quote the
        # key that it read, so tell only its type.
        reason = exc.strerror if isinstance(exc, OSError) else None
        unknown = {"unknown": f"master key: {reason or type(exc).__name__}"}
        return {option: value or unknown for option, value in described.items()}
    return described


def public_fingerprint(opts: Mapping[str, Any]) -> str:
    """The fingerprint of the key in the files; empty if it cannot be read."""
    try:
        return fingerprint(read(opts, f"{name_of(opts)}.pub")) or ""
    except Exception:  # as in describe()
        return ""


def at_start(opts: Mapping[str, Any]) -> str:
    """
    The fingerprint of the key in the files, with which a master that starts now runs until it ends.
    Empty if it cannot be read, and for a member of Salt's cluster, which 3008 gives the key of the
    cluster while it runs.
    """
    return "" if cluster.of(opts) else public_fingerprint(opts)


def name_of(opts: Mapping[str, Any], role: str = MASTER) -> str:
    """The name of the pair that minions of this master see, or of *role*, without its ending."""
    if role == SIGN:
        return str(opts.get("master_sign_key_name") or "master_sign")
    if cluster.of(opts):
        return "cluster"
    if key_driver.of(opts):  # 3008 and later
        own = str(opts.get("id", "")).removesuffix("_master")
        if own and read(opts, f"{own}.pem"):
            return own
    return "master"


def read(opts: Mapping[str, Any], name: str) -> bytes | None:
    """One half of a pair as PEM, or None when it is not there; ``OSError`` as files raise it."""
    if in_files(opts):
        clustered = name.startswith("cluster.")
        folder = Path(opts["cluster_pki_dir"] if clustered else opts["pki_dir"])
        path = folder / name
        if path.is_symlink() and key_driver.of(opts):
            return None  # 3008 leaves links for a downgrade to 3007, and reads none itself
        return path.read_bytes() if path.is_file() else None
    import salt.cache

    text = salt.cache.Cache(opts, driver=key_driver.of(opts)).fetch("master_keys", name)
    if not text:
        return None
    return text if isinstance(text, bytes) else str(text).encode()


def in_files(opts: Mapping[str, Any]) -> bool:
    """Whether this master keeps its own keys as files."""
    return key_driver.of(opts) in ("", key_driver.FILES)


def passphrase(opts: Mapping[str, Any], role: str = MASTER) -> bytes | None:
    """The configured passphrase of the private half of a pair; None: it is not encrypted."""
    if role == SIGN:
        value = opts.get("signing_key_pass")
    else:
        value = opts.get("cluster_key_pass" if cluster.of(opts) else "key_pass")
    return str(value).encode() if value else None


def fingerprint(pem: bytes | None) -> str | None:
    """The SHA-256 of a public key as a minion's ``master_finger`` takes it; None without a key."""
    if not pem:
        return None
    # Without the first and last line, as a minion's master_finger and salt-key of 3006 and 3007
    # have it. salt-key of 3008 hashes those lines too and prints another fingerprint for the
    # same key, so its output cannot be compared across versions.
    import salt.utils.crypt

    body = [line.strip() + b"\n" for line in pem.splitlines() if line.strip()][1:-1]
    return str(salt.utils.crypt.pem_finger(key=b"".join(body), sum_type="sha256"))


def _pair(private: bytes | None, public: bytes | None, password: bytes | None) -> Any:
    if not private or not public:
        return None
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )

    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        ours = load_pem_private_key(private, password).public_key().public_bytes(*form)
        theirs = load_pem_public_key(public).public_bytes(*form)
    except TypeError:
        return {"unknown": "master key: needs another key_pass (encrypted, or not) to be opened"}
    except ValueError:
        return {"unknown": "master key: damaged, or key_pass is wrong"}
    return FITS if ours == theirs else DOES_NOT_FIT
