"""Makes the configuration of a balancer from what is known about the masters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from saltext_ha.balancer.servers import Server, check_host
from saltext_ha.common.addresses import is_loopback
from saltext_ha.common.errors import HaError
from saltext_ha.common.validators import Check, on_off, whole

TEMPLATES = {"haproxy": "haproxy.cfg.j2", "nginx": "nginx.conf.j2"}
CERTIFICATE = "/etc/ssl/private/salt-api.pem"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
LONGEST = 86400
# nginx redirects one request internally at most ten times.
MOST_OF_NGINX = 10

# Only characters that a shell, haproxy and nginx read as part of a path.
_PATH = re.compile(r"/[A-Za-z0-9_./@+-]{1,1000}")
_PREFIX = re.compile(r"/?((?:[A-Za-z0-9_-]{1,100}/)*[A-Za-z0-9_-]{1,100})/?")
# Paths of salt-api itself, each of which can be in nginx's configuration only once.
_TAKEN = ("login", "events", "_salt_token")
HTTPS, HTTP = "443", "80"
# haproxy's backend of masters without a status listener: it has one kind of check a backend.
CONNECTS = "salt_api_connects"


@dataclass(frozen=True)
class Wishes:
    """
    The operator's settings.

    :param kind: ``haproxy`` or ``nginx``.
    :param cert: PEM file on the balancer: certificate, chain and private key.
    :param listen: ``port`` or ``address:port`` for callers.
    :param ca: PEM file on the balancer: the CA that signed the masters' certificates.
    :param name: the name that all the masters' certificates are for; empty: each one's own host.
    :param api_port: of salt-api on masters that cannot be asked; 0: as on the others.
    :param timeout: seconds that one call may take.
    :param prefix: path below which callers find salt-api, as ``/salt-api``; empty: at ``/``.
    :param tls: whether callers speak TLS; without, passwords and tokens cross the network in clear.
    """

    kind: str
    cert: str = CERTIFICATE
    listen: str = HTTPS
    ca: str = AUTHORITIES
    name: str = ""
    api_port: int = 0
    timeout: int = 3600
    prefix: str = ""
    tls: bool = True

    @property
    def command(self) -> str:
        """The command that makes this configuration again."""
        own = [each for each in fields(self) if getattr(self, each.name) != each.default]
        arguments = (f"{each.name}={getattr(self, each.name)}" for each in own[1:])
        return " ".join(["salt-run ha.proxy_config", self.kind, *arguments])


def wishes(**given: Any) -> Wishes:
    """
    Check what was given on the command line.

    :raises HaError: names the argument and what it takes.
    """
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in TEMPLATES:
        raise HaError(f"{ascii(kind)[:80]}: takes {' or '.join(sorted(TEMPLATES))}")
    found: dict[str, Any] = {"kind": kind}
    for key, value in given.items():
        if key not in _CHECKS:
            raise HaError(f"{ascii(key)[:80]}: no such argument; takes {', '.join(_CHECKS)}")
        if value in ("", 0, None) and not isinstance(value, bool):
            continue
        try:
            found[key] = _CHECKS[key](value)
        except ValueError as exc:
            raise HaError(f"{key}={value!r:.80}: {exc}") from None
    if not found.get("tls", True):
        found.setdefault("listen", HTTP)
        if "cert" in found:
            raise HaError("cert: with tls=False nobody is shown a certificate; leave one out")
    return Wishes(**found)


def render(wanted: Wishes, group: str, asked: str, masters: Sequence[Server]) -> str:
    """
    The text of the configuration.

    :param asked: the master that it is made on.
    :param masters: all of the group, also those without salt-api.
    :raises HaError: no master has a salt-api, or this kind of balancer cannot serve such a mixture.
    """
    import jinja2  # heavy, and loader modules are imported often

    served = [master for master in masters if master.api]
    if not served:
        raise HaError(
            "no master of the group has a salt-api in its configuration (rest_cherrypy: port: …); "
            "configure it, restart salt-master and salt-api"
        )
    _check(wanted, served)
    environment = jinja2.Environment(  # nosec B701: no HTML; every value was checked
        loader=jinja2.PackageLoader("saltext_ha.balancer", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATES[wanted.kind]).render(
        wanted=wanted,
        group=group,
        asked=asked,
        notes=[
            *_clear(wanted),
            *_on_loopback(served),
            *(note for master in masters for note in _notes(master, wanted.kind)),
        ],
        bind=_bind(wanted),
        servers=[_server(master, wanted) for master in served],
        connects=[_connects(master, wanted) for master in served if master.status is None],
        connects_backend=CONNECTS,
        # Two balancers of one machine listen at different addresses.
        handover=re.sub(r"\W+", "_", f"salt_api_{wanted.listen}"),
        tls=any(master.api and master.api.tls for master in served),
    )


def _bind(wanted: Wishes) -> str:
    """Where it listens; ``[::]`` is all addresses, those of IPv4, too, as for our listeners."""
    haproxy = wanted.kind == "haproxy"
    if wanted.listen.startswith("[::]:"):
        return f"{wanted.listen} {'v4v6' if haproxy else 'ipv6only=off'}"
    return f":{wanted.listen}" if haproxy and ":" not in wanted.listen else wanted.listen


def _server(master: Server, wanted: Wishes) -> str:
    """The line of one master."""
    api, status = master.api, master.status
    assert api is not None
    if wanted.kind == "nginx":
        return f"server {api.netloc} max_fails=1 fail_timeout=30s;  # {master.name}"
    words = ["server", master.name, api.netloc]
    if status is None:
        words += ["track", f"{CONNECTS}/{master.name}"]
    else:
        words += ["check", "addr", status.bracketed] if status.host != api.host else ["check"]
        words += ["port", str(status.port), "check-ssl" if status.tls else "no-check-ssl"]
    return " ".join([*words, *_tls(master, wanted)])


def _connects(master: Server, wanted: Wishes) -> str:
    """The line of a master that haproxy cannot ask ``/ready``: whether it can be connected to."""
    assert master.api is not None
    return " ".join(["server", master.name, master.api.netloc, "check", *_tls(master, wanted)])


def _tls(master: Server, wanted: Wishes) -> list[str]:
    """How haproxy speaks TLS with a master, and whose certificate it takes."""
    api, status = master.api, master.status
    assert api is not None
    words = ["ssl"] if api.tls else []
    if api.tls or (status and status.tls):
        name = wanted.name or api.host
        words += ["verify", "required", "ca-file", wanted.ca, "verifyhost", name]
    return words


def _clear(wanted: Wishes) -> list[str]:
    """What the operator should know about plain HTTP."""
    if wanted.tls:
        return []
    return [
        "WARNING: plain HTTP, as tls=False says: any host on the way between callers and this",
        "balancer reads passwords and tokens. Let it listen where only this machine comes to, or",
        "put TLS before it.",
    ]


def _on_loopback(served: Sequence[Server]) -> list[str]:
    """Which masters a balancer on another machine does not reach, though it reaches others."""
    local = {each.name: each.api for each in served if each.api and is_loopback(each.api.host)}
    if len(local) == len(served):
        return []
    return [
        f"{name} is reached by a balancer on its own machine only: its salt-api is at {api.netloc} "
        "(rest_cherrypy: host)."
        for name, api in local.items()
    ]


def _notes(master: Server, kind: str) -> list[str]:
    """What the operator should know about one master."""
    if master.api is None and master.problem:
        return [
            f"{master.name} is left out: it could not be asked, and its address is not known here",
            "(salt-run ha.status). Make this anew when it can be asked.",
        ]
    if master.api is None:
        return [f"{master.name} is left out: its configuration has no salt-api (rest_cherrypy)."]
    if master.problem:
        return [
            f"{master.name} could not be asked; assumed: {master.api.netloc}, "
            f"{'TLS' if master.api.tls else 'no TLS'}. Make this anew when it is back."
        ]
    if kind == "haproxy" and master.status is None:
        return [
            f"{master.name} has no status listener that can be reached from here: only whether",
            "its salt-api accepts connections is looked at, which it also does when salt-master "
            "is dead.",
            "Set  ha: status: {host, certificate, key, token_file}  there, make this anew.",
        ]
    return []


def _check(wanted: Wishes, served: Sequence[Server]) -> None:
    """Refuse what this kind of balancer, or any, cannot do."""
    at = dict[str, str]()
    for master in served:
        if master.problem or not master.api:
            continue  # where it is, is only assumed
        if master.prefix:
            raise HaError(
                f"the salt-api of {master.name} has root_prefix: {master.prefix:.80}: take it out, "
                "restart salt-master and salt-api, and have callers find it there by "
                f"prefix={master.prefix:.80}"
            )
        where = master.api.netloc
        other = at.setdefault(where, master.name)
        if other != master.name:
            raise HaError(
                f"{other} and {master.name} both say that their salt-api is at {where}: a balancer "
                "would call one for the other; let it listen on an address of the master's own "
                "(rest_cherrypy: host: …), restart salt-master and salt-api"
            )
    kinds = {master.api.tls: master.name for master in served if master.api}
    if wanted.kind == "nginx" and len(kinds) > 1:
        raise HaError(
            f"nginx: the salt-api of {kinds[True]} speaks TLS, that of {kinds[False]} does not: "
            "make them the same (rest_cherrypy: ssl_crt, ssl_key), or take haproxy"
        )
    if wanted.kind == "nginx" and len(served) > MOST_OF_NGINX:
        raise HaError(
            f"nginx: the group has {len(served)} masters with salt-api, and nginx can look for the "
            f"one that knows a token among {MOST_OF_NGINX} at most: take haproxy"
        )
    if wanted.name:
        return
    why = "for one name on all masters" if wanted.kind == "nginx" else "for a name, not an address"
    for master in served:
        addresses = (master.api, master.status if wanted.kind == "haproxy" else None)
        for address in addresses:
            if address and address.tls and (wanted.kind == "nginx" or address.is_ip):
                raise HaError(
                    f"{master.name}, {address.netloc}: {wanted.kind} checks certificates {why}. "
                    "Say with name= which name is in the certificates of all masters, such as "
                    "name=salt-api.example.org"
                )


def _path(value: Any) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise ValueError("takes an absolute path without spaces")
    return value


def _prefix(value: Any) -> str:
    """``/salt-api``, with slashes or without; ``/`` is no prefix."""
    if value == "/":
        return ""
    found = _PREFIX.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise ValueError("takes a path of letters, digits, '_' and '-', as /salt-api/")
    if found[1] in _TAKEN:
        raise ValueError("that is a path of salt-api itself; take another, as /salt-api/")
    return f"/{found[1]}"


def _listen(value: Any) -> str:
    """``443``, ``10.0.0.9:443`` or ``[::]:443``."""
    host, _, port = str(value).rpartition(":")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError("takes a port, or address:port")
    if not host or host == "*":
        return str(int(port))
    try:
        host = check_host(host)
    except ValueError as exc:
        raise ValueError(f"{exc}, a colon and a port") from None
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"


_CHECKS: dict[str, Check] = {
    "cert": _path,
    "listen": _listen,
    "ca": _path,
    "name": check_host,
    "api_port": whole(1, 65535),
    "timeout": whole(1, LONGEST),
    "prefix": _prefix,
    "tls": on_off,
}
