"""The dependency audit: what it makes of what pip-audit says."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from lab import audit

SKIPPED = {"name": "aiohttp", "skip_reason": "not found on PyPI"}
FINE = {"name": "msgpack", "version": "1.0", "vulns": []}
BAD = {"name": "Jinja2", "version": "2.0", "vulns": [{"id": "PYSEC-2024-1"}]}


def saying(packages: list[dict[str, Any]]) -> list[str]:
    """A command that answers as pip-audit would."""
    return [sys.executable, "-c", f"print({json.dumps(json.dumps({'dependencies': packages}))})"]


def test_nothing_asked_is_not_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(saying([SKIPPED, SKIPPED])) == 0
    assert "NOT AUDITED" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["/no/such/pip-audit"], [sys.executable, "-c", "1 / 0"]])
def test_no_answer_is_said_and_holds_nothing_up(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(command) == 0
    assert "NOT AUDITED" in capsys.readouterr().out


def test_what_is_found_fails_unless_salt_pins_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        audit.metadata, "requires", lambda name: ["jinja2==2.0; python_version>'3'"]
    )
    assert audit.main(saying([FINE, BAD, SKIPPED])) == 0
    assert "jinja2: PYSEC-2024-1 (pinned by Salt" in capsys.readouterr().out
    monkeypatch.setattr(audit.metadata, "requires", lambda name: ["jinja2>=2.0"])
    assert audit.main(saying([FINE, BAD])) == 1
    assert audit.main(saying([FINE, SKIPPED])) == 0
