"""
Arguments of the execution module, as somebody typed them. What cannot be right raises
SaltInvocationError, which Salt prints as it is.
"""

from __future__ import annotations

from typing import Any

from salt.exceptions import SaltInvocationError

from saltext_ha.common import validators


def sent(kwargs: dict[str, Any], takes: str) -> dict[str, Any]:
    """What Salt tells of the job, as ``__pub_…``; any other argument is mistyped, and refused."""
    unknown = [name for name in kwargs if not name.startswith("__")]
    if unknown:
        raise SaltInvocationError(f"{', '.join(unknown)}: takes only {takes}")
    return kwargs


def switch(name: str, value: Any) -> bool:
    """True, False, or a word for one of them."""
    try:
        return validators.on_off(value)
    except ValueError as exc:
        raise SaltInvocationError(f"{name}={value!r:.80}: {exc}") from None


def seconds(timeout: Any) -> float:
    """Some seconds, at most five minutes."""
    try:
        limit = float(timeout)
    except (TypeError, ValueError):
        limit = 0.0
    if not 0 < limit <= 300:
        raise SaltInvocationError(f"timeout: {timeout!r} takes seconds, more than 0, at most 300")
    return limit
