"""What people see, as whole texts without colours."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from saltext_ha.output import ha


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the second, the loaders of 3006 and 3007 load nothing.
    opts = {"color": False, "optimization_order": [0, 1, 2], "state_verbose": True}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal of 80 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


def shows(data: Mapping[str, Any], expected: str) -> None:
    """Assert that people see *expected* of an answer; how far it is indented does not count."""
    assert ha.output(data) == textwrap.dedent(expected).strip("\n")
