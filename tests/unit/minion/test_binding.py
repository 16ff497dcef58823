"""Which masters a minion knows, and which connection proves what: without daemons."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import salt.config
import salt.crypt
import salt.utils.event
from salt.exceptions import SaltInvocationError

from lab.forwarder import drop_packets
from saltext_ha.common.addresses import bare_ip
from saltext_ha.minion import binding, cleartext_request, options
from saltext_ha.minion.binding import Running, TcpLinks
from saltext_ha.minion.watchdog.journal import FAILED, STARTED, Journal, RecordedMove
from saltext_ha.modules import ha

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"


def hot(**values: Any) -> Running:
    """A hot-hot minion of M1 and M2 that M2 asked."""
    told = {(M1, 4506): 4505, (M2, 4506): 4505}
    usual: dict[str, Any] = {"entries": (M1, M2), "listed": True, "told": told}
    return Running(**(usual | {"host": M2, "ip": M2, "port": 4506} | values))


def links(*seen: tuple[str, int]) -> TcpLinks:
    return TcpLinks(frozenset(seen))


# -- reading what is configured


@pytest.mark.parametrize(
    ("entry", "host", "port"),
    [
        ("salt", "salt", 4506),
        ("salt:4508", "salt", 4508),
        ("10.0.0.1", "10.0.0.1", 4506),
        ("10.0.0.1:4508", "10.0.0.1", 4508),
        ("fe80::a00:27ff:fedc:ba98", "fe80::a00:27ff:fedc:ba98", 4506),
        ("[::1]", "::1", 4506),
        ("[::1]:4508", "::1", 4508),
        (" m1.example ", "m1.example", 4506),
    ],
)
def test_entries_are_read_as_salt_reads_them(entry: str, host: str, port: int) -> None:
    assert binding.split_entry(entry, 4506) == (host, port)


@pytest.mark.parametrize(
    "entry", ["", ":4506", "m1:x", "m1:0", "m1:65536", "[::1", "[::1]x", "sdb://ma/ster", "m1, m2"]
)
def test_what_is_no_master_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        binding.split_entry(entry, 4506)


@pytest.mark.parametrize(
    ("text", "ip"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("m1.example", None),
        ("", None),
    ],
)
def test_addresses_are_compared_in_one_spelling(text: str, ip: str | None) -> None:
    assert bare_ip(text) == ip


def test_publish_ports_come_from_salts_credentials() -> None:
    creds = {
        ("/pki", "web1", "tcp://10.0.0.1:4506", "1.5"): {"publish_port": 4505, "aes": "secret"},
        ("/pki", "web1", "tcp://[::1]:4508", "1.5"): {"publish_port": "4507"},
        ("/pki", "web1", "tcp://10.0.0.3:4506"): {"aes": "secret"},
        ("/pki", "web1", "tcp://:::", "0"): {"publish_port": 1},
        ("/pki",): None,
    }
    assert binding.told_ports(creds) == {("10.0.0.1", 4506): 4505, ("::1", 4508): 4507}


def test_a_list_with_type_str_is_called_list() -> None:
    assert Running(("m1",)).type == "str"
    assert Running(("m1",), listed=True).type == "list"
    assert Running(("m1",), listed=True, master_type="failover").type == "failover"


# -- what the connections prove


def test_each_hot_master_is_judged_by_itself() -> None:
    rows = binding.masters(hot(), links((M1, 4506), (M2, 4505), (M2, 4506)))
    assert [(row.host, row.current, row.connected) for row in rows] == [
        (M1, False, False),  # a request connection is no subscription
        (M2, True, True),
    ]


def test_masters_on_one_address_are_told_apart_by_their_ports() -> None:
    running = hot(
        entries=(f"{M1}:4506", f"{M1}:4508"),
        told={(M1, 4506): 4505, (M1, 4508): 4507},
        host=M1,
        ip=M1,
        port=4508,
    )
    answer, current = binding.current_master(running, links((M1, 4505)))
    assert (answer["port"], answer["publish_port"], answer["connected"]) == (4508, 4507, False)
    assert current is not None
    assert current.configured == f"{M1}:4508"
    assert [row.connected for row in binding.masters(running, links((M1, 4505)))] == [True, False]


def test_a_request_port_of_before_is_no_publisher() -> None:
    """It authenticated there once; the configuration has another port by now."""
    running = hot(entries=(M1, M2), told={(M1, 4510): 4515})
    rows = binding.masters(running, links((M1, 4510)))
    assert (rows[0].connected, rows[0].publish_port) == (False, None)
    rows = binding.masters(running, links((M1, 4510), (M1, 4505)))
    assert (rows[0].connected, rows[0].publish_port) == (True, 4505)


def test_the_minions_own_publish_port_is_what_salt_connects_to() -> None:
    (row, _) = binding.masters(hot(publish_port=5505), links((M1, 5505)))
    assert (row.publish_port, row.connected) == (5505, True)


def test_names_are_resolved_to_compare_and_shown_as_written() -> None:
    running = Running(("localhost:4506",), told={("127.0.0.1", 4506): 4505})
    (row,) = binding.masters(running, links(("127.0.0.1", 4505)))
    assert (row.configured, row.host, row.connected) == ("localhost:4506", "localhost", True)


def test_the_address_that_salt_resolved_counts_for_the_current_master() -> None:
    running = Running(
        ("no-such-name.invalid",), host="no-such-name.invalid", ip=M1, port=4506, publish_port=4505
    )
    answer, _ = binding.current_master(running, links((M1, 4505)))
    assert (answer["address"], answer["connected"]) == ("no-such-name.invalid", True)


def test_ipv6() -> None:
    running = Running(("[2001:db8::1]:4506",), host="2001:db8::1", ip="2001:db8::1", port=4506)
    told = binding.told_ports({("tcp://[2001:db8::1]:4506",): {"publish_port": 4505}})
    running = Running(**(vars(running) | {"told": told}))
    answer, _ = binding.current_master(running, links(("2001:db8::1", 4505)))
    assert (answer["address"], answer["connected"]) == ("2001:db8::1", True)
    assert "note" not in answer


def test_the_names_of_other_masters_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    monkeypatch.setattr(binding, "resolve", lambda host: looked_up.append(host) or frozenset())
    running = hot(entries=("m1.example", M2))
    assert binding.current_master(running, links((M2, 4505)))[0]["connected"] is True
    assert looked_up == []
    binding.masters(running, links((M2, 4505)))
    assert looked_up == ["m1.example"]


def test_a_name_that_does_not_resolve_is_unknown() -> None:
    (row,) = binding.masters(Running(("no-such-name.invalid",)), links((M1, 4505)))
    assert row.connected is None
    assert "does not resolve" in str(row.note)


def test_a_nonsense_entry_does_not_hide_the_others() -> None:
    first, second = binding.masters(hot(entries=("sdb://x/y", M2)), links((M2, 4505)))
    assert (first.configured, first.connected) == ("sdb://x/y", None)
    assert "no host" in str(first.note)
    assert second.connected is True


def test_invisible_connections_are_unknown() -> None:
    answer, _ = binding.current_master(hot(), TcpLinks(None, "may not look"))
    assert (answer["connected"], answer["note"]) == (None, "may not look")


def test_an_unknown_publish_port_is_guessed_only_where_it_cannot_be_another() -> None:
    running = hot(told={(M2, 4506): 4505})
    for seen, connected, port in (
        ((M1, 4505), True, 4505),
        ((M1, 4506), False, None),
        ((M1, 6379), None, None),
        ((M2, 4505), False, None),
    ):
        first, _ = binding.masters(running, links(seen))
        assert (first.connected, first.publish_port) == (connected, port), seen
        assert (first.note is None) == (connected is True)


def test_the_publisher_of_another_master_on_the_address_proves_nothing() -> None:
    running = called(entries=(f"{M1}:4506", f"{M1}:4508"))
    first, second = binding.masters(running, links((M1, 4505), (M1, 4506)))
    assert (first.connected, second.connected) == (True, False)
    first, second = binding.masters(running, links((M1, 4507)))
    assert (first.connected, second.connected) == (False, None)


def test_a_master_that_left_the_configuration_is_still_shown() -> None:
    rows = binding.masters(hot(entries=(M1,)), links((M2, 4505)))
    assert [(row.host, row.configured, row.current) for row in rows] == [
        (M1, M1, False),
        (M2, None, True),
    ]
    assert "not in the minion's configuration" in str(rows[1].note)


# -- salt-call


def called(**values: Any) -> Running:
    """salt-call on a failover minion; salt-call itself spoke to M1."""
    told = {(M1, 4506): 4505}
    usual: dict[str, Any] = {"master_type": "failover", "caller": True, "told": told}
    return hot(**(usual | {"host": M1, "ip": M1} | values))


def test_salt_call_follows_the_running_minion() -> None:
    answer, _ = binding.current_master(called(), links((M2, 4505), (M2, 4506)))
    assert (answer["address"], answer["port"], answer["connected"]) == (M2, 4506, True)


def test_salt_call_goes_by_where_the_minion_authenticated() -> None:
    """Its publisher's connection may lead elsewhere, or be one that was left behind (3007)."""
    for seen, connected in (
        (((M2, 4506), (M1, 4505)), False),
        (((M2, 4506), (M2, 4505), (M1, 4505)), True),
        (((M2, 4506),), False),
    ):
        answer, current = binding.current_master(called(), links(*seen))
        assert (answer["address"], answer["connected"]) == (M2, connected), seen
        assert current is not None
    # A job in a thread of the minion just pings all of them.
    answer, _ = binding.current_master(called(), links((M1, 4506), (M2, 4506), (M2, 4505)))
    assert (answer["address"], answer["connected"]) == (M2, True)


@pytest.mark.parametrize("kind", ["str", "failover"])
def test_salt_call_may_go_to_another_address_of_the_name(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two masters behind one name; the first was dead when the minion started."""
    monkeypatch.setattr(binding, "resolve", lambda host: frozenset({M1, M2}))
    running = called(entries=("salt",), host="salt", listed=kind != "str", master_type=kind)
    answer, _ = binding.current_master(running, links((M2, 4506), (M2, 4505)))
    assert (answer["address"], answer["ip"], answer["connected"]) == ("salt", M2, True)
    assert "note" not in answer


def test_the_address_is_told_where_it_can_be() -> None:
    name = binding.SeenMaster("salt", "salt", 4506, frozenset({M1, M2}), publish_port=4505)
    for seen, ip in (
        (((M1, 4505),), M1),
        (((M2, 4506),), M2),
        (((M1, 4505), (M2, 4506)), M1),  # jobs come from there
        (((M1, 4505), (M2, 4505)), None),
        ((), None),
    ):
        assert binding.judge(name, links(*seen), hot()).ip == ip, seen
    assert binding.masters(hot(), links())[0].row()["ip"] == M1


def test_salt_call_shows_the_masters_of_the_minion_and_not_its_own() -> None:
    def rows(running: Running, *seen: tuple[str, int]) -> list[tuple[str | None, bool]]:
        return [(row.configured, row.current) for row in binding.masters(running, links(*seen))]

    assert rows(called(), (M2, 4505)) == [(M1, False), (M2, True)]
    # salt-call spoke to M1, which the configuration does not name any more.
    assert rows(called(entries=(M2,)), (M2, 4505)) == [(M2, True)]
    assert rows(called(entries=(M2,)), (M1, 4505)) == [(M2, False), (None, True)]


def test_salt_call_sees_a_minion_without_a_master() -> None:
    answer, current = binding.current_master(called(), links())
    assert current is None
    assert (answer["address"], answer["connected"]) == (None, False)
    assert "none of its masters" in answer["note"]


def test_salt_call_does_not_choose_between_two() -> None:
    answer, current = binding.current_master(called(), links((M1, 4505), (M2, 4505)))
    assert current is None
    assert answer["connected"] is None
    assert f"{M1}, {M2}" in answer["note"]


def test_salt_call_on_a_hot_minion_names_the_master_it_spoke_to() -> None:
    answer, _ = binding.current_master(called(master_type="str"), links((M2, 4505)))
    assert (answer["address"], answer["connected"]) == (M1, False)


@pytest.mark.parametrize(
    ("running", "note"),
    [
        (Running(("salt",), master_type="disable"), "connects to no master"),
        (Running(()), "no master is configured"),
        (Running((M1,), note="cannot read /x"), "cannot read /x"),
    ],
)
def test_no_master_is_a_clear_answer(running: Running, note: str) -> None:
    answer, current = binding.current_master(running, TcpLinks(None))
    assert current is None
    assert (answer["address"], answer["connected"]) == (None, None)
    assert note in answer["note"]


# -- looking at processes


def test_established_connections_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ("127.0.0.1", port) not in (binding.established(os.getpid()).seen or ())
        with socket.create_connection(("127.0.0.1", port)):
            with server.accept()[0]:
                assert ("127.0.0.1", port) in (binding.established(os.getpid()).seen or ())
            # Closed by the other side only, as after the death of a master.
            assert ("127.0.0.1", port) not in (binding.established(os.getpid()).seen or ())
        assert ("127.0.0.1", port) not in (binding.established(os.getpid()).seen or ())


def test_a_connection_that_is_being_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as knocking:
        drop_packets(server)
        knocking.setblocking(False)
        assert knocking.connect_ex(server.getsockname()) == errno.EINPROGRESS
        links = binding.established(os.getpid())
        assert server.getsockname() in links.sought
        assert server.getsockname() not in (links.seen or ())


@contextlib.contextmanager
def started(*words: str, bus: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is called like that and serves a *bus*, once it does."""
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX)\n"
    code += f"s.bind({str(bus)!r}); s.listen()\n" if bus else ""
    code += "print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_the_minion_is_who_serves_its_bus(tmp_path: Path) -> None:
    pidfile, bus = tmp_path / "minion.pid", tmp_path / "bus.ipc"

    def found() -> int | None:
        return binding.minion_pid(str(pidfile), str(bus), caller=True, forks=True)

    assert found() is None
    with started("/usr/bin/any", bus=bus) as minion:
        pidfile.write_text(f"{minion.pid}\n")
        assert found() == minion.pid
        assert binding.minion_pid(str(pidfile), "", caller=True, forks=True) is None
    assert found() is None
    pidfile.write_text("1")  # another program's by now
    assert found() is None
    assert binding.established(minion.pid).seen is None
    assert "cannot see" in str(binding.established(minion.pid).note)


def test_a_decoy_is_not_the_minion(tmp_path: Path) -> None:
    """Whatever it is called: a script, and the minion of another configuration."""
    pidfile, bus = tmp_path / "minion.pid", tmp_path / "bus.ipc"
    script = tmp_path / "fake-minion"
    script.write_text("#!/bin/sh\necho; read x\n")
    script.chmod(0o755)
    with subprocess.Popen([script], stdin=subprocess.PIPE) as fake:
        pidfile.write_text(str(fake.pid))
        assert binding.minion_pid(str(pidfile), str(bus), caller=True, forks=True) is None
        fake.communicate(b"\n")
    with started("/usr/bin/salt-minion", bus=tmp_path / "other.ipc") as other:
        pidfile.write_text(str(other.pid))
        assert binding.minion_pid(str(pidfile), str(bus), caller=True, forks=True) is None


def test_a_job_looks_at_the_process_that_it_belongs_to(tmp_path: Path) -> None:
    pidfile = tmp_path / "minion.pid"

    def found(bus: str | int, forks: bool = True) -> int | None:
        return binding.minion_pid(str(pidfile), bus, caller=False, forks=forks)

    # Where nobody can see a bus.
    assert found("") == os.getppid()
    assert found("", forks=False) == os.getpid()
    grandparent = binding.psutil.Process().parents()[-1].pid
    pidfile.write_text(str(grandparent))
    assert found("") == grandparent
    # The bus is better than any file, however deep the job is.
    line = [sys.executable, "-c", NESTED, str(tmp_path / "bus.ipc"), str(pidfile)]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    minion, seen = done.stdout.split()
    assert seen == minion
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert found(server.getsockname()[1]) == os.getpid()


NESTED = """
import os, socket, sys
from saltext_ha.minion import binding
bus = socket.socket(socket.AF_UNIX)
bus.bind(sys.argv[1])
bus.listen()
minion = os.getpid()
for _ in range(2):
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)
print(minion, binding.minion_pid(sys.argv[2], sys.argv[1], caller=False, forks=True), flush=True)
"""


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


def test_ping_of_a_closed_port_is_answered_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    master = binding.SeenMaster("m1", "m1", port, frozenset({"127.0.0.1"}))
    answer = binding.ping({}, master, 60)
    assert (answer["answers"], answer["milliseconds"]) == (False, None)
    assert "refused" in answer["note"]
    unknown = binding.SeenMaster("m1", "m1", port)
    assert binding.ping({}, unknown, 60)["answers"] is None


# -- the module: from Salt's dunders to values


@pytest.fixture
def opts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The configuration of one Minion object of a hot-hot minion, and its file."""
    conf = tmp_path / "minion"
    conf.write_text(f"master: [{M1}, '{M2}:4508']\n")
    values: dict[str, Any] = {
        "master": M2,
        "master_ip": M2,
        "master_port": 4508,
        "master_uri": f"tcp://{M2}:4508",
        "master_type": "str",
        "multimaster": True,
        "conf_file": str(conf),
        "pidfile": str(tmp_path / "minion.pid"),
        "multiprocessing": False,
    }
    monkeypatch.setattr(ha, "__opts__", values, raising=False)
    monkeypatch.setattr(salt.crypt.AsyncAuth, "creds_map", {})
    return values


def test_a_hot_minion_reads_the_list_from_its_file(opts: dict[str, Any]) -> None:
    answer = ha.current_master()
    assert answer["masters"] == [M1, f"{M2}:4508"]
    assert (answer["type"], answer["port"], answer["id"]) == ("list", 4508, None)
    assert answer["connected"] is False
    assert [(row["port"], row["current"]) for row in ha.masters()] == [(4506, False), (4508, True)]


def test_each_row_says_what_does_not_fit(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = links((M1, 4506), (M2, 4508), (M2, 4505))
    monkeypatch.setattr(binding, "established", lambda pid: seen)
    salt.crypt.AsyncAuth.creds_map = {
        (f"tcp://{ip}:{port}",): {"publish_port": 4505} for ip, port in ((M1, 4506), (M2, 4508))
    }
    deaf = f"authenticated to {M1}, but not subscribed to it: jobs of {M1} are lost"
    assert [row.get("note") for row in ha.masters()] == [deaf, None]
    hung = f"connected to {M2}:4508, but it does not answer"
    rows = ha.masters(ping=True, timeout=0.2)
    assert [row.get("note") for row in rows] == [deaf, hung]
    assert ha.current_master(ping=True, timeout=0.2)["note"] == hung


def test_the_id_is_the_one_that_came_with_the_job(opts: dict[str, Any]) -> None:
    assert ha.current_master(__pub_master_id="m2", __pub_jid="1")["id"] == "m2"
    with pytest.raises(SaltInvocationError, match="pong"):
        ha.current_master(pong=True)


def test_included_files_count(opts: dict[str, Any]) -> None:
    folder = Path(opts["conf_file"]).parent / "minion.d"
    folder.mkdir()
    (folder / "ha.conf").write_text(f"master: [{M2}]\nmaster_port: 4508\n")
    assert ha.current_master()["masters"] == [M2]
    assert [row["configured"] for row in ha.masters()] == [M2]


@pytest.mark.parametrize("text", [None, "master: [unclosed", "- a\n- list\n"])
def test_an_unreadable_file_leaves_the_running_master(
    opts: dict[str, Any], text: str | None
) -> None:
    conf = Path(opts["conf_file"])
    conf.unlink() if text is None else conf.write_text(text)
    answer = ha.current_master()
    assert (answer["address"], answer["masters"]) == (M2, [M2])
    assert "read" in answer["note"]


def test_a_failover_minion_needs_no_file(opts: dict[str, Any]) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], conf_file="/nonexistent")
    answer = ha.current_master()
    assert (answer["type"], answer["masters"], answer["address"]) == ("failover", [M1, M2], M2)


def test_a_failover_minion_that_has_lost_all_its_masters(opts: dict[str, Any]) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], master=[M1, M2])
    answer = ha.current_master()
    assert (answer["address"], answer["connected"]) == (None, False)
    assert "none of its masters" in answer["note"]


def test_since_when_and_how_often(opts: dict[str, Any], tmp_path: Path) -> None:
    opts.update(master_type="failover", master_list=[M1, M2], cachedir=str(tmp_path))
    assert "since" not in ha.current_master()
    book, now = Journal(tmp_path), time.time()
    # Of another process than this one: nobody has watched this one yet.
    book.add(
        RecordedMove(binding.psutil.Process().create_time() - 5, M1, f"{M2}:4508", "no answer")
    )
    book.add(
        RecordedMove(binding.psutil.Process().create_time() - 4, f"{M2}:4508", M2, "no answer")
    )
    assert "since" not in ha.current_master()
    book.add(RecordedMove(now - 0.02, None, M2, STARTED))
    book.add(RecordedMove(now - 0.01, M2, M2, f"{FAILED}: may not"))
    answer = ha.current_master()
    assert (answer["since"], answer["switches"]) == (now - 0.02, 2)
    read = datetime.strptime(answer["since_iso"], "%Y-%m-%dT%H:%M:%S%z")
    assert read.timestamp() == int(now - 0.02)


def test_a_move_without_a_running_minion_is_an_error(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opts["caller"] = True
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    answer = ha.failover()
    assert (answer["result"], ha.__context__) == (False, {"retcode": 1})
    assert f"no running minion found (pidfile {opts['pidfile']})" in answer["comment"]


@pytest.mark.parametrize("values", [{}, {"master": None}, {"master": 17}, {"master": []}])
def test_odd_configurations_do_not_raise(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(ha, "__opts__", values, raising=False)
    answer = ha.current_master(ping=True)
    assert answer["address"] is None
    assert not answer["connected"]
    assert answer["note"]
    assert answer["ping"]["answers"] is None
    ha.masters(ping=True)
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    rows = ha.ping_masters()
    assert not any(row["answers"] for row in rows)
    # 17 is an address, though nobody's.
    assert ha.__context__["retcode"] == (1 if values.get("master") == 17 else 2)


def test_whether_jobs_would_come(opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that was never met is asked at the publish port of those that were."""
    asked: list[tuple[str | None, int | None]] = []

    def reached(transport: str, known: list[binding.SeenMaster], *rest: Any) -> list[bool]:
        asked.extend((each.host, each.publish_port) for each in known)
        return [True for _ in known]

    monkeypatch.setattr("saltext_ha.minion.watchdog.publisher.reached", reached)
    told = {(M2, 4508): 4507}
    monkeypatch.setattr(binding, "told_ports", lambda creds: told)
    rows = ha.masters(ping=True, timeout=1)
    assert asked == [(M1, 4507), (M2, 4507)]
    assert [row["publishes"] for row in rows] == [True, True]
    asked.clear()
    told.clear()
    ha.masters(ping=True, timeout=1)
    assert asked == [(M1, None), (M2, None)]


def test_masters_that_do_not_answer_are_an_error(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    rows = ha.ping_masters(timeout=1)
    assert [(row["address"], row["port"], row["answers"]) for row in rows] == [
        (M1, 4506, False),
        (M2, 4508, False),
    ]
    assert all(row["note"] and row["milliseconds"] is None for row in rows)
    assert ha.__context__["retcode"] == 1


@pytest.mark.parametrize("timeout", [0, -1, "soon", None, 301, float("nan")])
def test_a_timeout_that_is_none_is_named(opts: dict[str, Any], timeout: Any) -> None:
    with pytest.raises(SaltInvocationError, match="timeout"):
        ha.masters(timeout=timeout)


def test_an_address_of_a_name_that_nobody_serves_is_passed_over() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert (
            cleartext_request.reachable({"127.0.0.1", "127.0.0.2", "::1"}, port, 3.0, "")
            == "127.0.0.2"
        )
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


@pytest.mark.parametrize("reply", [None, {}, "pong", {"cmd": "_auth"}])
def test_who_answers_something_else_is_no_master(
    monkeypatch: pytest.MonkeyPatch, reply: object
) -> None:
    monkeypatch.setattr(cleartext_request, "ask", lambda *arguments: reply)
    master = binding.SeenMaster(M1, M1, 4506, frozenset({M1}))
    answer = binding.ping({}, master, 1)
    assert (answer["answers"], answer["milliseconds"]) == (False, None)
    assert "not to a ping" in answer["note"]


def test_two_ports_that_may_be_a_publishers_are_one_too_many() -> None:
    # M2 was never authenticated with; 4505 is the usual port, 4515 that of M1.
    running = Running((M1, M2), True, told={(M1, 4506): 4515})
    _, second = binding.masters(running, links((M1, 4515), (M2, 4505), (M2, 4515)))
    assert (second.connected, second.publish_port) == (None, None)
    assert "connected to port 4505, 4515 there" in str(second.note)


def test_a_name_behind_which_are_two_masters_has_no_publish_port_of_its_own() -> None:
    master = binding.SeenMaster("both", "both", 4506, frozenset({M1, M2}))
    running = Running(("both",), told={(M1, 4506): 4505, (M2, 4506): 4515})
    assert binding._publish_port(master, running) is None


@pytest.mark.parametrize(("written", "port"), [(4506, None), (4505, 4505), (14505, 14505)])
def test_a_publish_port_of_4506_is_none(written: int, port: int | None) -> None:
    """So Salt lets a minion believe what each master says."""
    running = options.running({"master": M1, "publish_port": written, "master_ip": M1})
    assert running.publish_port == port


@pytest.mark.parametrize("entry", ["salt..example.com", "a" * 64 + ".example.com"])
def test_what_can_be_no_name_is_said_and_harms_nobody(entry: str) -> None:
    found = binding._locate(entry, Running((entry,)))
    assert not found.ips
    assert "does not resolve" in str(found.note)
