"""
``ha.join``: joining a group, by a token or by the group's secret, and the report about it.

Works whether or not this master's engine runs, and before salt-master was ever started.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.commands.engine_client import Answer, not_configured, say
from saltext_ha.commands.membership import join_plan
from saltext_ha.commands.membership.invite import JOIN, notice, refuse_left_out
from saltext_ha.commands.runner_arguments import switch
from saltext_ha.common.errors import HaError, TokenError, TrustError
from saltext_ha.common.validators import is_number
from saltext_ha.config import secret
from saltext_ha.config.mapping import HaConfig
from saltext_ha.membership import copied, group_secret, handover
from saltext_ha.membership import join as by_tokens
from saltext_ha.membership.invites import name_of
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.token import PREFIX, decode
from saltext_ha.membership.unattended import find_group
from saltext_ha.replica import state_owner
from saltext_ha.replica.replica import REPLICA_FILE, Replica
from saltext_ha.transport import identity
from saltext_ha.transport.pins import Pins
from saltext_ha.transport.trust import Trust

LONGEST = 86400
FORCE = "salt-run ha.join force=True, then restart salt-master"


class _Placing:
    """Puts handed-over keys in place, and keeps notes about them for the operator."""

    def __init__(self, opts: Mapping[str, Any], force: bool, again: str) -> None:
        self._opts, self._force, self._again = opts, force, again
        self.notes: list[str] = []
        self.retcode = 0

    def __call__(self, shared: Mapping[str, Any]) -> None:
        # A key that cannot be put in place does not prevent the join.
        try:
            self.notes += handover.place(self._opts, shared, self._force, self._again)
        except TrustError as exc:
            self.notes.append(f"joined, but the master key was not put in place: {exc}")
            self.retcode = 1
        self.notes += handover.compare(self._opts, shared)

    def answer(self, joined: by_tokens.Joined, notes: list[str]) -> Answer:
        unreached = [f"{name} was not told yet: {why}" for name, why in joined.unreached.items()]
        return {
            "kind": "join",
            "group": joined.group,
            "members": list(joined.members),
            "notes": [*notes, *unreached, *by_tokens.one_way(joined.unreachable), *self.notes],
            "retcode": self.retcode,
        }


def aloud(words: str) -> None:
    """Tell the user of ``ha.join``, on standard error, what it waits for."""
    say(f"ha.join: {words}")


def refused(given: str) -> HaError:
    """
    The error for a user who gave a token as an argument, where others can see it.

    :param given: that argument; the error shows only the invitation's name from it.
    """
    where, which = "the master that made it", ""
    with contextlib.suppress(TokenError):
        ticket = decode(given)
        where, which = f"the master that made it ({ticket.urls[0]})", f" {name_of(ticket.invite)}"
    return HaError(
        "ha.join takes no token as an argument, and nothing was done: every user of this machine "
        "can see it in the list of processes, and with salt-run all who follow Salt's events\n"
        f"others may know that token by now; on {where}:  salt-run ha.withdraw{which}  , then  "
        "salt-ha invite\n"
        f"and here:  {JOIN}  , which asks for the new one or reads it from standard input; or  "
        "salt-run ha.join token_file=FILE"
    )


def token_in(path: str) -> str:
    """
    The token in the file *path*.

    :raises HaError: it cannot be read, others may read it, or it is empty; says what to do.
    """
    if path.startswith(PREFIX):
        raise refused(path)
    seen = "salt-run ha.withdraw on the master that made it, and take another one"
    try:
        token = secret.content(Path(path), seen).decode(errors="replace").strip()
    except ValueError as exc:
        raise HaError(f"token_file: {path}: {exc}") from None
    if not token:
        raise HaError(f"token_file: {path}: is empty; it takes a token of  salt-ha invite")
    return token


def join(
    opts: Mapping[str, Any],
    settings: HaConfig,
    token: str,
    wait: Any = 0,
    force: bool = False,
    test: bool = False,
    probe: bool = True,
    tell: by_tokens.Tell = by_tokens.silently,
) -> Answer:
    """
    Carry out ``ha.join``.

    :param token: of an invitation; empty: join by the group's secret.
    :param wait: seconds, as the user gave them.
    :param probe: join only if the inviter reaches this master; if False, only report that it does
        not.
    :param tell: called with what it is waiting for.
    :return: what the outputter shows: kind, group, members, notes, retcode; kind ``notice`` if
        nothing had to be done; with *test*, as :func:`.join_plan.plan`.
    :raises HaError: *wait* is wrong, or it failed; no member was pinned. If the others list this
        master nevertheless, it says so.
    """
    if not is_number(wait) or not 0 <= wait <= LONGEST:
        raise HaError(f"wait={wait!r}: takes seconds from 0 to {LONGEST}")
    force, test, probe = (
        switch(name, value) for name, value in (("force", force), ("test", test), ("probe", probe))
    )
    if token:
        refuse_left_out(opts)
    state_owner.check(settings, test)
    copied.check(settings)
    # Where this master listens, or will listen when its engine runs.
    reach = Reach(settings.listen_host, settings.port, required=probe)
    if test and not token:
        raise HaError(f"test=True takes a token:  {JOIN} test=True")
    if test:
        return join_plan.plan(opts, settings, token, float(wait), force, reach)
    wish = _Wish(opts, settings, float(wait), force, reach, tell)
    return wish.by_token(token) if token else wish.by_secret()


@dataclass(frozen=True)
class _Wish:
    """A master that wants to join; see :func:`join`."""

    opts: Mapping[str, Any]
    settings: HaConfig
    wait: float
    force: bool
    reach: Reach
    tell: by_tokens.Tell

    def by_token(self, token: str) -> Answer:
        """Join the group that *token* invites to."""
        settings = self.settings
        ours = identity.load_or_create(settings.state_dir, settings.name)
        trust = Trust(settings.state_dir, most=settings.max_members)
        _begin_replica(settings, trust)
        placing = _Placing(self.opts, self.force, handover.TRY_AGAIN)
        own = self._applicant(ours, trust)
        joining = by_tokens.join(
            own, token, wait=self.wait, place=placing, tell=self.tell, merge=self.force
        )
        joined = asyncio.run(joining)
        group_secret.forget_left(settings.state_dir)
        return placing.answer(joined, self._lacking())

    def by_secret(self) -> Answer:
        """
        Join the group at ``ha: masters``, or found it; see :func:`.unattended.find_group`. A master
        that is already in a group stays as it is, and so does one that left its group, unless
        *force*.
        """
        settings = self.settings
        if settings.secret is None or not settings.masters:
            raise HaError(
                "ha.join without a token needs  ha: masters  (where the others are) and the "
                "group's secret (ha: secret_file, or SALT_HA_SECRET in the environment); or give "
                f"it a token of  salt-ha invite:  {JOIN}"
            )
        trust = Trust(settings.state_dir, settings.peers, settings.max_members)
        since = group_secret.left_since(settings.state_dir)
        if since and not self.force:
            return notice(
                f"this master left its group ({since}) and stays out: salt-run ha.join "
                f"force=True, or a token of  salt-ha invite  by  {JOIN}  , brings it back"
            )
        peers = ", ".join(sorted(trust.peers()))
        if peers and not self.force and handover.has_key(self.opts):
            return notice(f"already in group {settings.group}, with {peers}")
        ours = identity.load_or_create(settings.state_dir, settings.name)
        _begin_replica(settings, trust)
        own = self._applicant(ours, trust, settings.secret)
        placing = _Placing(self.opts, self.force, FORCE)
        found = asyncio.run(find_group(own, settings.masters, self.wait, placing, self.tell))
        group_secret.forget_left(settings.state_dir)
        if found.joined is None:
            return notice(
                f"nobody else of ha: masters is there; {settings.name}, the first in it, founds "
                f"group {settings.group}: start salt-master, the others join it",
                *found.reasons.values(),
                *self._lacking(),
            )
        notes = [f"joined through {found.url}", *found.reasons.values(), *self._lacking()]
        return placing.answer(found.joined, notes)

    def _lacking(self) -> list[str]:
        """Why a start of this master brings nothing; empty if it brings the engine."""
        return list(filter(None, [not_configured(self.settings)]))

    def _applicant(
        self, ours: identity.Identity, trust: Trust, of_group: bytes = b""
    ) -> by_tokens.Applicant:
        name, url, group = self.settings.name, self.settings.url, self.settings.group
        return by_tokens.Applicant(ours, trust, name, url, group, of_group, self.reach)


def _begin_replica(settings: HaConfig, pins: Pins) -> None:
    """
    Make a replica.db if there never was one.

    If there are pinned peers, a missing or blank replica.db counts as lost, and then the peers'
    decisions override the key store. A master that joins before its engine ever ran has lost
    nothing.
    """
    database = settings.state_dir / REPLICA_FILE
    if pins.peers() or database.exists():
        return
    with contextlib.closing(Replica(database)) as replica, replica.transaction():
        replica.meta.blank = False
