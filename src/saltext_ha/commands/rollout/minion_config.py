"""``ha.minion_config``: makes the file that names all masters to a minion, by asking them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from saltext_ha.commands.masters.endpoints import Endpoints, MinionEndpoint
from saltext_ha.common import version
from saltext_ha.common.errors import HaError
from saltext_ha.config.watchdog import jitter_for
from saltext_ha.lint import check
from saltext_ha.lint.model import INFO, MINION, HostFacts, Place
from saltext_ha.minion import binding
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.rollout import drop_in

SHARE = (
    "salt-ha invite share_master_key=True on the master whose key the minions know, salt-ha join "
    "--token-file - force=True with that token on the others, then restart salt-master there "
    "(members of Salt's own cluster: one cluster.pem and cluster.pub by hand)"
)
SHA256 = "sha256"


async def minion_config(
    core: Core, endpoints: Endpoints, hash_type: str, payload: dict[str, Any]
) -> dict[str, Any]:
    """
    The answer of ``ha.minion_config``.

    :param hash_type: Salt's option, as this master has it; minions are to have the same.
    """
    masters, errors = await endpoints.all()
    counts = await core.run(core.replica.counts)
    return await asyncio.to_thread(
        answer, masters, errors, counts.get(ACCEPTED, 0), payload, hash_type
    )


def answer(
    masters: list[MinionEndpoint],
    errors: Mapping[str, str],
    minions: int,
    payload: Mapping[str, Any],
    hash_type: str = SHA256,
) -> dict[str, Any]:
    """
    The answer of ``ha.minion_config``.

    :param masters: all masters; a master that was not reached has only its address.
    :param minions: number of accepted minions of the group.
    :raises HaError: no configuration works for these masters; says how to fix that.
    """
    known = [each for each in masters if each.reached]
    kind = payload.get("type", drop_in.FAILOVER)
    signed = _signed(known, kind)
    transports = {each.transport for each in known}
    if len(transports) > 1:
        raise HaError(f"the masters speak different transports: {_shown(known, 'transport')}")
    watchdog = payload.get("watchdog", False)
    entries = [drop_in.joined(each.address, each.request_port) for each in masters]
    wish = drop_in.wanted(
        entries,
        type=kind,
        publish_port=_publish_port(known, str(kind)),
        alive=payload.get("alive", drop_in.ALIVE),
        failback=payload.get("failback", False),
        watchdog=watchdog,
        finger="" if signed else known[0].finger,
        signed=signed,
        transport=transports.pop(),
        jitter=jitter_for(minions) if watchdog else drop_in.JITTER,
        master_names=dict(zip((each.name for each in masters), entries, strict=True)),
    )
    found = drop_in.options(wish)
    notes = [
        f"{name} could not be asked ({why}): whether its ports and its key are the same as on the "
        "others is not known"
        for name, why in sorted(errors.items())
    ]
    if not signed and hash_type != SHA256:
        notes.append(
            f"this master has hash_type: {hash_type}: a minion with it compares fingerprints by "
            "it, and ends with this one, of SHA-256; take hash_type out, on masters and minions"
        )
    if signed:
        sign = known[0].sign_finger
        notes.append(
            "the minion needs the masters' master_sign.pub in its pki_dir first; fingerprint "
            f"{sign}"
        )
    findings = [f for f in _lint(known, found) if f["severity"] != INFO]
    return {
        "kind": "minion_config",
        "options": found,
        "text": drop_in.text(found),
        "sls": drop_in.sls(wish),
        "masters": [each.name for each in masters],
        "sign_finger": known[0].sign_finger if signed else "",
        "notes": notes,
        "findings": findings,
        "unknown": dict(errors),
        "retcode": 2 if errors else 1 if findings else 0,
    }


def _signed(known: list[MinionEndpoint], kind: Any) -> bool:
    """
    Whether minions know these masters by their signature instead of one key.

    :raises HaError: neither works for all of them.
    """
    if any(not each.finger for each in known):
        without = ", ".join(each.name for each in known if not each.finger)
        raise HaError(f"{without}: has no master key yet; start salt-master there once")
    one_key = len({each.finger for each in known}) == 1
    signing = {each.sign_finger for each in known}
    if signing == {""}:
        if one_key:
            return False
        raise HaError(
            f"the masters have different keys ({_shown(known, 'finger')}): a master_finger would "
            f"let the minion connect to one of them only. {SHARE}"
        )
    if len(signing) > 1:
        raise HaError(
            f"not all masters sign with one key ({_shown(known, 'sign_finger')}): a minion that "
            "verifies refuses those that do not, and the other way round. salt-ha invite "
            "share_signing_key=True, and master_sign_pubkey the same on all"
        )
    if kind == drop_in.HOT and not one_key:
        raise HaError(
            f"a hot minion keeps one master key, and these have different ones "
            f"({_shown(known, 'finger')}), signed or not: type=failover, or {SHARE}"
        )
    return True


def _publish_port(known: list[MinionEndpoint], kind: str) -> int | None:
    ports = {each.publish_port for each in known}
    if len(ports) == 1:
        return ports.pop()
    if kind == drop_in.HOT:
        return None
    raise HaError(
        f"the masters publish on different ports ({_shown(known, 'publish_port')}): a failover "
        "minion looks for its master at one port. The same publish_port on all masters, each with "
        "an address of its own; or type=hot"
    )


def _shown(known: list[MinionEndpoint], what: str) -> str:
    return ", ".join(f"{each.name} {str(getattr(each, what))[:14] or '-'}" for each in known)


def _lint(known: list[MinionEndpoint], found: Mapping[str, Any]) -> list[check.Finding]:
    """What the rules of ``ha.lint`` say about a minion that has only the options *found*."""
    import salt.config

    addresses = {each.address: binding.resolved(each.address) or None for each in known}
    told = {
        (ip, each.request_port): each.publish_port
        for each in known
        for ip in addresses[each.address] or ()
    }
    options = {**salt.config.DEFAULT_MINION_OPTS.copy(), **found}
    places = dict.fromkeys(found, Place(drop_in.NAME, 0))
    release = version.salt_release()
    facts = HostFacts(MINION, release, options, places, told=told, addresses=addresses)
    return check.inspect("minion", facts)
