"""``ha.lint`` on a minion, on a master, and on all masters through an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.config import mapping
from saltext_ha.lint import check, collect, wire
from saltext_ha.lint.check import Choice
from saltext_ha.lint.model import MASTER, HostFacts
from saltext_ha.transport import control_client

Answer = dict[str, Any]


def minion(running: Mapping[str, Any], only: Any = "", ignore: Any = "") -> Answer:
    """
    The answer of a minion (or of salt-call there).

    :raises HaError: there is no such rule for minions, or no configuration file.
    """
    facts = collect.of_minion(running)
    choice = _choice(only, ignore, facts)
    name = str(running.get("id") or facts.get("id"))
    unknown = {**facts.unknown}
    return check.answer(check.inspect(name, facts, unknown), choice, [name], unknown)


def master(running: Mapping[str, Any], only: Any = "", ignore: Any = "") -> Answer:
    """
    The answer of a master and its peers; if its engine does not run, of this master alone, with the
    others unknown.

    :raises HaError: there is no such rule for masters, or no configuration file.
    """
    chosen = check.asked(only, MASTER), check.codes(ignore, "ignore")
    payload = {"only": sorted(chosen[0]), "ignore": sorted(chosen[1])}
    try:
        settings = mapping.parse(running)
        return control_client.request(settings.control_socket, "lint", payload)
    except HaError as exc:
        why = f"the rules that compare masters were not asked: {exc}"
    facts = collect.of_master(running)
    name = str(facts.get("id", "")).removesuffix("_master")
    unknown = {**facts.unknown, "other masters": why}
    findings = check.inspect(name, facts, unknown)
    return check.answer(findings, _choice(*chosen, facts), [name], unknown)


def for_peer(name: str, running: Mapping[str, Any]) -> Answer:
    """
    A master's answer to a peer.

    :raises HaError: its configuration file does not exist, or it ignores an unknown rule.
    """
    facts = collect.of_master(running)
    ignored = check.configured(facts.options)
    failed = {**facts.unknown}
    findings = [f for f in check.inspect(name, facts, failed) if f["code"] not in ignored]
    unknown = {what: why for what, why in failed.items() if what not in ignored}
    return wire.to_wire(collect.member(name, facts), findings, unknown)


def group(
    name: str,
    running: Mapping[str, Any],
    answers: Mapping[str, Mapping[str, Any]],
    errors: Mapping[str, str],
    payload: Mapping[str, Any],
) -> Answer:
    """
    The answer of all masters, put together on the one that was asked.

    :param answers: peer → the result of :func:`for_peer` there.
    :param errors: peer → why it did not answer.
    :raises HaError: as :func:`master`.
    """
    facts = collect.of_master(running)
    choice = _choice(payload.get("only"), payload.get("ignore"), facts)
    unknown = {**facts.unknown, **errors}
    findings = check.inspect(name, facts, unknown)
    members = [collect.member(name, facts)]
    for peer, raw in sorted(answers.items()):
        try:
            there, theirs, missing = wire.from_wire(peer, raw)
        except HaError as exc:
            unknown[peer] = str(exc)
            continue
        members.append(there)
        findings += theirs
        unknown.update({f"{peer}: {what}": why for what, why in missing.items()})
    asked = [member.name for member in members]
    return check.answer([*findings, *check.compare(members, unknown)], choice, asked, unknown)


def _choice(only: Any, ignore: Any, facts: HostFacts) -> Choice:
    """
    What is asked for, without what the configuration ignores.

    :raises HaError: there is no such rule for these *facts*.
    """
    ignored = check.codes(ignore, "ignore") | check.configured(facts.options)
    return Choice(check.asked(only, facts.role), ignored)
