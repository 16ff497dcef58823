"""Conflicts as text, wherever they are shown: ids of which different keys are accepted."""

from __future__ import annotations

from saltext_ha.output._text import Data, Screen, clean, count, distinct, listed, on_master


def conflicts(conflicts: list[Data], screen: Screen) -> list[str]:
    """Lines about ids in conflict, each with the command that ends it."""
    if not conflicts:
        return []
    title = f"{count(len(conflicts), 'conflict')}: different keys accepted for one id"
    lines = [screen.paint(title, "conflict")]
    entries = []
    for conflict in conflicts:
        keys = conflict.get("keys") or {}
        shown = distinct(on_master(key) for key in keys.values())
        prints = "   ".join(f"{clean(name)} {fp}" for name, fp in zip(keys, shown, strict=True))
        entries.append(f"{clean(conflict.get('id'))}   {prints}".rstrip())
        entries[-1] += f"\n  → {_resolve(conflict)}"
    return [*lines, *listed(entries)]


def _resolve(conflict: Data) -> str:
    """The command that ends a conflict; only an operator can know which key is the minion's own."""
    found = [str(text) for text in (conflict.get("keys") or {}).values() if text]
    keys = dict.fromkeys(key.split()[-1] for text in found for key in text.split(", "))
    shown = " or ".join(distinct(keys)) or "FINGERPRINT"
    return f"salt-run ha.resolve {clean(conflict.get('id'))} {shown}"
