"""
Handing the group's master key to a master that joins: read on one side, put in place on the other.

Minions know a group of hot-hot masters by one key pair. It travels inside the join, which is
authenticated on both sides, and only when the invitation says so.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from saltext_ha import cluster, master_key
from saltext_ha.errors import TrustError
from saltext_ha.faults import point
from saltext_ha.peering.files import sync_dir, write_whole

PRIVATE_MODE = 0o400
PUBLIC_MODE = 0o644
# The pairs that are handed over, and the option with the passphrase of each.
ROLES = {"master": "key_pass", "sign": "signing_key_pass"}
_FORM = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def take(opts: Mapping[str, Any]) -> dict[str, str]:
    """
    The key pair of this master, and its signing pair where it has one, as texts to send.

    :raises TrustError: there is no complete pair here, or it is not ours to hand over.
    """
    refuse_in_cluster(opts)
    shared = {}
    for role, name in zip(ROLES, _names(opts), strict=True):
        private, public = (master_key.read(opts, f"{name}.{end}") for end in ("pem", "pub"))
        if private and public:
            shared.update({f"{role}.pem": private.decode(), f"{role}.pub": public.decode()})
    if "master.pem" not in shared:
        raise TrustError("this master has no master key to share; was salt-master ever started?")
    return shared


def show(opts: Mapping[str, Any]) -> dict[str, str]:
    """The public half only, for who is to compare it with its own; empty where there is none."""
    public = master_key.read(opts, f"{master_key.name_of(opts)}.pub")
    return {"master.pub": public.decode()} if public else {}


def has_key(opts: Mapping[str, Any]) -> bool:
    """Whether this master has a private master key already."""
    return bool(master_key.read(opts, f"{master_key.name_of(opts)}.pem"))


@dataclass(frozen=True)
class _Pair:
    """One pair to put in place under *name*, after what is there was kept when *backup*."""

    name: str
    private: str
    public: str
    backup: bool


def place(
    opts: Mapping[str, Any],
    shared: Mapping[str, Any],
    force: bool = False,
    again: str = "ha.join with the same token and force=True",
) -> list[str]:
    """
    Put the pairs that :func:`take` read on another master in place here.

    At no instant is there no key, and after a crash in between the same call completes it.

    :param force: replace a different pair that is there; it is kept beside as ``*.before-<time>``.
    :param again: what the operator is told to do when that is meant.
    :return: notes for the operator; nothing is done, and none are given, where the same pair is
        there already.
    :raises TrustError: the halves do not fit, a different pair is there, or the files cannot be
        written.
    """
    if shared:
        refuse_in_cluster(opts)
    write = _write_files if _in_files(opts) else _write_cache
    try:
        todo = _todo(opts, shared, force, again)
        for pair in todo:
            write(opts, pair)
    except OSError as exc:
        raise TrustError(
            f"{exc.filename or opts['pki_dir']}: the group's key cannot be put there: "
            f"{exc.strerror or exc}"
        ) from None
    return [
        f"{_where(opts, pair.name)} is the group's now: start or restart salt-master"
        for pair in todo
    ]


def _todo(
    opts: Mapping[str, Any], shared: Mapping[str, Any], force: bool, again: str
) -> list[_Pair]:
    todo: list[_Pair] = []
    for role, name in zip(ROLES, _names(opts), strict=True):
        private, public = shared.get(f"{role}.pem"), shared.get(f"{role}.pub")
        if not isinstance(private, str) or not isinstance(public, str):
            continue
        _check_pair(private, public, _password(opts, role))
        there = _there(opts, name, role)
        if there == (_der(public), _der(public)):
            continue
        # One half of this very pair is what a crash leaves: it is completed, not replaced.
        other = any(half not in (None, _der(public)) for half in there)
        if other and not force:
            raise TrustError(
                f"{_where(opts, name)}: another {role} key is here; minions that know it would "
                f"refuse the group's. If that is meant: {again}"
            )
        todo.append(_Pair(name, private, public, other))
    return todo


def compare(opts: Mapping[str, Any], shared: Mapping[str, Any]) -> list[str]:
    """What to tell the operator when no private key was handed over; empty when all is well."""
    public = shared.get("master.pub")
    if "master.pem" in shared or not isinstance(public, str):
        return []
    try:
        own = _there(opts, master_key.name_of(opts), "master")
        if _der(public) in own:
            return []
    except (OSError, ValueError) as exc:
        return [f"the master keys could not be compared: {type(exc).__name__}"]
    if own == (None, None):
        return [
            "no master key was handed over, so salt-master will make one of its own; hot-hot "
            "minions need one key: set  ha: share_master_key: true  on the other master and join "
            "again before the first start"
        ]
    return [
        "this master and the group have different master keys; hot-hot minions need one: see "
        "salt-run ha.status"
    ]


def refuse_in_cluster(opts: Mapping[str, Any]) -> None:
    """
    Stop where Salt exchanges the pair that minions know (``cluster.pem``) by itself.

    :raises TrustError: *opts* are those of a member of a cluster.
    """
    if member := cluster.of(opts):
        raise TrustError(
            f"share_master_key: this master is a member of cluster {member.name}, whose key "
            "(cluster.pem) Salt itself hands to its members; invite without share_master_key"
        )


def _names(opts: Mapping[str, Any]) -> tuple[str, str]:
    return master_key.name_of(opts), str(opts.get("master_sign_key_name") or "master_sign")


def _in_files(opts: Mapping[str, Any]) -> bool:
    return bool(opts.get("keys.cache_driver", "localfs_key") == "localfs_key")


def _where(opts: Mapping[str, Any], name: str) -> str:
    if _in_files(opts):
        return f"{Path(opts['pki_dir']) / name}.pem"
    return f"{name}.pem in {opts['keys.cache_driver']}"


def _there(opts: Mapping[str, Any], name: str, role: str) -> tuple[bytes | None, bytes | None]:
    """The public key as either half of the pair here has it; None: no such half, b"": damaged."""
    private, public = (master_key.read(opts, f"{name}.{end}") for end in ("pem", "pub"))
    try:
        derived = private and load_pem_private_key(private, _password(opts, role)).public_key()
        from_private = derived.public_bytes(*_FORM) if derived else None
    except (TypeError, ValueError):
        from_private = b""
    try:
        from_public = _der(public.decode()) if public else None
    except ValueError:
        from_public = b""
    return from_private, from_public


def _write_files(opts: Mapping[str, Any], pair: _Pair) -> None:
    pki, owner = Path(opts["pki_dir"]), _owner(opts)
    if not pki.is_dir():
        pki.mkdir(mode=0o700, parents=True)
        if owner is not None:
            os.chown(pki, *owner)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    pem, pub = (_behind(opts, pki / f"{pair.name}.{end}") for end in ("pem", "pub"))
    for file, mode in ((pem, PRIVATE_MODE), (pub, PUBLIC_MODE)) if pair.backup else ():
        # A copy: there is to be a key at every instant.
        if file.is_file():
            point("handover.aside")
            kept = file.with_name(f"{file.name}.before-{stamp}")
            write_whole(kept, file.read_bytes(), mode, owner)
    if pair.backup:
        # Never a public half that does not fit: Salt makes a missing one from the private half.
        pub.unlink(missing_ok=True)
        sync_dir(pki)
    point("handover.private")
    write_whole(pem, pair.private.encode(), PRIVATE_MODE, owner)
    point("handover.public")
    write_whole(pub, pair.public.encode(), PUBLIC_MODE, owner)
    point("handover.done")


def _behind(opts: Mapping[str, Any], path: Path) -> Path:
    """
    The file to write for *path*, which may be a link: Salt before 3008 reads through it, as it
    has to after a downgrade (3008 leaves ``master.pem`` as a link); 3008 itself does not.
    """
    through = path.is_symlink() and "keys.cache_driver" not in opts
    return path.resolve() if through else path


def _write_cache(opts: Mapping[str, Any], pair: _Pair) -> None:
    import salt.cache

    cache = salt.cache.Cache(opts, driver=opts["keys.cache_driver"])
    stamp = time.strftime("%Y%m%dT%H%M%S")
    for end, text in (("pem", pair.private), ("pub", pair.public)):
        name = f"{pair.name}.{end}"
        there = master_key.read(opts, name)
        if there and pair.backup:
            cache.store("master_keys", f"{name}.before-{stamp}", there.decode())
        cache.store("master_keys", name, text)


def _owner(opts: Mapping[str, Any]) -> tuple[int, int] | None:
    """Whom the files must belong to when root writes them for a salt-master of another user."""
    if os.geteuid() != 0 or opts.get("user") in (None, "", "root"):
        return None
    try:
        entry = pwd.getpwnam(str(opts["user"]))
    except KeyError:
        raise TrustError(f"user: {opts['user']}: there is no such user here") from None
    return entry.pw_uid, entry.pw_gid


def _password(opts: Mapping[str, Any], role: str) -> bytes | None:
    value = opts.get(ROLES[role])
    return str(value).encode() if value else None


def _der(public: str) -> bytes:
    return bytes(load_pem_public_key(public.encode()).public_bytes(*_FORM))


def _check_pair(private: str, public: str, password: bytes | None) -> None:
    try:
        derived = load_pem_private_key(private.encode(), password).public_key()
        given = _der(public)
    except (TypeError, ValueError) as exc:
        raise TrustError(f"the key that was handed over cannot be read: {exc}") from None
    if derived.public_bytes(*_FORM) != given:
        raise TrustError("the two halves of the key that was handed over do not fit")
