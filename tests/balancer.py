"""The real haproxy and nginx with a configuration of ours, as a child process on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter

from lab import wait_for
from lab.master import listens
from lab.process import Daemon
from tests.certificates import self_signed
from tests.tools import program

# Of the package's service, what only root can do.
PRIVILEGES = re.compile(r"(?m)^    (?:user|group|chroot|unix-bind) .*\n| user haproxy$")


def pem(folder: Path, address: str) -> tuple[Path, Path]:
    """The file that ``cert=`` takes, for *address*; and the certificate alone, to verify with."""
    certificate, key = self_signed(folder, address)
    both = folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    return both, certificate


class From(HTTPAdapter):
    """Connections from the address *source*."""

    def __init__(self, source: str) -> None:
        self._source = source
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, source_address=(self._source, 0))


class Balancer:
    """
    A balancer of that *kind* with the configuration *text*, which listens on *address*:*port*.

    It ends with the block; before it, :meth:`check` does what an operator would. *base*: its URL,
    if that is not ``https://address:port``.
    """

    def __init__(
        self, kind: str, text: str, folder: Path, address: str, port: int, base: str = ""
    ) -> None:
        self.url = base or f"https://{address}:{port}"
        self._at, self._log, folder = (address, port), folder / f"{kind}.log", folder / kind
        folder.mkdir()
        config = folder / "config"
        self._calls = folder / "access" if kind == "nginx" else self._log
        if kind == "haproxy":
            # The paths of sockets must be short.
            self._sockets = tempfile.TemporaryDirectory(prefix="ha")
            self.chroot = Path(self._sockets.name) / "chroot"
            self.chroot.mkdir(0o755)
            text = text.replace("/run/haproxy", self._sockets.name)
            text = text.replace("/var/lib/haproxy", str(self.chroot))
            if os.geteuid():
                text, found = PRIVILEGES.subn("", text)
                assert found == 5
                text = text.replace("unix@", f"unix@{self.chroot}")
            # There may be no syslog here.
            text, found = re.subn(r"(?m)^    log /dev/log ", "    log stdout format raw ", text)
            assert found == 1
            self._check = [program("haproxy"), "-c", "-f", str(config)]
            run = [program("haproxy"), "-W", "-db", "-f", str(config)]
        else:
            text = text.replace("/var/log/nginx/access.log", str(self._calls))
            text = (
                f"daemon off; master_process off; pid {folder}/pid; error_log {self._log} info;\n"
                "events {}\n"
                # As in Debian's configuration.
                f"http {{ default_type application/octet-stream; access_log {folder}/access;\n"
                f"client_body_temp_path {folder}/b;\n"
                f"proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n"
                f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{text}\n}}\n"
            )
            run = [program("nginx"), "-e", str(self._log), "-c", str(config)]
            self._check = [*run, "-t"]
        config.write_text(text, encoding="utf-8")
        self._daemon = Daemon(run, os.environ, folder, self._log)

    def check(self) -> None:
        """
        Have the balancer check its own configuration.

        :raises AssertionError: it refuses the configuration, or warns.
        """
        done = subprocess.run(self._check, capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert not re.search("warn", said, re.IGNORECASE), said

    def __enter__(self) -> Balancer:
        self._daemon.spawn()
        try:
            wait_for(
                lambda: not self._daemon.running or listens(self._at), 60, "the balancer listens"
            )
            assert self._daemon.running, self.log()
        except BaseException:
            self._daemon.kill()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self._daemon.kill()

    def reload(self) -> None:
        """Have haproxy take its configuration anew, as ``systemctl reload haproxy`` does."""
        before = self._daemon.pids()
        os.kill(before[0], signal.SIGUSR2)

        def workers_are_new() -> bool:
            now = self._daemon.pids()
            return len(now) > 1 and not set(before[1:]) & set(now)

        wait_for(workers_are_new, 60, "the old processes have ended")

    def calls(self) -> str:
        """The log of the calls that came."""
        return self._calls.read_text(encoding="utf-8", errors="replace")

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")
