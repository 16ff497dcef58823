"""Settings and hooks that all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
import salt._logging.impl

HERE = Path(__file__).parent
# Files that take minutes, and mostly wait: for a master to be found dead, for a page to notice. If
# they ran last, each alone, they would leave the processors idle.
WAITING = [
    f"integration/test_{name}.py"
    for name in (
        "watchdog",
        "api_pool",
        "api_group",
        "safe",
        "tutorials",
        "minions",
        "load_balancer",
        "watchdog_over_tcp",
        "install_minions",
        "cluster_isolated",
        "watchdog_past_others",
        "deploy_states",
        "trees",
    )
]

# The duration of an example depends on the machine, and says nothing about the tested code.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")

# Whatever this machine's administrators chose: other users read what tests make, and no proxy gets
# what tests ask each other. (What is downloaded comes over HTTPS.)
os.umask(0o022)
for variable in ("http_proxy", "HTTP_PROXY"):
    os.environ.pop(variable, None)

# No shell of a user has it. Without a buffer nothing is left that cannot be written at the end.
os.environ.pop("PYTHONUNBUFFERED", None)

# Hundreds of processes are started: each would compile half a thousand modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a key by its kind: its text of several lines differs in each run."""
    if isinstance(val, str) and "\n" in val and val.startswith("-----BEGIN"):
        whole = val.rstrip().endswith("-----")
        return f"{argname}: a key" if whole else f"{argname}: {len(val)} characters of a key"
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: also run against the older releases of Salt")
    # Salt keeps log records for a daemon that will set logging up, and writes them at exit to a
    # stream that pytest has closed by then.
    salt._logging.impl.shutdown_temp_handler()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, files that take minutes come first: all workers then end together."""

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(HERE).as_posix()
        return WAITING.index(name) if name in WAITING else len(WAITING)

    if hasattr(config, "workerinput"):
        items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """
    Imported modules and thousands of tests stay: the garbage collector need not look through them
    while they come, which took a third of the time, nor later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
