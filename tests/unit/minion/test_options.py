"""What Salt's options say of a minion's masters and of its bus."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import salt.config
import salt.crypt
import salt.utils.event

from saltext_ha.minion import options

pytestmark = pytest.mark.core

M1 = "10.0.0.1"


def test_the_bus_is_where_salt_makes_it(tmp_path: Path) -> None:
    opts = dict(salt.config.minion_config(None))
    opts |= {"id": "web1", "sock_dir": str(tmp_path), "ipc_mode": "ipc"}
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(options.bus(opts)))
        there.listen()
        with salt.utils.event.MinionEvent(opts, listen=False) as event:
            assert event.connect_pub(timeout=10)
    assert options.bus({**opts, "ipc_mode": "tcp", "tcp_pub_port": 4510}) == 4510
    assert options.bus({}) == ""


@pytest.mark.parametrize(("written", "port"), [(4506, None), (4505, 4505), (14505, 14505)])
def test_a_publish_port_of_4506_is_none(written: int, port: int | None) -> None:
    """So Salt lets a minion believe what each master says."""
    running = options.running({"master": M1, "publish_port": written, "master_ip": M1})
    assert running.publish_port == port
