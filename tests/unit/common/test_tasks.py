"""Several are asked at once, and answers and reasons are kept apart."""

from __future__ import annotations

import asyncio

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.common.tasks import answers_of

pytestmark = pytest.mark.core


def test_answers_and_reasons_are_in_the_order_of_the_names_whoever_is_first() -> None:
    asked: list[str] = []

    async def ask(name: str) -> str | None:
        asked.append(name)
        while len(asked) < 4:  # all at once
            await asyncio.sleep(0)
        for _ in range(10 - int(name)):  # the last one is the first to answer
            await asyncio.sleep(0)
        if int(name) % 2:
            raise HaError(f"no {name}")
        return None if name == "2" else name

    answers, errors = asyncio.run(answers_of(["1", "2", "3", "4"], ask))
    assert list(answers.items()) == [("2", None), ("4", "4")]
    assert list(errors.items()) == [("1", "no 1"), ("3", "no 3")]


def test_an_error_that_nobody_expects_is_no_reason() -> None:
    async def ask(name: str) -> None:
        raise ValueError(name)

    with pytest.raises(ValueError, match="m1"):
        asyncio.run(answers_of(["m1"], ask))
