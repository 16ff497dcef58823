"""A peer without a network: a function in this process answers for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from saltext_ha.sync.messages import Limit

Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Answering:
    """
    As :class:`saltext_ha.sync.contact.Asking`.

    :param answer: takes method and payload.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.limit = Limit()

    async def call(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A small question."""
        return await self.answer(method, payload)

    async def call_large(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A large one."""
        return await self.answer(method, payload)
