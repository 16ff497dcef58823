"""Makes the next item while the caller works on one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar, cast

T = TypeVar("T")

END = object()
"""Comes after the last item."""


async def ahead(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """
    *items*, each made while the caller works on the one before. If you leave before the end, close
    it (``contextlib.aclosing``): that ends *items*, too.
    """
    coming = asyncio.ensure_future(anext(items, END))
    try:
        while (item := await coming) is not END:
            coming = asyncio.ensure_future(anext(items, END))
            await asyncio.sleep(0)  # the next item begins before the caller does
            yield cast(T, item)
    finally:
        coming.cancel()
        try:
            await asyncio.gather(coming, return_exceptions=True)
        finally:
            await items.aclose()
