"""What this master says of itself in ``hello``."""

from __future__ import annotations

from typing import Any

from saltext_ha.common import version
from saltext_ha.config.mapping import HaConfig
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.sync.vouching import Vouching


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
