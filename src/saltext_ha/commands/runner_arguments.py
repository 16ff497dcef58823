"""Checks what Salt made of the arguments that were typed for a function of the runner."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from saltext_ha.common import validators
from saltext_ha.common.errors import HaError

TEXTS = {
    **dict.fromkeys(("glob", "ids", "minion"), "a minion id"),
    "fingerprint": "a fingerprint",
}
"""Arguments of the engine's commands that are text, and what they name."""
SWITCHES = frozenset(
    {"test", "all", "live", "undo", "force", "adopt", "failback", "watchdog", "tls", "restart"}
)
"""Arguments that are on or off."""


def checked(payload: dict[str, Any]) -> dict[str, Any]:
    """
    *payload* with each of :data:`SWITCHES` as a bool, and ``since`` as a text.

    :raises HaError: one is neither on nor off, ``since`` is a number, or one of :data:`TEXTS` is
        not what was typed.
    """
    for name in TEXTS.keys() & payload.keys():
        check_text(payload[name], TEXTS[name])
        if isinstance(payload[name], list) and name != "ids":
            raise HaError(f"takes {TEXTS[name]}, not a list: {payload[name]!r:.80}")
    found = payload | {name: switch(name, payload[name]) for name in SWITCHES & payload.keys()}
    return found | ({"since": _since(payload["since"])} if "since" in payload else {})


def text(value: Any) -> str:
    """A text as it was typed, or what Salt has made of it; empty: not given."""
    return "" if value is None else str(value)


def check_text(value: Any, what: str = "a minion id") -> None:
    """
    Refuse *value* if it is not what was typed: Salt reads 0123, 1.10 or 52:54:00:12:34:56 as
    numbers (``salt.utils.args.yamlify_arg``, 3006 to 3008), and "no" as False.
    """
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str):
            raise HaError(f"Salt has made {each!r:.80} of {what}: quote it twice, '\"0123\"'")


def _since(value: Any) -> str:
    """
    How far back, as it was typed; empty: not given. Salt reads the time of day 14:00 as 840, which
    would be so many seconds: no number is taken.

    :raises HaError: it is a number.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or value.isdigit():
        raise HaError(
            f"since={value!r:.80}: takes a span of time with its unit, such as 90s, 30m, 2h or "
            "1d; Salt makes a number of a time of day, too"
        )
    return value


def switch(name: str, value: Any) -> bool:
    """
    The argument *name* of a runner function, which is on or off.

    :raises HaError: it is neither, such as a mistyped ``force=flase``.
    """
    try:
        return validators.on_off(value)
    except ValueError as exc:
        raise HaError(f"{name}={shown(value)}: {exc}") from None


def shown(value: object) -> str:
    """A wrong argument, for a message: shortened, or only its type if it may be deep or long."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value)[:80] if plain else type(value).__name__


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The *arguments* that the caller gave, without those that Salt adds."""
    return {name: value for name, value in arguments.items() if not name.startswith("__")}


def divided(
    arguments: Mapping[str, Any], own: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    The arguments of a function that runs another one: its *own*, and those of the other function,
    also those in ``kwarg``.

    :raises HaError: ``kwarg`` is no mapping of arguments.
    """
    theirs = given(arguments)
    ours = {name: theirs.pop(name) for name in own if name in theirs}
    more = theirs.pop("kwarg", None) or {}
    if not isinstance(more, Mapping) or not all(isinstance(name, str) for name in more):
        raise HaError("kwarg: takes a mapping of arguments: kwarg='{name: web1}'")
    return ours, {**theirs, **more}
