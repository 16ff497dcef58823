"""Which minions are up: the union of what the masters see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.api.answer import are_names

PARTS = ("up", "down")


@dataclass(frozen=True)
class Minions:
    """
    :ivar up: the minions that at least one master reaches.
    :ivar down: those that a master expects and none of the pool reaches; when ``partial``, none *of
        those that were asked*.
    :ivar masters: minion → names of the masters that reach it.
    :ivar asked: the masters that answered.
    :ivar unasked: master → why it could not be asked.
    """

    up: frozenset[str]
    down: frozenset[str]
    masters: Mapping[str, tuple[str, ...]]
    asked: tuple[str, ...]
    unasked: Mapping[str, str]

    @property
    def partial(self) -> bool:
        """Whether a master is missing: then ``down`` proves nothing, and nothing may be pruned."""
        return bool(self.unasked)


def union(answers: Mapping[str, Any], unasked: Mapping[str, str]) -> Minions:
    """
    :param answers: master → its ``manage.status``: ``{"up": […], "down": […]}``.
    :param unasked: master → why there is no answer.
    """
    reached: dict[str, tuple[str, ...]] = {}
    expected: set[str] = set()
    asked = []
    failed = dict(unasked)
    for master, answer in answers.items():
        if not isinstance(answer, dict) or not all(map(are_names, map(answer.get, PARTS))):
            failed[master] = "its manage.status has another form"
            continue
        asked.append(master)
        expected.update(answer["down"])
        for minion in answer["up"]:
            reached[minion] = (*reached.get(minion, ()), master)
    up = frozenset(reached)
    return Minions(up, frozenset(expected) - up, reached, tuple(asked), failed)
