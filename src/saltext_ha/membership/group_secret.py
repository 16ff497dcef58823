"""
The group secret: a master that knows it may join, any number of times.

Both sides prove the secret by an HMAC, and neither ever sends it. The joiner does not know the
inviter's certificate beforehand: it binds its proof to the certificate that it is shown, and
believes only an answer whose proof is bound to the same certificate. A man in the middle has
another certificate: the real master refuses the request that it passes on, and it cannot make an
answer. Because of a nonce, old answers are not believed.

After ``ha.leave`` a master neither admits others by the secret nor joins by itself, until
``ha.join`` is run on it. The mark for that is a file.
"""

from __future__ import annotations

import contextlib
import datetime
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import TokenError, TrustError
from saltext_ha.common.files import write_whole
from saltext_ha.membership.invites import Invite
from saltext_ha.membership.token import mac, mac_key
from saltext_ha.transport.identity import state_folder
from saltext_ha.transport.peer import Peer

STANDING = "standing"
NONCE = 16
LEFT_FILE = "left"


@dataclass(frozen=True)
class GroupSecret:
    """
    Admits masters that prove *secret*: they are pinned and, if *share_master_key* is set, get the
    master key on request.
    """

    state_dir: Path
    group: str
    share_master_key: bool
    secret: bytes = field(repr=False)

    def admit(self, server: str, joiner: Peer, payload: Mapping[str, Any]) -> Invite:
        """
        The invitation to which a join request is entitled.

        :param server: the fingerprint of this master's certificate.
        :raises TokenError: the request does not prove the secret.
        :raises TrustError: this master left its group.
        """
        key = mac_key(self.secret)
        given, nonce = payload.get("mac"), payload.get("nonce")
        wants_key = payload.get("wants_key") is True
        if not isinstance(nonce, bytes) or len(nonce) != NONCE or not isinstance(given, bytes):
            raise TokenError("the join request is not one by secret")
        expected = request_mac(key, server, joiner, str(payload.get("group")), nonce, wants_key)
        if not hmac.compare_digest(given, expected):
            raise TokenError(
                "the proof is wrong: another secret is configured there (ha: secret_file), or "
                "something in between changes the connection"
            )
        # Not earlier: callers without the proof must learn nothing.
        since = left_since(self.state_dir)
        if since:
            raise TrustError(f"that master left its group ({since}); only ha.join there undoes it")
        return Invite(STANDING, 0, self.group, self.share_master_key and wants_key, key)


def request_mac(
    key: bytes, server: str, joiner: Peer, group: str, nonce: bytes, wants_key: bool
) -> bytes:
    """The joiner's proof, bound to both certificates' fingerprints and to all that is asked for."""
    asked = [server, joiner.fingerprint, joiner.name, joiner.url, group]
    return mac(key, ["ha standing request 1", *asked, nonce, "key" if wants_key else ""])


def mark_left(state_dir: Path) -> None:
    """Note that this master left its group: it does not join by itself any more."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    write_whole(state_folder(state_dir) / LEFT_FILE, now.encode())


def left_since(state_dir: Path) -> str:
    """When this master left its group (ISO time, for people); empty if it did not."""
    try:
        return (state_dir / LEFT_FILE).read_text("ascii", "replace").strip() or "some time ago"
    except FileNotFoundError:
        return ""
    except OSError:
        return "some time ago"


def forget_left(state_dir: Path) -> None:
    """Remove the mark: an operator wants this master in a group again."""
    with contextlib.suppress(FileNotFoundError):
        (state_dir / LEFT_FILE).unlink()
