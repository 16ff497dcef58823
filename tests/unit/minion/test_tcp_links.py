"""Which process is the minion, and what it is connected to: real processes and sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.forwarder import drop_packets
from saltext_ha.minion import tcp_links
from tests.tools import script

pytestmark = pytest.mark.core


def test_established_connections_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ("127.0.0.1", port) not in (tcp_links.established(os.getpid()).seen or ())
        with socket.create_connection(("127.0.0.1", port)):
            with server.accept()[0]:
                assert ("127.0.0.1", port) in (tcp_links.established(os.getpid()).seen or ())
            # Closed by the other side only, as after the death of a master.
            assert ("127.0.0.1", port) not in (tcp_links.established(os.getpid()).seen or ())
        assert ("127.0.0.1", port) not in (tcp_links.established(os.getpid()).seen or ())


def test_a_connection_that_is_being_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as knocking:
        drop_packets(server)
        knocking.setblocking(False)
        assert knocking.connect_ex(server.getsockname()) == errno.EINPROGRESS
        links = tcp_links.established(os.getpid())
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
        return tcp_links.minion_pid(str(pidfile), str(bus), caller=True, forks=True)

    assert found() is None
    with started("/usr/bin/any", bus=bus) as minion:
        pidfile.write_text(f"{minion.pid}\n")
        assert found() == minion.pid
        assert tcp_links.minion_pid(str(pidfile), "", caller=True, forks=True) is None
    assert found() is None
    pidfile.write_text("1")  # another program's by now
    assert found() is None
    assert tcp_links.established(minion.pid).seen is None
    assert "cannot see" in str(tcp_links.established(minion.pid).note)


def test_a_decoy_is_not_the_minion(tmp_path: Path) -> None:
    """Whatever it is called: a script, and the minion of another configuration."""
    pidfile, bus = tmp_path / "minion.pid", tmp_path / "bus.ipc"
    program = tmp_path / "fake-minion"
    script(program, "echo; read x")
    with subprocess.Popen([program], stdin=subprocess.PIPE) as fake:
        pidfile.write_text(str(fake.pid))
        assert tcp_links.minion_pid(str(pidfile), str(bus), caller=True, forks=True) is None
        fake.communicate(b"\n")
    with started("/usr/bin/salt-minion", bus=tmp_path / "other.ipc") as other:
        pidfile.write_text(str(other.pid))
        assert tcp_links.minion_pid(str(pidfile), str(bus), caller=True, forks=True) is None


def test_a_job_looks_at_the_process_that_it_belongs_to(tmp_path: Path) -> None:
    pidfile = tmp_path / "minion.pid"

    def found(bus: str | int, forks: bool = True) -> int | None:
        return tcp_links.minion_pid(str(pidfile), bus, caller=False, forks=forks)

    # Where nobody can see a bus.
    assert found("") == os.getppid()
    assert found("", forks=False) == os.getpid()
    grandparent = tcp_links.psutil.Process().parents()[-1].pid
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
from saltext_ha.minion import tcp_links
bus = socket.socket(socket.AF_UNIX)
bus.bind(sys.argv[1])
bus.listen()
minion = os.getpid()
for _ in range(2):
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)
print(minion, tcp_links.minion_pid(sys.argv[2], sys.argv[1], caller=False, forks=True), flush=True)
"""
