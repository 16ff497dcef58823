"""
Would a master accept this minion?

A master that answers may still not accept the minion: if its key is pending there, Salt 3006 to
3008 ask again for ever and try no other master; if it is rejected, the minion ends. So before a
move the watchdog signs in, as Salt would, and discards the result. The master treats it like any
sign-in: an unknown key becomes pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import reason_of
from saltext_ha.minion import cleartext_request
from saltext_ha.minion.binding import SeenMaster


@dataclass(frozen=True)
class AuthRefusal:
    """
    Why a master does not accept the minion. ``final``: Salt would stay at this master nevertheless,
    or end; if not final, Salt tries the next master by itself.
    """

    why: str
    final: bool = False


def refusal(
    channel_opts: Mapping[str, Any], master: SeenMaster, timeout: float
) -> AuthRefusal | None:
    """Why *master* would not accept this minion; None: it would. *timeout*: seconds in all."""
    import salt.crypt

    if not master.ips or not master.port:
        return AuthRefusal("its address is unknown")
    address = cleartext_request.where(min(master.ips), master.port)
    opts = {"grains": {}, **channel_opts, **address}
    source = bare_ip(str(opts.get("source_ip") or ""))
    try:
        load = salt.crypt.SAuth(opts).minion_sign_in_payload()
        reply = cleartext_request.ask(opts, master.ips, master.port, load, timeout, source)
        return read(reply, _known_key(opts), str(opts["id"]))
    except Exception as exc:  # many kinds, from Salt's transports and keys
        return AuthRefusal(f"it does not answer a sign-in: {reason_of(exc)}")


def read(reply: Any, known_key: str | None, minion_id: str) -> AuthRefusal | None:
    """
    The meaning of the *reply* to a sign-in.

    :param known_key: the master key that the minion insists on; None: it insists on none.
    :raises ValueError: *reply* is no reply to a sign-in.
    """
    import salt.payload

    load = reply.get("load", reply) if isinstance(reply, Mapping) else None
    load = salt.payload.loads(load) if isinstance(load, bytes) else load
    if not isinstance(load, Mapping):
        raise ValueError("answered, but not to a sign-in")
    if "pub_key" in load:
        if known_key is not None and _lines(str(load["pub_key"])) != known_key:
            return AuthRefusal("its master key is not the one that the minion knows")
        return None
    said = load.get("ret")
    if said is True:
        return AuthRefusal(f"the key of {minion_id} is pending there", final=True)
    if said is False:
        return AuthRefusal(
            f"it has rejected the key of {minion_id}, or knows another one", final=True
        )
    if said == "full":
        return AuthRefusal("it has as many minions as it may have (max_minions)")
    return AuthRefusal(f"it says {said!r:.100}")


def _known_key(opts: Mapping[str, Any]) -> str | None:
    if opts.get("verify_master_pubkey_sign") or opts.get("open_mode"):
        return None
    path = Path(opts["pki_dir"], "minion_master.pub")
    return _lines(path.read_text(encoding="utf-8")) if path.exists() else None


def _lines(pem: str) -> str:
    """The key without white space that editors and releases of Salt add or leave out."""
    return "\n".join(line.strip() for line in pem.strip().splitlines())
