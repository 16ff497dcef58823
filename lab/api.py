"""The salt-api of one master of a lab, in its own process, as in production."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.master import Master, listens
from lab.node import START_TIMEOUT
from lab.process import Daemon
from lab.wait import wait_for

USER, PASSWORD = "operator", "correct horse"


def api_settings(
    folder: Path,
    address: str,
    port: int,
    certificate: tuple[Path, Path] | None = None,
) -> dict[str, Any]:
    """
    Settings of a master with which salt-api serves it on loopback, and lets in :data:`USER` with
    :data:`PASSWORD` (eauth ``file``).

    :param folder: where the file of passwords is put.
    :param certificate: certificate and key for TLS; None: plain HTTP.
    """
    folder.mkdir(parents=True, exist_ok=True)
    users = folder / "api-users"
    users.write_text(f"{USER}:{PASSWORD}\n", encoding="utf-8")
    cherrypy: dict[str, Any] = {"host": address, "port": port, "disable_ssl": certificate is None}
    if certificate is not None:
        cherrypy |= {"ssl_crt": str(certificate[0]), "ssl_key": str(certificate[1])}
    return {
        "api_logfile": str(folder / "api.log"),
        "api_pidfile": str(folder / "api.pid"),
        "netapi_enable_clients": ["local", "local_async", "runner", "wheel"],
        "external_auth": {
            "file": {"^filename": str(users), USER: [".*", "@runner", "@wheel", "@jobs"]}
        },
        "rest_cherrypy": cherrypy,
    }


class SaltApi:
    """
    ``salt-api`` of *master*, which was configured with :func:`api_settings`; not started yet.

    It can be started, killed and frozen apart from its master. End it before the lab ends.
    """

    def __init__(self, master: Master) -> None:
        settings: Mapping[str, Any] = master.opts["rest_cherrypy"]
        self.master, self.address, self.port = master, settings["host"], int(settings["port"])
        scheme = "http" if settings["disable_ssl"] else "https"
        self.url = f"{scheme}://{self.address}:{self.port}"
        self.daemon = Daemon(
            [*master.command("salt-api"), "-l", "quiet"],
            master.env,
            master.root,
            master.root / "logs" / "salt-api.out",
            master.server,
        )

    def __enter__(self) -> SaltApi:
        return self.start()

    def __exit__(self, *args: object) -> None:
        self.kill()

    def start(self) -> SaltApi:
        """Start it and wait until it accepts connections."""
        self.daemon.spawn()
        wait_for(
            lambda: listens((self.address, self.port)),
            START_TIMEOUT,
            f"salt-api of {self.master.name} listens",
        )
        return self

    def kill(self) -> None:
        """``kill -9``; it can be started again afterwards."""
        self.daemon.kill()
