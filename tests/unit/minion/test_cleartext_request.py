"""Which of the addresses of a master is asked."""

from __future__ import annotations

import socket

import pytest

from saltext_ha.minion import cleartext_request

pytestmark = pytest.mark.core


def test_an_address_of_a_name_that_nobody_serves_is_passed_over() -> None:
    with socket.socket() as mute:
        # It does not listen, and keeps others from it.
        mute.bind(("127.0.0.1", 0))
        port = mute.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)):
            addresses = {"127.0.0.1", "127.0.0.2", "::1"}
            assert cleartext_request.reachable(addresses, port, 3.0, "") == "127.0.0.2"
        with pytest.raises(OSError, match="refused"):
            cleartext_request.reachable({"127.0.0.1"}, port, 3.0, "")


def test_addresses_are_tried_as_salt_does_and_all_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, float]] = []

    def connect(address: tuple[str, int], timeout: float, source: object) -> socket.socket:
        tried.append((address[0], timeout))
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(OSError, match="nobody there"):
        cleartext_request.reachable({"2001:db8::1", "203.0.113.7"}, 4506, 3.0, None)
    assert tried == [("203.0.113.7", 1.5), ("2001:db8::1", 1.5)]
