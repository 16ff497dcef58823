"""
Keeps this master from running as another one that runs: its machine was copied from that of the
other one, with the state folder, or only the identity was copied.

To the group both are one master: it calls now the one and now the other, and ``ha.leave`` on the
copy would take out the other one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from urllib.parse import urlsplit

from saltext_ha.common.errors import TrustError
from saltext_ha.common.files import write_whole
from saltext_ha.config.mapping import HaConfig
from saltext_ha.membership.invites import shown_fingerprint
from saltext_ha.replica import state_owner
from saltext_ha.transport import identity
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer

WITHIN = 2.0  # seconds
KNOWN = "copied"
"""The file in a state folder that was found to be such a copy."""


def check(config: HaConfig) -> None:
    """
    Ask at the address that this master had before it got its present name and address. Call this
    while its engine does not listen.

    :raises TrustError: a master with this one's certificate answers there; or the certificate here
        cannot be read.
    """
    former = state_owner.former(config)
    if former is None or not identity.is_there(config.state_dir):
        return
    # It stays one while the other master is down.
    known = config.state_dir / KNOWN
    if not known.exists():
        ours = identity.load_or_create(config.state_dir, config.name)
        if not _answers(former.url, ours):
            return
        with contextlib.suppress(OSError):
            write_whole(known, b"")
    raise TrustError(
        f"{config.state_dir} is a copy of the state folder of {former}, which was seen running: "
        "to the group both are one master. Stop salt-master here, remove "
        f"{config.state_dir} (if it is a copy, and not shared), and join as a new master:  salt-ha "
        "invite  on a member, then  salt-ha join --token-file -  here"
    )


def check_identity(config: HaConfig, ours: Identity, pinned: Iterable[Peer]) -> None:
    """
    Compare this master's identity with those of the *pinned* peers.

    :raises TrustError: it is that of one of them.
    """
    for peer in pinned:
        if peer.name != config.name and peer.fingerprints & ours.fingerprints:
            raise TrustError(
                f"{ours.certificate_file} is the identity of {peer.name} ({peer.url}), a peer of "
                "this master: to the group both would be one. Stop salt-master here, and bring "
                f"this master's own identity.* back into {config.state_dir} from a backup. Without "
                f"one: remove identity.* there, salt-run ha.remove_peer {config.name} on a member, "
                "start salt-master, and join anew:  salt-ha invite  on a member, then  salt-ha "
                "join --token-file -  here"
            )


def _answers(url: str, ours: Identity) -> bool:
    try:
        parts = urlsplit(url)
        there = shown_fingerprint(str(parts.hostname), int(parts.port or 0), WITHIN)
    except (OSError, ValueError):
        return False
    return there in ours.fingerprints
