"""Connections as Linux writes them."""

from __future__ import annotations

import sys

import pytest

from saltext_ha.common.tcp_table import TcpConnection, end, established, port_of

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(sys.byteorder == "big", reason="these lines are of the other byte order"),
]

V4 = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 36748 1
   1: 0100007F:1F90 0200007F:C350 01 00000000:00000000 02:00000A9C 00000000     0        3 36750 2
   2: 0300007F:C351 0100007F:1199 01 00000008:00000000 01:0000021C 0000000B  1000        0 36751 2
   3: 0100007F:1F90 0200007F:C352 06 00000000:00000000 03:000003A5 00000000     0        0 0 3
"""


def test_only_established_connections_are_told() -> None:
    first, second = established(V4.splitlines())
    assert first == TcpConnection("0100007F:1F90", "0200007F:C350", 0, 3, "36750")
    assert second == TcpConnection("0300007F:C351", "0100007F:1199", 11, 0, "36751")


@pytest.mark.parametrize(
    ("written", "ip", "port"),
    [
        ("0100007F:1F90", "127.0.0.1", 8080),
        ("00000000000000000000000001000000:1199", "::1", 4505),
        ("B80D0120000000000000000001000000:0016", "2001:db8::1", 22),
        ("0000000000000000FFFF00000100000A:0001", "10.0.0.1", 1),  # IPv4 at a socket for both
    ],
)
def test_an_end(written: str, ip: str, port: int) -> None:
    assert end(written) == (ip, port)
    assert port_of(written) == port


def test_a_line_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        list(established(["   0: 0100007F:1F90 00000000:0000 01"]))
