"""What minions say of themselves when a master asks whether they could do without another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.errors import InvalidRecord
from saltext_ha.lint.model import INFO
from saltext_ha.safety import MinionReport

# One job with several functions; each is one that people ask, too.
FUNCTIONS = ("ha.lint", "ha.masters", "ha.current_master", "config.get")
ARGUMENTS: tuple[list[str], ...] = ([], [], [], ["verify_master_pubkey_sign"])
WAIT = 8  # seconds; whoever says then that it is still at it is waited for
MAX_TEXT = 300
MAX_MASTERS = 50
MAX_FINDINGS = 50

#: (host as the minion writes it, its request port) → the master of the group that is there.
Lookup = Callable[[str, int], str | None]


def ask(opts: Mapping[str, Any], glob: str) -> dict[str, dict[str, Any]]:
    """
    Ask all minions that listen to this master; what :func:`shorten` makes of each answer by id.

    It publishes a job and waits for up to :data:`WAIT` seconds and as long as they work on it.
    """
    import salt.client

    said: dict[str, dict[str, Any]] = {}
    with salt.client.LocalClient(mopts=dict(opts)) as client:
        arguments = [list(each) for each in ARGUMENTS]
        for part in client.cmd_iter(glob, list(FUNCTIONS), arguments, timeout=WAIT):
            for name, answer in part.items():
                # Whoever is silent is left out, or marked as failed.
                if isinstance(answer, Mapping) and "ret" in answer:
                    said[str(name)] = shorten(answer["ret"])
    return said


def shorten(answer: Any) -> dict[str, Any]:
    """What is to be known of one minion, to be sent to a peer."""
    if not isinstance(answer, Mapping):
        return {"problem": str(answer)[:MAX_TEXT]}
    lint, masters, current, verifies = (answer.get(function) for function in FUNCTIONS)
    if not isinstance(lint, Mapping) or "findings" not in lint:
        reason = lint.get("error") if isinstance(lint, Mapping) else lint
        return {"problem": f"ha.lint: {str(reason)[:MAX_TEXT]}"}
    if not isinstance(masters, list) or not isinstance(current, Mapping):
        return {"problem": f"ha.masters: {str(masters)[:MAX_TEXT]}"}
    unknown = lint.get("unknown")
    if unknown:
        what = ", ".join(f"{name}: {why}" for name, why in unknown.items())
        return {"problem": f"ha.lint could not look at all: {what[:MAX_TEXT]}"}
    return {
        "type": str(current.get("type")),
        "masters": [[row.get("address"), row.get("port"), row.get("connected")] for row in masters],
        "verifies": verifies is True,
        "findings": [
            [str(f["code"]), f"{f['title']} ({f['detail']})"[:MAX_TEXT], str(f["fix"])[:MAX_TEXT]]
            for f in lint["findings"]
            if f["severity"] != INFO
        ],
    }


def read(raw: Any, lookup: Lookup) -> dict[str, MinionReport]:
    """
    The minions that a master, maybe a peer, was answered by.

    :raises InvalidRecord: it makes no sense.
    """
    try:
        return {str(name): _report(one, lookup) for name, one in raw.items()}
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as exc:
        raise InvalidRecord(f"its answer makes no sense: {exc!r:.100}") from None


def _report(one: Mapping[str, Any], lookup: Lookup) -> MinionReport:
    if one.get("problem"):
        return MinionReport(problem=str(one["problem"])[: 2 * MAX_TEXT])
    masters = []
    # Older peers do not say whether it is connected: that is not known then.
    for host, port, *connected in one["masters"][:MAX_MASTERS]:
        bound = connected[0] if connected and isinstance(connected[0], bool) else None
        masters.append((lookup(str(host), int(port or 0)), f"{str(host)[:MAX_TEXT]}:{port}", bound))
    return MinionReport(
        tuple(masters),
        str(one["type"])[:MAX_TEXT],
        one["verifies"] is True,
        tuple(
            (str(code)[:20], str(text)[:MAX_TEXT], str(fix)[:MAX_TEXT])
            for code, text, fix in one["findings"][:MAX_FINDINGS]
        ),
    )
