"""The answer of a salt-api: decoded within limits, and checked for the form of its client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.common.printable import harmless

# The returns of a highstate on thousands of minions are some dozen megabytes.
MAX_BODY = 256 * 1024 * 1024
# An empty list takes two bytes of JSON, and sixty in memory.
MAX_ITEMS = 10_000_000
# Well under what Python's own functions for nested values (repr, copy, pickle) bear.
MAX_DEPTH = 100
LONGEST = 1000


@dataclass(frozen=True)
class Answer:
    """
    A complete answer of a server. Its repr omits the body: after a login it has a token.

    :ivar private: salt-api knows the token of the request, whatever it says else.
    """

    status: int
    body: bytes = field(repr=False)
    private: bool = False

    def json(self) -> Any:
        """The body, decoded. :raises ValueError: it is no JSON, too large, or nested too deep."""
        # Commas and brackets within texts count, too: the limit leaves room for them.
        if sum(map(self.body.count, (b",", b"[", b"{"))) > MAX_ITEMS:
            raise ValueError(f"has more than {MAX_ITEMS} items")
        value, problem = None, ""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError, MemoryError) as exc:
            problem = type(exc).__name__
        # Outside of the handler: that exception has the whole text, perhaps with a token in it.
        if problem:
            raise ValueError(f"is not JSON ({problem})")
        _check_depth(value)
        return value

    def returned(self) -> Any:
        """The return of the one call in a request. :raises ValueError: no salt-api answers so."""
        value = self.json()
        if not isinstance(value, dict) or not isinstance(value.get("return"), list):
            raise ValueError("has no list of returns")
        if not value["return"]:
            raise ValueError("has no return")
        return value["return"][0]


def _check_depth(value: Any) -> None:
    """Refuse deep nesting: how deep Python can go depends on its release and on the caller."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")


def are_names(value: Any) -> bool:
    """Whether *value* is a list of texts, as lists of minion ids are."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def check_form(low: Mapping[str, Any], value: Any) -> None:
    """
    :param low: the call.
    :param value: its return, as salt-api tells it.
    :raises ValueError: no salt-api answers in this form.
    """
    good = True
    if low["client"] in ("local", "local_async"):
        good = isinstance(value, dict)
    if low["client"] == "local_async":
        good = good and are_names(value.get("minions", []))
    elif low["client"] == "wheel" or (low.get("full_return") and low["client"] == "runner"):
        data = value.get("data") if isinstance(value, dict) else None
        good = isinstance(data, dict) and "return" in data and isinstance(data.get("success"), bool)
    if not good:
        raise ValueError(f"is of another form than those of {low['client']}")


def shown(value: Any) -> str:
    """*value* as a part of a message: one line, printable, of a bounded length."""
    try:
        text = str(value)
    except (ValueError, RecursionError, MemoryError):  # a number of thousands of digits
        text = type(value).__name__
    text = harmless(" ".join(text[: 2 * LONGEST].split()))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
