"""Fixtures that differ only by a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def named(make: Callable[[Path, str], T], *names: str) -> list[Any]:
    """
    ``m1, m2 = named(Master, "m1", "m2")``: a fixture for each name, made by *make* in ``tmp_path``.
    """

    def fixture(name: str) -> Any:
        @pytest.fixture(name=name)
        def made(tmp_path: Path) -> T:
            return make(tmp_path, name)

        return made

    return [fixture(name) for name in names]
