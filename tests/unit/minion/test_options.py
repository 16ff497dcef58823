"""What Salt's options say of a minion's masters and of its bus."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import salt.config
import salt.crypt
import salt.utils.event

from saltext_ha.minion import options

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"


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


def proxy(folder: Path, **values: Any) -> dict[str, Any]:
    """The options of a proxy minion with files in *folder*, as it has them while it runs."""
    found = dict(salt.config.proxy_config(str(folder / "proxy"), minion_id="switch7"))
    return found | {"proxyid": "switch7", "multimaster": True, "master_ip": M1} | values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a host with a minion and a proxy minion."""
    written = {
        "minion": f"master: [{M1}, {M2}]\nid: host7\n",
        "minion.d/ha.conf": f"master: [{M1}, {M2}]\nmaster_port: 4510\n",
        "proxy": f"master: {M1}\nroot_dir: {tmp_path}\n",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_proxy_minion_has_nothing_from_the_minion_of_its_host(folder: Path) -> None:
    running = options.running(proxy(folder, master_uri=f"tcp://{M1}:4506"))
    assert (running.entries, running.type, running.default_port) == ((M1,), "str", 4506)
    assert running.note is None


@pytest.mark.parametrize("place", ["proxy.d/all.conf", "proxy.d/switch7/its.conf"])
def test_a_proxy_minion_has_folders_of_its_own(folder: Path, place: str) -> None:
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_text(f"master: [{M2}, {M1}]\n")
    opts = proxy(folder)
    assert opts["master"] == [M2, M1]
    running = options.running(opts | {"master": M2, "master_uri": f"tcp://{M2}:4506"})
    assert (running.entries, running.type) == ((M2, M1), "list")


def test_another_process_finds_the_bus_and_the_masters_of_a_proxy_minion(folder: Path) -> None:
    """That of ha.failover: its events went nowhere, and it knew the masters of another minion."""
    (folder / "proxy").write_text(
        f"master: [{M1}, {M2}]\nmaster_type: failover\nmaster_port: 4508\n"
    )
    opts = proxy(folder)
    again = options.read_again(opts["conf_file"], opts["id"], options.is_proxy(opts))
    assert options.bus(again) == options.bus(opts)
    assert options.running(again).entries == (M1, M2)
    assert options.running(again).default_port == 4508
    assert again["cachedir"] == opts["cachedir"]
