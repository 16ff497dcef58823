"""
Handing key pairs to a master that joins: read on one side, put in place on the other.

Minions know a group of hot-hot masters by one key pair. Where the masters keep different ones,
minions can know them by the signing pair that vouches for each. Either travels inside the join,
which is authenticated on both sides, and only when the invitation says so.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping, Sequence
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
from saltext_ha.peering.files import private_dir, write_whole

PRIVATE_MODE = 0o400
PUBLIC_MODE = 0o644
MASTER, SIGN = ROLES = ("master", "sign")


def take(opts: Mapping[str, Any], roles: Sequence[str] = ROLES) -> dict[str, str]:
    """
    Key pairs of this master as texts to send: that of the first of *roles*, and those of the
    others where it has one.

    :raises TrustError: there is no complete pair for the first role here.
    """
    shared = {}
    for role in roles:
        name = _name(opts, role)
        private, public = (master_key.read(opts, f"{name}.{end}") for end in ("pem", "pub"))
        if private and public:
            shared.update({f"{role}.pem": private.decode(), f"{role}.pub": public.decode()})
    if roles and f"{roles[0]}.pem" not in shared:
        raise TrustError(
            "this master has no master key to share; was salt-master ever started?"
            if roles[0] == MASTER
            else "this master has no signing pair to share; set master_sign_pubkey: True in its "
            "configuration and restart salt-master, which makes one"
        )
    return shared


def fingerprints(opts: Mapping[str, Any]) -> dict[str, str | None]:
    """Role → fingerprint of the public key that is here for it, or None."""
    return {
        role: master_key.fingerprint(master_key.read(opts, f"{_name(opts, role)}.pub"))
        for role in ROLES
    }


def place(opts: Mapping[str, Any], shared: Mapping[str, Any], force: bool = False) -> list[str]:
    """
    Put the pairs that :func:`take` read on another master in place here.

    :param force: replace a different pair that is there; it is kept beside as ``*.before-<time>``.
    :return: notes for the operator.
    :raises TrustError: half a pair came, the halves do not fit, or a different pair is there;
        nothing was changed.
    """
    pki = Path(opts["pki_dir"])
    todo: list[tuple[Path, str, str]] = []
    for role in ROLES:
        private, public = shared.get(f"{role}.pem"), shared.get(f"{role}.pub")
        if private is None and public is None:
            continue
        if not isinstance(private, str) or not isinstance(public, str):
            raise TrustError(f"only half of the {role} key pair was handed over")
        name = _name(opts, role)
        _check_pair(private, public, _passphrase(opts, role))
        there = master_key.read(opts, f"{name}.pub")
        if there and there.split() == public.encode().split():
            continue
        if there and not force:
            raise TrustError(_in_the_way(opts, role))
        if not master_key.in_files(opts):
            raise TrustError(
                f"keys.cache_driver {opts['keys.cache_driver']} does not keep {name}.pem as a "
                "file; put the group's pair there by its own means"
            )
        todo.append((pki / name, private, public))
    private_dir(pki)
    for base, private, public in todo:
        stamp = time.strftime("%Y%m%dT%H%M%S")
        for end in ("pub", "pem"):
            old = base.with_name(f"{base.name}.{end}")
            if old.exists():
                # Copied, not moved: after a crash Salt would find no key, and make a third one.
                aside = old.with_name(f"{old.name}.before-{stamp}")
                write_whole(aside, old.read_bytes(), stat.S_IMODE(old.stat().st_mode))
        # The private half first: Salt makes the public one from it, never the other way round.
        write_whole(base.with_name(f"{base.name}.pem"), private.encode(), PRIVATE_MODE)
        write_whole(base.with_name(f"{base.name}.pub"), public.encode(), PUBLIC_MODE)
    notes = [f"{base}.pem is the group's now: start or restart salt-master" for base, _, _ in todo]
    return [*notes, *(_signing_notes(opts) if f"{SIGN}.pem" in shared else ())]


def foretell(
    opts: Mapping[str, Any],
    theirs: Mapping[str, Any],
    shares: Sequence[str],
    force: bool = False,
) -> tuple[list[str], list[str]]:
    """
    What :func:`place` would do, from fingerprints alone.

    :param theirs: :func:`fingerprints` of the inviting master.
    :param shares: the roles that the invitation hands over.
    :return: notes for the operator, and what would not work.
    """
    notes, problems = [], []
    for role, ours in fingerprints(opts).items():
        group = theirs.get(role)
        if not group or group == ours:
            continue
        path = f"{Path(opts['pki_dir']) / _name(opts, role)}.pem"
        if role not in shares:
            if role == MASTER:
                notes.append(
                    f"master key: this master's differs from the group's ({group[:14]}:…), and "
                    "stays; hot-hot minions need one key: ha.invite share_master_key=True"
                )
        elif not ours:
            notes.append(f"{role} key: the group's ({group[:14]}:…) would be put in place: {path}")
        elif force:
            notes.append(f"{role} key: {path} would be replaced by the group's and kept beside")
        else:
            problems.append(_in_the_way(opts, role))
    return notes, problems


def _in_the_way(opts: Mapping[str, Any], role: str) -> str:
    return (
        f"{Path(opts['pki_dir']) / _name(opts, role)}.pem: another {role} key is here; minions "
        "that know it would refuse the group's. If that is meant: ha.join with the same token and "
        "force=True"
    )


def _signing_notes(opts: Mapping[str, Any]) -> list[str]:
    public = f"{Path(opts['pki_dir']) / _name(opts, SIGN)}.pub"
    notes = []
    if not opts.get("master_sign_pubkey"):
        notes.append("set master_sign_pubkey: True in this master's configuration and restart it")
    return [
        *notes,
        f"minions need {public} as /etc/salt/pki/minion/{Path(public).name} and "
        "verify_master_pubkey_sign: True; turn it on for masters and minions together: either "
        "refuses the other while only one of them does it",
    ]


def _name(opts: Mapping[str, Any], role: str) -> str:
    if role == MASTER:
        return master_key.name_of(opts)
    return str(opts.get("master_sign_key_name") or "master_sign")


def _passphrase(opts: Mapping[str, Any], role: str) -> bytes | None:
    value = opts.get("key_pass" if role == MASTER else "signing_key_pass")
    return str(value).encode() if value else None


def _check_pair(private: str, public: str, password: bytes | None) -> None:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        derived = load_pem_private_key(private.encode(), password).public_key()
        given = load_pem_public_key(public.encode())
    except (TypeError, ValueError) as exc:
        raise TrustError(f"the key that was handed over cannot be read: {exc}") from None
    if derived.public_bytes(*form) != given.public_bytes(*form):
        raise TrustError("the two halves of the key that was handed over do not fit")
