"""What masters with a status page have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import TOKEN


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    """A file with the token of a status page."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return str(file)
