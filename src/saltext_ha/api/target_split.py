"""
Which master a job goes to, so that every minion hears it exactly once. Pure.

A minion that is bound to several masters hears all of them, a minion with failover hears only one.
By what the group says (``ha.where``) a target is divided: each part is published on one master, and
no minion matches two parts, whichever master it moves to meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from saltext_ha.api.errors import TargetNotDivided

# How a target of that type is written as one word of a compound target.
PREFIXES = {
    "glob": "",
    "compound": "",
    "list": "L@",
    "grain": "G@",
    "grain_pcre": "P@",
    "pcre": "E@",
    "pillar": "I@",
    "pillar_pcre": "J@",
    "ipcidr": "S@",
    "nodegroup": "N@",
}
OPERATORS = frozenset({"and", "or", "not", "(", ")"})


@dataclass(frozen=True)
class Part:
    """A target, and the master that its minions listen to."""

    master: str
    tgt: str | list[str]
    tgt_type: str


def divide(
    tgt: str | list[str],
    tgt_type: str,
    reached: Mapping[str, Sequence[str]],
    order: Sequence[str],
) -> list[Part]:
    """
    The parts of a target.

    :param reached: minion → the masters that reach it, for minions that not every master reaches;
        masters that are not in *order* do not count.
    :param order: the masters, the preferred one first.
    :return: at least one; the first is also for the minions that every master reaches, and for
        those that none reaches.
    :raises TargetNotDivided: one part is not enough, and Salt takes that target only whole.
    """
    homes = {
        minion: [name for name in order if name in masters]
        for minion, masters in reached.items()
        if not {",", " "} & set(minion)  # those cannot be named in a target
    }
    homes = {minion: names for minion, names in homes.items() if names}
    everyone = [name for name in order if all(name in names for names in homes.values())]
    if everyone:
        return [Part(everyone[0], tgt, tgt_type)]
    first = next(name for name in order if any(name in names for names in homes.values()))
    away: dict[str, list[str]] = {}
    for minion, names in sorted(homes.items()):
        if first not in names:
            away.setdefault(names[0], []).append(minion)
    word = _word(tgt, tgt_type)
    if word is None:
        raise TargetNotDivided(tgt, tgt_type)
    gone = ",".join(sorted(minion for minions in away.values() for minion in minions))
    rest = Part(first, f"( {word} ) and not L@{gone}", "compound")
    return [rest, *(_only(word, tgt_type, name, away[name]) for name in order if name in away)]


def _only(word: str, tgt_type: str, master: str, minions: Iterable[str]) -> Part:
    if tgt_type == "list":
        return Part(master, list(minions), "list")  # the group was asked about no others
    return Part(master, f"( {word} ) and L@{','.join(minions)}", "compound")


def _word(tgt: str | list[str], tgt_type: str) -> str | None:
    """The target within a compound one; None where it cannot stand there."""
    if tgt_type not in PREFIXES:
        return None
    words = [tgt] if isinstance(tgt, str) else list(map(str, tgt))
    if tgt_type == "compound":
        # A text is divided at every space, and a list is made a text.
        whole = isinstance(tgt, str) or all(len(word.split()) == 1 for word in words)
        return " ".join(words) if whole else None
    text = ",".join(words)
    if len(text.split()) != 1 or (tgt_type == "glob" and (text[1:2] == "@" or text in OPERATORS)):
        return None
    return PREFIXES[tgt_type] + text
