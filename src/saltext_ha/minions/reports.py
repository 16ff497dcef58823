"""Reports of minions to a master that asks whether they could do without another one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.lint.model import INFO
from saltext_ha.minions.safety import KnownMaster, MinionReport

FUNCTION = "ha.failover_report"
MAX_TEXT = 300
MAX_MASTERS = 50
MAX_FINDINGS = 20
MAX_CODE = 20
NONSENSE = f"what it answers to {FUNCTION} makes no sense"
MASTER = ("address", "port", "connected", "publishes")

#: A host, or address, as minions write it, and a request port.
Place = tuple[str, int]
#: The same → the masters of the group that may be there.
Lookup = Callable[[str, int], Collection[str]]


def shorten(answer: Any) -> dict[str, Any]:
    """
    The report of one minion, as a message for a peer, of limited size whatever it answered. An
    invalid answer is a problem of that minion only.
    """
    try:
        return _shorten(answer)
    except NO_SENSE:
        return {"problem": NONSENSE}


def _shorten(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        said = str(answer)[:MAX_TEXT]
        return {"problem": said if FUNCTION in said else f"{FUNCTION}: {said}"}
    parts = ("lint", "masters", "current_master", "verify_master_pubkey_sign")
    lint, masters, current, verifies = (answer.get(part) for part in parts)
    if not isinstance(lint, Mapping) or "findings" not in lint:
        reason = lint.get("error") if isinstance(lint, Mapping) else lint
        return {"problem": f"ha.lint: {str(reason)[:MAX_TEXT]}"}
    if not isinstance(masters, list) or not isinstance(current, Mapping):
        return {"problem": f"ha.masters: {str(masters)[:MAX_TEXT]}"}
    unknown = lint.get("unknown")
    if unknown:
        what = ", ".join(f"{name}: {why}" for name, why in unknown.items())
        return {"problem": f"ha.lint could not look at all: {what[:MAX_TEXT]}"}
    if len(masters) > MAX_MASTERS:
        return {"problem": f"ha.masters: more than {MAX_MASTERS} masters"}
    return {
        "type": str(current.get("type"))[:MAX_TEXT],
        "masters": [
            [_plain(row.get(name)) for name in MASTER] + [_answers(row)] for row in masters
        ],
        "here": _here(current),
        "verifies": verifies is True,
        "findings": [
            [
                str(f["code"])[:MAX_CODE],
                f"{f['title']} ({f['detail']})"[:MAX_TEXT],
                str(f["fix"])[:MAX_TEXT],
            ]
            for f in lint["findings"]
            if f["severity"] != INFO
        ][:MAX_FINDINGS],
    }


def _plain(value: Any) -> str | int | None:
    """A field of a row: a text, a port, or yes, no, unknown."""
    return value if value is None or isinstance(value, int) else str(value)[:MAX_TEXT]


def _answers(row: Mapping[str, Any]) -> bool | None:
    ping = row.get("ping")
    return _known(ping.get("answers")) if isinstance(ping, Mapping) else None


def _here(current: Mapping[str, Any]) -> list[Any]:
    """Where the master that asked is; empty if that is in doubt."""
    if current.get("connected") is not True or current.get("note"):
        return []
    return [_plain(current.get("address")), _plain(current.get("port"))]


def _known(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def place(host: str, port: int) -> Place:
    """The same value for all ways to write one place."""
    return bare_ip(host) or host.lower(), port


def met(raw: Any) -> set[Place]:
    """Where minions that answered it say that a master is; invalid answers are left out."""
    found = set()
    for one in raw.values() if isinstance(raw, Mapping) else ():
        with contextlib.suppress(*NO_SENSE):
            host, port = one["here"][:2]
            found.add(place(str(host)[:MAX_TEXT], int(port)))
    return found


def read(raw: Any, lookup: Lookup) -> dict[str, MinionReport]:
    """
    The minions that answered a master, perhaps a peer. A minion with an invalid answer gets a
    report of this problem; the others count.

    :raises InvalidRecord: it is no table of minions.
    """
    if not isinstance(raw, Mapping):
        raise InvalidRecord("its answer makes no sense: no table of minions")
    found = {}
    for name, one in raw.items():
        try:
            found[str(name)] = _report(one, lookup)
        except NO_SENSE:
            found[str(name)] = MinionReport(problem=NONSENSE)
    return found


def _report(one: Mapping[str, Any], lookup: Lookup) -> MinionReport:
    if one.get("problem"):
        return MinionReport(problem=str(one["problem"])[: 2 * MAX_TEXT])
    masters = []
    for row in one["masters"][:MAX_MASTERS]:
        host, port, *rest = row[:5]
        connected, publishes, answers = map(_known, rest)
        host, port = str(host)[:MAX_TEXT], int(port or 0)
        members = tuple(sorted(lookup(host, port)))
        written = f"{host}:{port}"
        masters.append(KnownMaster(members, written, connected, answers, publishes))
    return MinionReport(
        tuple(masters),
        str(one["type"])[:MAX_TEXT],
        one["verifies"] is True,
        tuple(
            (str(code)[:MAX_CODE], str(text)[:MAX_TEXT], str(fix)[:MAX_TEXT])
            for code, text, fix in one["findings"][:MAX_FINDINGS]
        ),
    )
