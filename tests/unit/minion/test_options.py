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


def called(folder: Path, **values: Any) -> dict[str, Any]:
    """The options of salt-call on a minion with the files in *folder*."""
    found = dict(salt.config.minion_config(str(folder / "minion")))
    master = {"master": M1, "master_ip": M1, "master_port": 4506, "master_uri": f"tcp://{M1}:4506"}
    return found | {"caller": True, "multimaster": False} | master | values


@pytest.mark.parametrize("kind", ["failover", "str"])
def test_a_master_that_only_salt_call_has_is_not_the_minions(tmp_path: Path, kind: str) -> None:
    masters = {"failover": f"[{M1}, {M2}]", "str": M1}[kind]
    (tmp_path / "minion").write_text(f"master: {masters}\nmaster_type: {kind}\nid: web1\n")
    other = {"master": "10.0.0.3", "master_ip": "10.0.0.3", "master_list": ["10.0.0.3"]}
    running = options.running(called(tmp_path, **other))
    assert (running.entries, running.ip) == (tuple(masters.strip("[]").split(", ")), None)
    usual = options.running(called(tmp_path))
    assert (usual.entries, usual.ip) == (running.entries, M1)


def test_masters_that_a_function_names_are_no_entries_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "minion").write_text("master: module.function\nmaster_type: func\nid: web1\n")
    opts = called(tmp_path)
    assert options.running(opts | {"__master_func_evaluated": True}).entries == (M1,)
    # salt-call --local does not ask it.
    running = options.running(opts | {"file_client": "local", "master": "module.function"})
    assert running.entries == ()
    assert "what module.function returns" in str(running.note)


def test_a_program_that_calls_is_not_the_minion(tmp_path: Path) -> None:
    """As one with ``salt.client.Caller``: only what salt-minion starts has this mark."""
    (tmp_path / "minion").write_text(f"master: {M1}\nid: web1\npidfile: {tmp_path}/pid\n")
    opts = called(tmp_path)
    del opts["caller"]
    assert options.running(opts).caller
    assert options.pid(opts) is None
    assert options.pid(opts | {"multimaster": True}) is not None
