"""The Salt whose configurations tests of ``ha.lint`` look at."""

from __future__ import annotations

import pytest

from tests.unit.lint.linting import NEWEST, salt_is


@pytest.fixture(autouse=True)
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    salt_is(NEWEST[0], monkeypatch)
