"""No error is shown without its reason."""

from __future__ import annotations

import ast
import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

import saltext_ha
from saltext_ha.common import errors
from saltext_ha.common.errors import reason_of
from saltext_ha.transport.client import _reason

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (OSError(111, "Connection refused"), "Connection refused"),
        (OSError(113, "Connect call failed ('10.0.0.2', 4530)"), "No route to host"),
        (ValueError("a port"), "a port"),
        (asyncio.TimeoutError(), "timed out"),
        (TimeoutError(), "timed out"),
        (ConnectionAbortedError(), "handshake timed out"),
        (ConnectionResetError(), "hung up"),
        (BrokenPipeError(" "), "hung up"),
        (asyncio.IncompleteReadError(b"", 4), "0 bytes read"),
        (ssl.SSLError(), "SSLError"),
        (OSError(), "OSError"),
        (KeyError(), "KeyError"),
    ],
)
def test_what_says_nothing_is_told_by_its_kind(exc: Exception, reason: str) -> None:
    assert reason in reason_of(exc)


@pytest.mark.parametrize("cause", [ConnectionAbortedError(), TimeoutError(), OSError(), OSError(5)])
def test_a_peer_is_never_unreachable_without_a_reason(cause: OSError) -> None:
    key = ConnectionKey("10.0.0.2", 4530, True, None, None, None, None)  # type: ignore[arg-type]
    reason = _reason(aiohttp.ClientConnectorError(key, cause))
    assert reason.startswith("cannot be reached: ")
    assert reason != "cannot be reached: "


def test_all_errors_of_this_package_are_in_one_tree() -> None:
    known = {name for name, each in vars(errors).items() if isinstance(each, type)}
    for path in Path(saltext_ha.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and path != Path(errors.__file__):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                assert not bases & known, f"{path}: {node.name}"
    for name, each in vars(errors).items():
        if isinstance(each, type) and issubclass(each, errors.HaError):
            assert f" {name} " in str(errors.__doc__)


def test_tracebacks_are_dropped_of_an_error_and_its_causes_and_of_nothing_else() -> None:
    def failed(context: Exception | None = None) -> ValueError:
        try:
            if context:
                raise context
            raise KeyError
        except (KeyError, OSError) as cause:
            try:
                raise ValueError from (None if context else cause)
            except ValueError as exc:
                return exc

    error = failed()
    cause = error.__cause__
    assert cause
    assert cause.__traceback__
    errors.drop_tracebacks(error)
    assert (error.__traceback__, cause.__traceback__) == (None, None)

    other = OSError()
    errors.drop_tracebacks(failed(other))
    assert other.__traceback__, "somebody else deals with it"

    own = failed()
    own.__cause__ = own
    errors.drop_tracebacks(own)
    assert own.__traceback__ is None
