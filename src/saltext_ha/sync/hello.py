"""What masters say in ``hello``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common import version
from saltext_ha.config.mapping import HaConfig
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport import wire


@dataclass(frozen=True)
class Greeting:
    """
    What this master uses of a peer's answer; an older release may not tell all of it.

    :ivar parts: whether the peer compares large buckets in parts.
    :ivar commands: whether it takes ``ha.cmd``.
    :ivar one_denied: whether its store keeps one denied key per id, as files do.
    :ivar caller: the name by which it knows this master; empty: it does not say.
    """

    parts: bool = False
    commands: bool = False
    one_denied: bool = True
    caller: str = ""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Greeting:
        """:raises InvalidRecord: *answer* makes no sense."""
        return cls(
            wire.field(answer, "parts", bool, False),
            wire.field(answer, "commands", bool, False),
            wire.field(answer, "one_denied", bool, True),
            wire.field(answer, "caller", str, ""),
        )


class Hello:
    """How one master introduces itself to its peers."""

    def __init__(self, config: HaConfig, keeper: Keeper, vouching: Vouching) -> None:
        self._config, self._keeper, self._vouching = config, keeper, vouching

    def describe(self) -> dict[str, Any]:
        """Its name, its mode and its features."""
        return {
            "name": self._config.name,
            "url": self._config.url,
            "group": self._config.group,
            "mode": self._keeper.mode.name,
            "one_denied": self._keeper.store.one_denied,
            "parts": True,
            "commands": True,
            "salt": version.salt(),
            "version": version.ours(),
        }

    def greet(self) -> dict[str, Any]:
        """The same with this master's vouches: what both sides say in ``hello``."""
        return {**self.describe(), "vouched": self._vouching.own()}
