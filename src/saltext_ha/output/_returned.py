"""What minions returned, in Salt's own form: states as a summary of states, the rest nested."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.output._text import HIDDEN, Screen, clean, number

INDENT = 4
STATE_KEY = "_|-"  # between the parts of a key of a state's result

Outputters = Mapping[str, Callable[..., str]]


def returned(
    minion: str, value: Any, code: int, outputters: Outputters, screen: Screen
) -> list[str]:
    """
    The return of one minion.

    :param code: its exit code; not 0: the function failed.
    :param outputters: Salt's.
    """
    value = harmless(value)
    if is_states(value):
        return outputters["highstate"]({clean(minion): value}).rstrip("\n").splitlines()
    said = f" (exit code {number(code)})" if code else ""
    head = screen.paint(f"{clean(minion)}:{said}", "rejected" if code else "accepted")
    text = outputters["nested"](value, nested_indent=INDENT) if value not in ("", None) else ""
    return [head, *text.rstrip("\n").splitlines()]


def is_states(value: Any) -> bool:
    """Whether a value is what ``state.apply`` and its like return: a result for each state."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(
            str(key).count(STATE_KEY) == 3 and isinstance(each, Mapping) and "result" in each
            for key, each in value.items()
        )
    )


def harmless(value: Any) -> Any:
    """*value* without characters that control a terminal; lines and spaces stay as they are."""
    if isinstance(value, Mapping):
        return {harmless(key): harmless(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [harmless(each) for each in value]
    if not isinstance(value, str):
        return value
    text = value.expandtabs()
    return "\n".join(
        "".join("?" if unicodedata.category(char) in HIDDEN else char for char in line)
        for line in text.splitlines()
    )
