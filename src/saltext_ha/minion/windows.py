"""Minions on Windows: nothing of saltext-ha works there, and this says so."""

from __future__ import annotations

import salt.utils.platform

WHY = "Windows: saltext-ha has no functions for such minions"


def refusal() -> str:
    """Why this minion has nothing of saltext-ha; empty if it has."""
    return WHY if salt.utils.platform.is_windows() else ""
