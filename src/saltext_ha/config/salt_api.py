"""The salt-api of a master, as Salt's own configuration has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # nosec B104


def own_address(interface: Any) -> str:
    """The address of a daemon of this machine that listens on *interface*."""
    text = str(interface or "").strip("[]")
    return WILDCARD.get(text, text)


@dataclass(frozen=True)
class Api:
    """
    salt-api of this machine, as the master's configuration has it.

    :ivar certificate: the file of its certificate; None without TLS.
    :ivar everywhere: whether it listens on all addresses of this machine.
    :ivar tornado: whether it is rest_tornado.
    """

    host: str
    port: int
    certificate: Path | None
    prefix: str = ""
    everywhere: bool = False
    tornado: bool = False

    @property
    def url(self) -> str:
        """The URL at which this machine reaches it."""
        return self.url_at(self.host)

    def url_at(self, host: str) -> str:
        """Its URL under another name of this machine."""
        scheme = "https" if self.certificate else "http"
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self.port}{self.prefix}"


def api_of(opts: Mapping[str, Any]) -> Api | None:
    """The salt-api that *opts* configure; None when they configure none."""
    for name, host in (("rest_cherrypy", "host"), ("rest_tornado", "address")):
        conf = opts.get(name)
        if not isinstance(conf, Mapping) or not isinstance(conf.get("port"), int):
            continue  # without a port, Salt does not start it either
        crt = conf.get("ssl_crt")
        prefix = str(conf.get("root_prefix") or "").rstrip("/")
        address = own_address(conf.get(host))
        return Api(
            address,
            conf["port"],
            Path(str(crt)) if crt and not conf.get("disable_ssl") else None,
            prefix,
            address != str(conf.get(host) or "").strip("[]"),
            name == "rest_tornado",
        )
    return None
