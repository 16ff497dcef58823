"""Minions on Windows: nothing of saltext-ha works there, and this says so."""

from __future__ import annotations

import salt.utils.platform

WHY = "Windows: saltext-ha has no functions for such minions"


def virtual(name: str) -> str | tuple[bool, str]:
    """What ``__virtual__`` of a module of this package returns to Salt, if it is called *name*."""
    why = refusal()
    return (False, why) if why else name


def refusal() -> str:
    """Why this minion has nothing of saltext-ha; empty if it has."""
    return WHY if salt.utils.platform.is_windows() else ""
