"""``ha.invite``: a token with which one more master gets into the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.config import HaConfig
from saltext_ha.errors import HaError
from saltext_ha.master_key import SIGN
from saltext_ha.peering import handover, identity, invites

LONGEST = 86400


def invite(
    opts: Mapping[str, Any],
    settings: HaConfig,
    expires: Any,
    share_master_key: bool,
    share_signing_key: bool,
) -> dict[str, Any]:
    """
    Make one, and keep what lets its bearer in.

    :param expires: seconds until it is worthless.
    :return: what the outputter shows: kind, token, expires_in, command, notes, retcode.
    :raises HaError: a wrong *expires*, or there is no key that could be shared.
    """
    if isinstance(expires, bool) or not isinstance(expires, int) or not 1 <= expires <= LONGEST:
        raise HaError(f"expires={expires!r}: takes whole seconds from 1 to {LONGEST}")
    if share_master_key:
        handover.refuse_in_cluster(opts)
    elif share_signing_key:
        handover.take(opts, (SIGN,))  # better now than when somebody joins
    made = invites.invite(
        settings.state_dir,
        identity.load_or_create(settings.state_dir, settings.name),
        (settings.url,),
        settings.group,
        expires_in=expires,
        share_master_key=share_master_key,
        share_signing_key=share_signing_key,
    )
    return {
        "kind": "invite",
        "token": made.token,
        "expires_in": made.expires_in,
        "command": f"salt-run ha.join {made.token}",
        "notes": list(made.notes),
        "retcode": 0,
    }
