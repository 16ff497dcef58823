"""What masters say in ``hello``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltext_ha.common import version
from saltext_ha.common.errors import HaError
from saltext_ha.config.mapping import HaConfig
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport import wire

TOO_OLD = (
    "it runs a checkout of before 28 November 2026: upgrade it in two steps (docs/upgrading.md)"
)


@dataclass(frozen=True)
class Greeting:
    """
    What this master uses of a peer's answer; the defaults hold until it was met.

    :ivar one_denied: whether its store keeps one denied key per id, as files do.
    :ivar caller: the name by which it knows this master.
    """

    one_denied: bool = True
    caller: str = ""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Greeting:
        """
        What a peer answered.

        :raises InvalidRecord: it makes no sense. :raises HaError: the peer's release is too old.
        """
        if "caller" not in answer:
            raise HaError(TOO_OLD)
        return cls(wire.field(answer, "one_denied", bool), wire.field(answer, "caller", str))


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
            # Two features that releases before December 2026 look for.
            "parts": True,
            "commands": True,
            "salt": version.salt(),
            "version": version.ours(),
        }

    def greet(self) -> dict[str, Any]:
        """The same with this master's vouches: what both sides say in ``hello``."""
        return {**self.describe(), "vouched": self._vouching.own()}
