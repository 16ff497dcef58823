"""
The sessions that users of Salt's template for extensions expect. Each calls the target of the
Makefile that does the work: ``nox -e lint``, ``nox -e tests-3``, ``nox -e docs-html``.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["check"]
nox.options.default_venv_backend = "none"


def make(session: nox.Session, *targets: str) -> None:
    """``make TARGETS``, with what stands behind ``--``."""
    session.run("make", *targets, *session.posargs, external=True)


@nox.session
def check(session: nox.Session) -> None:
    """For the edit loop: lint, types, unit tests."""
    make(session, "check")


@nox.session(name="tests-3")
def tests(session: nox.Session) -> None:
    """Lint, the whole suite, and a core of it on other Pythons."""
    make(session, "test")


@nox.session
def lint(session: nox.Session) -> None:
    """All that needs no test to be run."""
    make(session, "lint")


@nox.session(name="docs-html")
def docs(session: nox.Session) -> None:
    """The site, into .docs/html."""
    make(session, "docs")


@nox.session
def coverage(session: nox.Session) -> None:
    """Unit and functional tests, measured in all processes."""
    make(session, "coverage")


@nox.session
def build(session: nox.Session) -> None:
    """Wheel and sdist, checked; without the environments that make dist tries them in."""
    make(session, "dist", "ARGS=--build-only")
