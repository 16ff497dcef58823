"""What all tests share."""

from __future__ import annotations

import pytest
import salt._logging.impl


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: also run against the older releases of Salt")
    # Salt keeps log records for a daemon that will set logging up, and writes them at exit to a
    # stream that pytest has closed by then.
    salt._logging.impl.shutdown_temp_handler()
