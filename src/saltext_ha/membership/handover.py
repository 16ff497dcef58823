"""
Hands key pairs to a joining master: reads them on one side, puts them in place on the other.

Minions know a group of hot-hot masters by one key pair. If the masters keep different pairs,
minions can know them by one signing pair, which vouches for each. Either pair is sent inside the
join, which is authenticated on both sides, and only if the invitation says so.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from saltext_ha.common import cluster, key_driver, master_key
from saltext_ha.common.errors import TrustError, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import sync_dir, write_whole
from saltext_ha.common.master_key import MASTER, ROLES, SIGN

PRIVATE_MODE = 0o400
PUBLIC_MODE = 0o644
_FORM = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
SAME, FREE, OTHER = "same", "free", "other"
TRY_AGAIN = "salt-ha join with the same token and force=True"


def take(opts: Mapping[str, Any], roles: Sequence[str] = ROLES) -> dict[str, str]:
    """
    Read key pairs of this master, as texts to send: the pair of the first of *roles*, and those of
    further roles if they are here.

    :raises TrustError: there is no complete pair of the first role here, or the master key may not
        be handed over.
    """
    if MASTER in roles:
        refuse_in_cluster(opts)
    shared = {}
    for role in roles:
        private, public = _read(opts, role)
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


def show(opts: Mapping[str, Any]) -> dict[str, str]:
    """The public halves that are here; a joining master compares them with its own."""
    halves = {f"{role}.pub": _read(opts, role)[1] for role in ROLES}
    return {name: public.decode() for name, public in halves.items() if public}


def has_key(opts: Mapping[str, Any]) -> bool:
    """Whether this master has a private master key already."""
    return bool(_read(opts, MASTER)[0])


@dataclass(frozen=True)
class _Pair:
    """One pair to put in place for *role*; if *backup*, the present pair is kept first."""

    role: str
    private: str
    public: str
    backup: bool


def place(
    opts: Mapping[str, Any],
    shared: Mapping[str, Any],
    force: bool = False,
    again: str = TRY_AGAIN,
) -> list[str]:
    """
    Put the pairs that :func:`take` read on another master in place here.

    There is a key at every instant, and after a crash in between the same call finishes the work.

    :param shared: public halves alone, from :func:`show`, are ignored.
    :param force: replace a different pair that is here, and keep it beside as ``*.before-<time>``.
    :param again: what the operator must do if such a replacement is intended.
    :return: notes for the operator; nothing is done if the same pair is here already.
    :raises TrustError: half a pair came, the halves do not fit, a different pair is here (then
        nothing was changed), or the files cannot be written.
    """
    if f"{MASTER}.pem" in shared:
        refuse_in_cluster(opts)
    write = _write_files if master_key.in_files(opts) else _write_cache
    try:
        todo = _todo(opts, shared, force, again)
        for pair in todo:
            write(opts, pair)
    except OSError as exc:
        raise TrustError(
            f"{exc.filename or opts['pki_dir']}: the group's key cannot be put there: "
            f"{reason_of(exc)}"
        ) from None
    notes = [
        f"{_where(opts, pair.role)} is the group's now: start or restart salt-master"
        for pair in todo
    ]
    return [*notes, *(_signing_notes(opts) if f"{SIGN}.pem" in shared else ())]


def _todo(
    opts: Mapping[str, Any], shared: Mapping[str, Any], force: bool, again: str
) -> list[_Pair]:
    todo: list[_Pair] = []
    for role in ROLES:
        private, public = shared.get(f"{role}.pem"), shared.get(f"{role}.pub")
        if private is None:
            continue
        if not isinstance(private, str) or not isinstance(public, str):
            raise TrustError(f"only half of the {role} key pair was handed over")
        _check_pair(private, public, master_key.passphrase(opts, role))
        standing = _standing(opts, role, public)
        if standing == OTHER and not force:
            raise TrustError(_in_the_way(opts, role, again))
        if standing != SAME:
            todo.append(_Pair(role, private, public, backup=standing == OTHER))
    return todo


def compare(opts: Mapping[str, Any], shared: Mapping[str, Any]) -> list[str]:
    """Notes for the operator if no master key was handed over; empty if all is well."""
    public = shared.get(f"{MASTER}.pub")
    if f"{MASTER}.pem" in shared or not isinstance(public, str):
        return []
    try:
        own = _there(opts, MASTER)
        if _der(public) in own:
            return []
    except (OSError, ValueError) as exc:
        return [f"the master keys could not be compared: {type(exc).__name__}"]
    if own == (None, None):
        return [
            "no master key was handed over, so salt-master will make one of its own; hot-hot "
            "minions need one key: salt-ha invite share_master_key=True (or  ha: share_master_key: "
            "true  for masters that join by the secret) on the other master, and join again before "
            "the first start"
        ]
    return [
        "this master and the group have different master keys; hot-hot minions need one: see "
        "salt-run ha.status"
    ]


def foretell(
    opts: Mapping[str, Any],
    shown: Mapping[str, Any],
    roles: Sequence[str],
    force: bool = False,
) -> tuple[list[str], list[str]]:
    """
    Predict what :func:`place` and :func:`compare` would do, from the public halves alone.

    :param shown: the result of :func:`show` on the inviting master.
    :param roles: the roles of the pairs that the invitation hands over.
    :return: notes for the operator, and what would not work.
    """
    notes = [] if roles else compare(opts, shown)
    problems = []
    try:
        if MASTER in roles:
            refuse_in_cluster(opts)
        for role in ROLES if roles else ():
            public = shown.get(f"{role}.pub")
            if not isinstance(public, str):
                continue
            standing, path = _standing(opts, role, public), _where(opts, role)
            if standing == SAME:
                continue
            if role not in roles:
                notes.append(
                    f"{role} key: this master's differs from the group's, and stays; minions know "
                    "both by the signing pair"
                )
            elif standing == FREE:
                group = master_key.fingerprint(public.encode()) or ""
                notes.append(
                    f"{role} key: the group's ({group[:14]}:…) would be put in place: {path}"
                )
            elif force:
                notes.append(f"{role} key: {path} would be replaced by the group's and kept beside")
            else:
                problems.append(_in_the_way(opts, role, TRY_AGAIN))
    except (OSError, ValueError) as exc:
        problems.append(f"the keys could not be compared: {type(exc).__name__}")
    except TrustError as exc:
        problems.append(str(exc))
    return notes, problems


def refuse_in_cluster(opts: Mapping[str, Any]) -> None:
    """:raises TrustError: Salt itself exchanges the pair that minions know, as in its clusters."""
    if member := cluster.of(opts):
        raise TrustError(
            f"share_master_key: this master is a member of cluster {member.name}, whose key "
            "(cluster.pem) Salt itself hands to its members; invite without share_master_key"
        )


def _in_the_way(opts: Mapping[str, Any], role: str, again: str) -> str:
    return (
        f"{_where(opts, role)}: another {role} key is here; minions that know it would refuse the "
        f"group's. If that is meant: {again}"
    )


def _signing_notes(opts: Mapping[str, Any]) -> list[str]:
    public = f"{master_key.name_of(opts, SIGN)}.pub"
    notes = []
    if not opts.get("master_sign_pubkey"):
        notes.append("set master_sign_pubkey: True in this master's configuration and restart it")
    return [
        *notes,
        f"minions need {public} as /etc/salt/pki/minion/{public} and "
        "verify_master_pubkey_sign: True; turn it on for masters and minions together: either "
        "refuses the other while only one of them does it",
    ]


def _where(opts: Mapping[str, Any], role: str) -> str:
    name = f"{master_key.name_of(opts, role)}.pem"
    if master_key.in_files(opts):
        return str(Path(opts["pki_dir"]) / name)
    return f"{name} in {key_driver.of(opts)}"


def _read(opts: Mapping[str, Any], role: str) -> tuple[bytes | None, bytes | None]:
    """The private and the public half that are here, or None."""
    name = master_key.name_of(opts, role)
    return master_key.read(opts, f"{name}.pem"), master_key.read(opts, f"{name}.pub")


def _there(opts: Mapping[str, Any], role: str) -> tuple[bytes | None, bytes | None]:
    """The public key by the private and by the public half; None: no such half, b"": damaged."""
    private, public = _read(opts, role)
    password = master_key.passphrase(opts, role)
    try:
        derived = private and load_pem_private_key(private, password).public_key()
        from_private = derived.public_bytes(*_FORM) if derived else None
    except (TypeError, ValueError):
        from_private = b""
    try:
        from_public = _der(public.decode()) if public else None
    except ValueError:
        from_public = b""
    return from_private, from_public


def _standing(opts: Mapping[str, Any], role: str, public: str) -> str:
    """
    What is here in the place of the pair *public*: that pair, nothing, or another one. A half of
    that pair alone was left by a crash, and counts as nothing: it is completed, not replaced.
    """
    there, wanted = {*_there(opts, role)}, _der(public)
    if there == {wanted}:
        return SAME
    return FREE if there <= {wanted, None} else OTHER


def _write_files(opts: Mapping[str, Any], pair: _Pair) -> None:
    pki, owner = Path(opts["pki_dir"]), _owner(opts)
    base = pki / master_key.name_of(opts, pair.role)
    if not pki.is_dir():
        pki.mkdir(mode=0o700, parents=True)
        if owner is not None:
            os.chown(pki, *owner)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    pem, pub = (_behind(opts, base.with_name(f"{base.name}.{end}")) for end in ("pem", "pub"))
    for file, mode in ((pem, PRIVATE_MODE), (pub, PUBLIC_MODE)) if pair.backup else ():
        # Copy, as there must be a key at every instant.
        if file.is_file():
            point("handover.aside")
            kept = file.with_name(f"{file.name}.before-{stamp}")
            write_whole(kept, file.read_bytes(), mode, owner)
    if pair.backup:
        # Never leave a public half that does not fit: Salt makes a missing one from the private.
        pub.unlink(missing_ok=True)
        sync_dir(pki)
    point("handover.private")
    write_whole(pem, pair.private.encode(), PRIVATE_MODE, owner)
    point("handover.public")
    write_whole(pub, pair.public.encode(), PUBLIC_MODE, owner)
    point("handover.done")


def _behind(opts: Mapping[str, Any], path: Path) -> Path:
    """
    The file to write for *path*, which may be a link. Salt before 3008 reads through a link, as it
    must after a downgrade (3008 leaves ``master.pem`` as a link); 3008 does not.
    """
    through = path.is_symlink() and not key_driver.of(opts)
    return path.resolve() if through else path


def _write_cache(opts: Mapping[str, Any], pair: _Pair) -> None:
    import salt.cache

    cache = salt.cache.Cache(opts, driver=key_driver.of(opts))
    stamp = time.strftime("%Y%m%dT%H%M%S")
    base = master_key.name_of(opts, pair.role)
    for end, text in (("pem", pair.private), ("pub", pair.public)):
        name = f"{base}.{end}"
        there = master_key.read(opts, name)
        if there and pair.backup:
            cache.store("master_keys", f"{name}.before-{stamp}", there.decode())
        cache.store("master_keys", name, text)


def _owner(opts: Mapping[str, Any]) -> tuple[int, int] | None:
    """The owner to set, if root writes the files for a salt-master of another user."""
    if os.geteuid() != 0 or opts.get("user") in (None, "", "root"):
        return None
    try:
        entry = pwd.getpwnam(str(opts["user"]))
    except KeyError:
        raise TrustError(f"user: {opts['user']}: there is no such user here") from None
    return entry.pw_uid, entry.pw_gid


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
