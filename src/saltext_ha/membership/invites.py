"""The open invitations of this master: one file each, used exactly once."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from saltext_ha.common.addresses import WILDCARDS, bare_ip
from saltext_ha.common.errors import TokenError, reason_of
from saltext_ha.common.files import create_whole, private_dir, read_plain, sync_dir
from saltext_ha.common.master_key import ROLES, SIGN
from saltext_ha.membership.token import INVITE_ID, JoinToken, mac_key
from saltext_ha.transport import fingerprints, tls
from saltext_ha.transport.identity import Identity, state_folder

INVITES_DIR = "invites"
SUFFIX = ".token"
EXPIRES_IN = 600
UNKNOWN = (
    "this token is not known here: it was used, has expired, or is another master's; "
    "make a new one with salt-ha invite"
)


@dataclass(frozen=True)
class Invite:
    """An open invitation. ``key`` proves the secret; ``expires`` is in Unix seconds."""

    id: str
    expires: int
    group: str
    share_master_key: bool
    key: bytes = field(repr=False)
    share_signing_key: bool = False

    @property
    def shares(self) -> tuple[str, ...]:
        """The roles of the key pairs to hand over; see :mod:`.handover`."""
        if self.share_master_key:
            return ROLES
        return (SIGN,) if self.share_signing_key else ()


@dataclass(frozen=True)
class Invitation:
    """The description of an invitation: name, token, lifetime in seconds, and notes."""

    name: str
    token: str = field(repr=False)
    expires_in: int
    notes: tuple[str, ...]


def make_token(
    state_dir: Path,
    identity: Identity,
    urls: tuple[str, ...],
    group: str,
    expires_in: int = EXPIRES_IN,
    share_master_key: bool = False,
    share_signing_key: bool = False,
) -> JoinToken:
    """
    Make a one-time token with which one master may join through this one.

    :param urls: where the joining master reaches this one, tried in order.
    :param share_master_key: hand the group's master key to the joining master, and the signing pair
        if there is one.
    :param share_signing_key: hand over only the signing pair.
    """
    secret = secrets.token_bytes(32)
    made = Invites(state_dir).create(
        mac_key(secret), group, expires_in, share_master_key, share_signing_key
    )
    return JoinToken(urls, identity.fingerprint, made.id, made.expires, group, secret)


def invitation(token: JoinToken, identity: Identity, expires_in: int = EXPIRES_IN) -> Invitation:
    """
    Describe a new *token*, with a note if no other master can reach this one, or no engine listens
    here yet. To find that out, this blocks for up to two seconds.
    """
    note = _no_way_here(token.urls[0], identity)
    return Invitation(name_of(token.invite), token.encode(), expires_in, (note,) if note else ())


class Invites:
    """The invitations below *state_dir*. Any process may add some at any time."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = private_dir(state_folder(state_dir) / INVITES_DIR)

    def create(
        self,
        key: bytes,
        group: str,
        expires_in: int,
        share_master_key: bool,
        share_signing_key: bool = False,
    ) -> Invite:
        """Store a new invitation; not its secret, only the hash *key*."""
        self.purge()
        new, end = secrets.token_hex(16), int(time.time()) + expires_in
        made = Invite(new, end, group, share_master_key, key, share_signing_key)
        content = {**asdict(made), "key": key.hex()}
        del content["id"]  # the file is named after it
        create_whole(self._open(new), json.dumps(content).encode())
        return made

    def lay_down(self, name: str, token: str) -> Path:
        """
        Keep the *token* of the invitation *name* in a file that only this user may read. The file
        is removed when the invitation is used or withdrawn, or within a minute after it expired.
        """
        path = self._token(name)
        create_whole(path, f"{token}\n".encode())
        return path

    def find(self, invite_id: object, joiner: str) -> Invite:
        """
        The invitation *invite_id*, if it is open, or if *joiner* (a fingerprint) itself used it:
        the answer may have got lost.

        :raises TokenError: there is no such invitation.
        """
        if not isinstance(invite_id, str) or not INVITE_ID.fullmatch(invite_id):
            raise TokenError(UNKNOWN)
        for path in (self._open(invite_id), self._used(invite_id, joiner)):
            try:
                content = json.loads(read_plain(path))
                return Invite(
                    id=invite_id,
                    expires=int(content["expires"]),
                    group=str(content["group"]),
                    share_master_key=bool(content["share_master_key"]),
                    key=bytes.fromhex(content["key"]),
                    share_signing_key=bool(content.get("share_signing_key")),
                )
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise TokenError(f"the invitation cannot be read: {reason_of(exc)}") from None
            except (ValueError, KeyError, TypeError) as exc:
                raise TokenError(f"the invitation is damaged ({type(exc).__name__})") from None
        raise TokenError(UNKNOWN)

    def consume(self, invite_id: str, joiner: str) -> bool:
        """Use up the invitation for *joiner*; True for one joiner alone, however often it asks."""
        used = self._used(invite_id, joiner)
        try:
            # Of many renames of one file, only one succeeds.
            self._open(invite_id).rename(used)
        except FileNotFoundError:
            return used.exists()
        self._token(name_of(invite_id)).unlink(missing_ok=True)
        sync_dir(self._folder)
        return True

    def discard(self, invite_id: str) -> None:
        """Withdraw an invitation, for instance after too many wrong proofs."""
        self._open(invite_id).unlink(missing_ok=True)
        self._token(name_of(invite_id)).unlink(missing_ok=True)

    def open(self) -> dict[str, str]:
        """The unused invitations: name → id."""
        self.purge()
        return {name_of(path.stem): path.stem for path in self._folder.glob("[!.]*.json")}

    def used(self) -> set[str]:
        """The names of used invitations, until their expiry."""
        return {name_of(path.stem) for path in self._folder.glob("[!.]*.used-*")}

    def purge(self) -> None:
        """
        Remove expired and damaged invitations, used or not, and tokens whose invitations are no
        longer open. A file that cannot be read now may be good, and stays.
        """
        for path in self._folder.glob("[!.]*"):
            if path.suffix == SUFFIX:
                continue
            try:
                expires = float(json.loads(read_plain(path))["expires"])
            except OSError:
                if path.is_file() and not path.is_symlink():
                    continue
                expires = 0.0
            except (ValueError, KeyError, TypeError):
                expires = 0.0
            if expires < time.time():
                path.unlink(missing_ok=True)
        tokens = [*self._folder.glob(f"[!.]*{SUFFIX}")]
        # List the tokens before the open invitations: a token is written after its invitation.
        names = {name_of(path.stem) for path in self._folder.glob("[!.]*.json")}
        for path in tokens:
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def _token(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def _open(self, invite_id: str) -> Path:
        return self._folder / f"{invite_id}.json"

    def _used(self, invite_id: str, joiner: str) -> Path:
        digest = hashlib.sha256(joiner.encode()).hexdigest()[:32]
        return self._folder / f"{invite_id}.used-{digest}"


def name_of(invite_id: str) -> str:
    """
    The public name of an invitation. Its id is a secret of the token: five wrong proofs with it use
    up the invitation.
    """
    return hashlib.sha256(f"ha invitation {invite_id}".encode()).hexdigest()[:12]


def _no_way_here(url: str, identity: Identity) -> str | None:
    parts = urlsplit(url)
    host = str(parts.hostname)
    if host.partition(".")[0] == "localhost" or bare_ip(host) in WILDCARDS:
        return (
            f"no other master reaches this one at {url}: set ha: address to where they do, restart "
            "salt-master, and make a new token"
        )
    try:
        shown = shown_fingerprint(host, int(parts.port or 0), timeout=2.0)
    except ConnectionRefusedError:
        return (
            f"nobody answers at {url}; the other master can join once salt-master runs here with "
            "'engines: [ha: {}]'"
        )
    except OSError as exc:
        return (
            f"this master does not reach itself at {url} ({reason_of(exc)}). If that is due to a "
            "firewall or NAT, the other one may reach it all the same; else set ha: address"
        )
    if shown != identity.fingerprint:
        return f"something else answers at {url}: it does not show this master's certificate"
    return None


def shown_fingerprint(host: str, port: int, timeout: float) -> str:
    """The fingerprint of the certificate that a server shows. This sends it nothing."""
    with (
        socket.create_connection((host, port), timeout) as raw,
        tls.joining_context().wrap_socket(raw, server_hostname=host) as secured,
    ):
        return fingerprints.of(secured.getpeercert(binary_form=True) or b"")
