"""Fixtures for tests with real masters and minions, and their logs when a test fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lab import Lab, Master, open_labs

MakeLab = Callable[..., Lab]


@pytest.fixture(scope="session")
def make_lab() -> Iterator[MakeLab]:
    """
    Make labs: ``make_lab()`` takes what ``Lab`` takes. Each ends with the session at the latest;
    ``with make_lab() as lab:`` ends it earlier, which two busy cores are glad of. Its commands are
    forked, unless *forked* is ``False``.
    """
    with ExitStack() as stack:

        def make(*args: Any, **kwargs: Any) -> Lab:
            lab = Lab(*args, **{"forked": True, **kwargs})
            stack.callback(lab.close)
            return lab

        yield make


@pytest.fixture
def lab() -> Iterator[Lab]:
    """An empty lab for one test."""
    # Not a with-block: closing must come after the report has read the logs.
    lab = Lab(forked=True)
    yield lab
    lab.close()


@pytest.fixture
def m1(lab: Lab) -> Master:
    """The master of that name in the lab of the test, or of its file."""
    return lab.masters["m1"]


@pytest.fixture
def m2(lab: Lab) -> Master:
    return lab.masters["m2"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the errors that the daemons logged beside the failure that they may have caused."""
    report = yield
    if report.failed:
        for lab in open_labs():
            troubles = lab.postmortem or lab.troubles()
            lab.postmortem = ""
            if troubles:
                report.sections.append((f"logs of the lab in {lab.root}", troubles))
    return report
