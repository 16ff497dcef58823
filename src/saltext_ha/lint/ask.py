"""``ha.lint`` on a minion, on a master, and on all masters through an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.config import mapping
from saltext_ha.lint import check, collect, wire
from saltext_ha.lint.check import Choice
from saltext_ha.transport import control_client

Answer = dict[str, Any]


def minion(running: Mapping[str, Any], only: Any = "", ignore: Any = "") -> Answer:
    """
    The answer of a minion (or of salt-call there).

    :raises HaError: there is no such rule, or no configuration file.
    """
    facts = collect.of_minion(running)
    choice = Choice(
        check.codes(only, "only"),
        check.codes(ignore, "ignore") | check.configured(facts.options),
    )
    name = str(running.get("id") or facts.get("id"))
    return check.answer(check.inspect(name, facts), choice, [name], facts.unknown)


def master(running: Mapping[str, Any], only: Any = "", ignore: Any = "") -> Answer:
    """
    The answer of a master and its peers; if its engine does not run, of this master alone, with the
    others unknown.

    :raises HaError: there is no such rule, or no configuration file.
    """
    chosen = check.codes(only, "only"), check.codes(ignore, "ignore")
    payload = {"only": sorted(chosen[0]), "ignore": sorted(chosen[1])}
    try:
        settings = mapping.parse(running)
        return control_client.request(settings.control_socket, "lint", payload)
    except HaError as exc:
        why = f"the rules that compare masters were not asked: {exc}"
    facts = collect.of_master(running)
    name = str(facts.get("id", "")).removesuffix("_master")
    choice = Choice(chosen[0], chosen[1] | check.configured(facts.options))
    findings = check.inspect(name, facts)
    return check.answer(findings, choice, [name], {**facts.unknown, "other masters": why})


def for_peer(name: str, running: Mapping[str, Any]) -> Answer:
    """
    A master's answer to a peer.

    :raises HaError: its configuration file does not exist, or it ignores an unknown rule.
    """
    facts = collect.of_master(running)
    ignored = check.configured(facts.options)
    findings = [f for f in check.inspect(name, facts) if f["code"] not in ignored]
    return wire.to_wire(collect.member(name, facts), findings, facts.unknown)


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
    choice = Choice(
        check.codes(payload.get("only"), "only"),
        check.codes(payload.get("ignore"), "ignore") | check.configured(facts.options),
    )
    findings = check.inspect(name, facts)
    members = [collect.member(name, facts)]
    unknown = {**facts.unknown, **errors}
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
    return check.answer([*findings, *check.compare(members)], choice, asked, unknown)
