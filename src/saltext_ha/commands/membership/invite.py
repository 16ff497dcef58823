"""
``ha.invite``: a token with which one more master joins the group, and its withdrawal.

Salt sends the return of a runner to all subscribers of its events, and keeps it in its job cache
for all users of the machine. So only ``salt-ha`` prints the token itself; ``salt-run`` names the
file that holds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from saltext_ha.commands import arguments
from saltext_ha.commands.engine_client import Answer
from saltext_ha.commands.runner_arguments import switch
from saltext_ha.common.errors import ConfigError, HaError
from saltext_ha.common.master_key import SIGN
from saltext_ha.config.mapping import HaConfig
from saltext_ha.lint import sources
from saltext_ha.membership import handover, invites
from saltext_ha.membership.invites import EXPIRES_IN, Invitation, Invites
from saltext_ha.transport import identity

LONGEST = 86400
JOIN = "salt-ha join --token-file -"


def make(
    opts: Mapping[str, Any],
    settings: HaConfig,
    expires: Any = EXPIRES_IN,
    share_master_key: bool = False,
    share_signing_key: bool = False,
) -> Invitation:
    """
    Make a token.

    :param expires: seconds until it is worthless, or a span such as ``1h``.
    :raises HaError: *expires* is wrong, or there is no key that could be shared.
    """
    lifetime = _lifetime(expires)
    share_master_key = switch("share_master_key", share_master_key)
    share_signing_key = switch("share_signing_key", share_signing_key)
    refuse_left_out(opts)
    if share_master_key:
        handover.refuse_in_cluster(opts)
    elif share_signing_key:
        handover.take(opts, (SIGN,))  # better now than when a master joins
    ours = identity.load_or_create(settings.state_dir, settings.name)
    token = invites.make_token(
        settings.state_dir,
        ours,
        (settings.url,),
        settings.group,
        lifetime,
        share_master_key,
        share_signing_key,
    )
    return invites.invitation(token, ours, lifetime)


def refuse_left_out(opts: Mapping[str, Any]) -> None:
    """
    Refuse a configuration of which Salt leaves a file out: it may be the one with ``ha:``, and this
    master would show itself under another name and address, and not as ``mode: observe``.

    :raises ConfigError: names the file.
    """
    read = sources.read(str(opts["conf_file"]), str(opts["default_include"]))
    for found in read.problems:
        where = f"{found.file}:{found.line}" if found.line else found.file
        raise ConfigError(f"{where}: {found.reason}; nothing was done: mend it first")


def printed(made: Invitation) -> Answer:
    """
    What ``salt-ha invite`` shows: kind, invitation (its name), ``token``, expires_in, command,
    notes, retcode. A secret, only for a terminal: never in a runner's return, an event or a log.
    """
    return {**_answer(made, JOIN), "token": made.token}


def laid_down(settings: HaConfig, made: Invitation) -> Answer:
    """
    Write the token to a file that only root and the user of salt-master may read.

    :return: as :func:`printed`, with ``token_file`` instead of the token.
    """
    path = str(Invites(settings.state_dir).lay_down(made.name, made.token))
    command = f"ssh {settings.address} cat {shlex.quote(path)} | {JOIN}"
    return {**_answer(made, command), "token_file": path}


def withdraw(settings: HaConfig, invitation: str, test: bool) -> Answer:
    """
    Withdraw the *invitation* of that name, or all that are open on this master.

    :return: what the outputter shows: kind, notes, retcode: 1 if it was already used, or does not
        exist.
    """
    known = Invites(settings.state_dir)
    still_open = known.open()
    found = [name for name in sorted(still_open) if invitation in ("", name)]
    if not test:
        for name in found:
            known.discard(still_open[name])
    notes = [f"invitation {name} {'would be' if test else 'is'} withdrawn" for name in found]
    if found or not invitation:
        return notice(*(notes or ["no invitation of this master is open"]))
    if invitation in known.used():
        return notice(
            f"invitation {invitation} was used already; was that not the master it was meant for? "
            "salt-run ha.peers shows the members, salt-run ha.remove_peer NAME shuts one out, and "
            "if the invitation shared the master key, that is to be replaced",
            retcode=1,
        )
    closed = f"no invitation {invitation:.40} is open here: it expired, or another master made it"
    return notice(closed, retcode=1)


def _lifetime(expires: Any) -> int:
    try:
        span = 0.0 if isinstance(expires, bool) else arguments.span(expires)
    except HaError:
        span = 0.0
    if not 1 <= span <= LONGEST or span % 1:
        raise HaError(
            f"expires={expires!r}: takes whole seconds from 1 to {LONGEST}, or a span: 30m, 1h, 1d"
        )
    return int(span)


def _answer(made: Invitation, command: str) -> Answer:
    return {
        "kind": "invite",
        "invitation": made.name,
        "expires_in": made.expires_in,
        "command": command,
        "notes": list(made.notes),
        "retcode": 0,
    }


def notice(*notes: str, retcode: int = 0) -> Answer:
    """An answer that only has something to say."""
    return {"kind": "notice", "notes": list(notes), "retcode": retcode}
