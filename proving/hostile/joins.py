"""
Joining, attacked behind the throttle. After twenty failures a minute the engine looks at no request
any more, and a fuzzer would see only that. So this calls the same handler, and empties its memory
of failures each time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from proving.hostile import payloads
from proving.hostile.attack import Tally
from proving.hostile.payloads import Known
from proving.hostile.values import bent_bytes, mutated
from saltext_ha.common.errors import HaError
from saltext_ha.membership.admission import Admission
from saltext_ha.membership.group_secret import GroupSecret
from saltext_ha.membership.invites import Invites, make_token
from saltext_ha.membership.membership import Membership
from saltext_ha.membership.token import JoinToken, mac_key, request_mac
from saltext_ha.transport import identity, wire
from saltext_ha.transport.trust import Trust


def attack(known: Known, inputs: int, seed: int) -> Tally:
    """Call the join handler of a new master *inputs* times; nobody may be let in."""
    with TemporaryDirectory(prefix="ha-join-") as folder:
        return asyncio.run(_attack(Path(folder), known, inputs, seed))


async def _attack(state: Path, known: Known, inputs: int, seed: int) -> Tally:
    own = identity.load_or_create(state, "m1")
    trust = Trust(state)
    url = "https://127.0.0.1:1"
    secret = GroupSecret(state, known.group, True, b"the right secret, which nobody here can know")
    admission = Admission(
        Membership(own, trust, "m1", url, known.group),
        trust,
        Invites(state),
        share=lambda invite: {"master.pem": "the master key"},
        secret=secret,
    )
    token = make_token(state, own, (url,), known.group)
    tally, began = Tally(), time.monotonic()
    for payload in _requests(Random(f"{seed} join"), known, own.fingerprint, token):
        if tally.inputs == inputs:
            break
        tally.inputs += 1
        admission._failed.clear()
        admission._wrong_proofs.clear()
        try:
            await admission.join(payload, "127.0.0.66")
            tally.accepted += 1
            tally.crashes.append(f"let in: {payload!r:.300}")
        except HaError as exc:
            tally.refused[f"{type(exc).__name__}: {str(exc)[-40:]}"] += 1
            if len(str(exc)) > 2000:
                tally.crashes.append("an answer of more than 2000 characters")
        except Exception as exc:
            tally.refused["crashed"] += 1
            tally.crashes.append(f"join: {exc!r:.200} for {payload!r:.200}")
    if trust.pinned():
        tally.crashes.append("somebody was pinned")
    tally.seconds = time.monotonic() - began
    return tally


def _requests(rng: Random, known: Known, server: str, token: JoinToken) -> Iterator[dict[str, Any]]:
    """Join requests, as read from a body; some with a real token and one thing wrong."""
    while True:
        payload = payloads.join(rng, known)
        if rng.random() < 0.3:
            payload |= {"invite": token.invite, "mac": _nearly(rng, known, server, token)}
        kind = rng.randrange(5)
        if kind == 0:
            body = bent_bytes(rng, wire.pack(payload))
        elif kind == 1:
            body = wire.pack(payload)
        else:
            body = payloads.packed(mutated(rng, payload))
        try:
            yield wire.unpack(body[: wire.MAX_JOIN_BODY], wire.MAX_JOIN_ITEMS)
        except ValueError:
            yield {"malformed": True}


def _nearly(rng: Random, known: Known, server: str, token: JoinToken) -> bytes:
    """A proof by the right secret, of another request than this one."""
    joiner = known.stranger
    parts = [server, joiner.fingerprint, joiner.name, joiner.url, known.group]
    parts[rng.randrange(5)] += "x"
    first, second, third, fourth, group = parts
    return request_mac(mac_key(token.secret), first, second, third, fourth, group)
