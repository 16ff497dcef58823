"""
Handing the group's master key to a master that joins: read on one side, put in place on the other.

Minions know a group of hot-hot masters by one key pair. It travels inside the join, which is
authenticated on both sides, and only when the invitation says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from saltext_ha import master_key
from saltext_ha.errors import TrustError
from saltext_ha.faults import point
from saltext_ha.peering.files import private_dir, sync_dir, write_whole

PRIVATE_MODE = 0o400
PUBLIC_MODE = 0o644
ROLES = ("master", "sign")


def take(opts: Mapping[str, Any]) -> dict[str, str]:
    """
    The key pair of this master, and its signing pair where it has one, as texts to send.

    :raises TrustError: there is no complete pair here.
    """
    shared = {}
    for role, name in zip(ROLES, _names(opts), strict=True):
        private, public = (master_key.read(opts, f"{name}.{end}") for end in ("pem", "pub"))
        if private and public:
            shared.update({f"{role}.pem": private.decode(), f"{role}.pub": public.decode()})
    if "master.pem" not in shared:
        raise TrustError("this master has no master key to share; was salt-master ever started?")
    return shared


def place(opts: Mapping[str, Any], shared: Mapping[str, Any], force: bool = False) -> list[str]:
    """
    Put the pairs that :func:`take` read on another master in place here.

    :param force: replace a different pair that is there; it is kept beside as ``*.before-<time>``.
    :return: notes for the operator; nothing is done, and none are given, where the same pair is
        there already.
    :raises TrustError: the halves do not fit, or a different pair is there; nothing was changed.
    """
    pki = Path(opts["pki_dir"])
    todo: list[tuple[Path, str, str]] = []
    for role, name in zip(ROLES, _names(opts), strict=True):
        private, public = shared.get(f"{role}.pem"), shared.get(f"{role}.pub")
        if not isinstance(private, str) or not isinstance(public, str):
            continue
        _check_pair(private, public, opts)
        there = master_key.read(opts, f"{name}.pub")
        if there and there.split() == public.encode().split():
            continue
        if there and not force:
            raise TrustError(
                f"{pki / name}.pem: another {role} key is here; minions that know it would refuse "
                "the group's. If that is meant: ha.join with the same token and force=True"
            )
        todo.append((pki / name, private, public))
    private_dir(pki)
    for base, private, public in todo:
        # At every moment there is a private half, and no public one beside it that does not fit:
        # Salt makes a missing public half from the private one, and a new pair where it finds none.
        pem, pub = (base.with_name(f"{base.name}.{end}") for end in ("pem", "pub"))
        before = f".before-{time.strftime('%Y%m%dT%H%M%S')}"
        # What an attempt that was interrupted put there is no key to be kept.
        if pem.exists() and pem.read_bytes() != private.encode():
            point("handover.aside")
            write_whole(pem.with_name(pem.name + before), pem.read_bytes(), PRIVATE_MODE)
        if pub.exists():
            point("handover.aside")
            pub.rename(pub.with_name(pub.name + before))
        sync_dir(pki)
        point("handover.private")
        write_whole(pem, private.encode(), PRIVATE_MODE)
        point("handover.public")
        write_whole(pub, public.encode(), PUBLIC_MODE)
    point("handover.done")
    return [f"{base}.pem is the group's now: start or restart salt-master" for base, _, _ in todo]


def _names(opts: Mapping[str, Any]) -> tuple[str, str]:
    return master_key.name_of(opts), str(opts.get("master_sign_key_name") or "master_sign")


def _check_pair(private: str, public: str, opts: Mapping[str, Any]) -> None:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    password = str(opts["key_pass"]).encode() if opts.get("key_pass") else None
    try:
        derived = load_pem_private_key(private.encode(), password).public_key()
        given = load_pem_public_key(public.encode())
    except (TypeError, ValueError) as exc:
        raise TrustError(f"the key that was handed over cannot be read: {exc}") from None
    if derived.public_bytes(*form) != given.public_bytes(*form):
        raise TrustError("the two halves of the key that was handed over do not fit")
