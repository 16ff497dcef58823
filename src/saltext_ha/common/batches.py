"""Divides long sequences into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

BATCH = 500
"""Items that one transaction takes."""

T = TypeVar("T")


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """*items* in lists of at most *size*."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
