"""While one is worked on, the next one is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar, cast

T = TypeVar("T")

END = object()
"""After the last one."""


async def ahead(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """
    *items*, of which the next one is made while the caller works on one. Close it when you leave
    before its end (``contextlib.aclosing``): that ends *items*, too.
    """
    coming = asyncio.ensure_future(anext(items, END))
    try:
        while (item := await coming) is not END:
            coming = asyncio.ensure_future(anext(items, END))
            await asyncio.sleep(0)  # it begins before the caller does
            yield cast(T, item)
    finally:
        coming.cancel()
        try:
            await asyncio.gather(coming, return_exceptions=True)
        finally:
            await items.aclose()
