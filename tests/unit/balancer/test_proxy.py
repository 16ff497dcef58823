"""The configurations that ``ha.proxy_config`` writes."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.balancer import servers
from saltext_ha.balancer.render import Wishes, render, wishes
from saltext_ha.balancer.servers import Address, Server
from saltext_ha.common.errors import HaError, InvalidRecord

PLAIN = Server("m1", Address("10.0.0.1", 8000, False), Address("10.0.0.1", 4531, True))
BARE = Server("m1", Address("10.0.0.1", 8000, False))
NAMED = Server("m2", Address("m2.example.org", 8000, True), Address("m2.example.org", 4531, True))


def text(*masters: Server, **given: Any) -> str:
    return render(wishes(**{"kind": "haproxy", **given}), "prod", "m1", masters)


def directives(config: str) -> list[str]:
    """The lines that are no comments."""
    return [line.strip() for line in config.splitlines() if not re.match(r"\s*(#|$)", line)]


def server(config: str, name: str) -> str:
    (line,) = (line for line in directives(config) if line.startswith(f"server {name} "))
    return line


# -- what a master says of itself


def opts(**rest: Any) -> dict[str, Any]:
    return {"rest_cherrypy": {"port": 8000, "ssl_crt": "/crt", **rest}}


def config(status: Any = None) -> Any:
    return SimpleNamespace(name="m1", address="10.0.0.1", status=status)


def status(host: str) -> Any:
    return SimpleNamespace(host=host, port=4531, certificate=None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Address("10.0.0.1", 8000, True)),
        ({"host": "0.0.0.0"}, Address("10.0.0.1", 8000, True)),
        ({"host": "::"}, Address("10.0.0.1", 8000, True)),
        ({"host": "10.9.9.9", "disable_ssl": True}, Address("10.9.9.9", 8000, False)),
        ({"ssl_crt": None}, Address("10.0.0.1", 8000, False)),
        ({"port": None}, None),
    ],
)
def test_salt_api_is_where_its_configuration_says(
    settings: dict[str, Any], expected: Address | None
) -> None:
    assert servers.of_master(opts(**settings), config()).api == expected


def test_a_salt_api_below_a_prefix_of_its_own_is_refused() -> None:
    """Balancers know logins, events and tokens in paths by paths from the root on."""
    assert "server m1" in text(servers.of_master(opts(root_prefix="/", ssl_crt=None), config()))
    own = servers.of_master(opts(root_prefix="/api/", ssl_crt=None), config())
    for said in (own, servers.from_wire("m1", servers.to_wire(own))):
        with pytest.raises(HaError, match=r"m1 .*root_prefix: /api: take it out, .*prefix=/api"):
            text(PLAIN, said)


@pytest.mark.parametrize(
    ("host", "api", "expected"),
    [
        ("127.0.0.1", "10.0.0.1", None),  # nobody from elsewhere could ask
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:4531"),  # all on one machine
        ("0.0.0.0", "10.0.0.1", "10.0.0.1:4531"),
        ("10.9.9.9", "10.0.0.1", "10.9.9.9:4531"),
    ],
)
def test_a_status_listener_counts_where_callers_reach_it(
    host: str, api: str, expected: str | None
) -> None:
    found = servers.of_master(opts(host=api), config(status(host))).status
    assert (found and found.netloc) == expected


def test_what_travels_is_what_was_said() -> None:
    for said in (PLAIN, NAMED, Server("m3", None), Server("m4", Address("fe80::1", 8000, True))):
        assert servers.from_wire(said.name, servers.to_wire(said)) == said


@pytest.mark.parametrize(
    "api",
    [
        {"host": "10.0.0.1\n    user root", "port": 8000, "tls": False},
        {"host": "10.0.0.1 backup", "port": 8000, "tls": False},
        {"host": "10.0.0.1;", "port": 8000, "tls": False},
        {"host": "fe80::1%x\n    server evil 6.6.6.6:80\n#", "port": 8000, "tls": False},
        {"host": "fe80::1%eth0;deny all", "port": 8000, "tls": False},
        {"host": "-x", "port": 8000, "tls": False},
        {"host": "10.0.0.1", "port": "8000 check", "tls": False},
        {"host": "10.0.0.1", "port": 0, "tls": False},
        {"host": "10.0.0.1"},
        [],
    ],
)
def test_a_peer_cannot_write_into_the_configuration(api: Any) -> None:
    for raw in ({"api": api, "status": None}, {"api": None, "status": api}):
        with pytest.raises(InvalidRecord):
            text(PLAIN, servers.from_wire("m2", raw))


@pytest.mark.parametrize("host", ["10.0.0.3;deny", "fe80::1%x\n    server evil 6.6.6.6:80\n#"])
def test_neither_can_a_peer_that_is_only_assumed(host: str) -> None:
    with pytest.raises(HaError, match=r"m3 could not be asked, .* a host that a balancer cannot"):
        text(PLAIN, servers.assumed("m3", host, Address("", 8000, False), "timed out"))


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_two_masters_are_not_one(kind: str) -> None:
    """A salt-api on loopback behind a proxy of that host: the balancer would only reach its own."""
    local = Address("127.0.0.1", 8000, False)
    with pytest.raises(HaError, match=r"m1 and m2 .* 127\.0\.0\.1:8000: .*rest_cherrypy: host"):
        text(Server("m1", local), Server("m2", local), Server("m3", None), kind=kind)


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_a_master_on_loopback_among_others_is_told(kind: str) -> None:
    local, other = Server("m1", Address("127.0.0.1", 8000, False)), Server("m2", PLAIN.api)
    note = "# NOTE m1 is reached by a balancer on its own machine only: its salt-api is at 127.0"
    assert note in text(local, other, kind=kind)
    assert note not in text(local, kind=kind)


# -- what both are told


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_plain_http_is_there_only_for_who_asks_and_says_so(kind: str) -> None:
    assert not [line for line in text(BARE, kind=kind).splitlines() if "WARNING" in line]
    plain = text(BARE, kind=kind, tls=False)
    assert "# NOTE WARNING: plain HTTP" in plain
    assert not re.search(r"(?m)^ *(bind|listen) .*ssl|^ *ssl_certificate", plain)
    assert re.search(r"(?m)^ *(bind|listen) .*ssl", text(BARE, kind=kind))
    assert wishes(kind=kind, tls=False).listen == "80"
    assert wishes(kind=kind, tls=False, listen=8080).listen == "8080"
    with pytest.raises(HaError, match="cert: with tls=False"):
        wishes(kind=kind, tls=False, cert="/etc/ssl/cert.pem")


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize(
    ("kind", "line"),
    [("haproxy", "bind [::]:8443 v4v6"), ("nginx", "listen [::]:8443 ipv6only=off default_server")],
)
def test_all_addresses_are_those_of_ipv4_too(kind: str, line: str, tls: bool) -> None:
    """As for ``ha: listen_host``. nginx would take it for IPv6 only."""
    found = directives(text(BARE, kind=kind, tls=tls, listen="[::]:8443"))
    assert line in [each.split(" ssl")[0].strip(";") for each in found]
    assert "v4v6" not in text(BARE, kind=kind, listen="[fd00::1]:8443")


@pytest.mark.parametrize("given", ["/salt-api/", "/salt-api", "salt-api/", "salt-api"])
def test_a_prefix_with_slashes_or_without(given: str) -> None:
    assert wishes(kind="nginx", prefix=given).prefix == "/salt-api"


def test_no_prefix_is_none() -> None:
    assert wishes(kind="nginx", prefix="/").prefix == wishes(kind="nginx").prefix == ""


@pytest.mark.parametrize("given", ["/a b", "/a;", "/a{", "/a/../b", "//a", "/a//b", "/login", 7])
def test_a_prefix_that_means_something_to_a_balancer_is_refused(given: object) -> None:
    with pytest.raises(HaError, match="prefix="):
        wishes(kind="nginx", prefix=given)


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_a_configuration_says_how_it_is_made_again(kind: str) -> None:
    found = text(BARE, kind=kind, listen="127.0.0.1:8080", tls=False, prefix="/salt-api/")
    command = f"salt-run ha.proxy_config {kind} listen=127.0.0.1:8080 prefix=/salt-api tls=False"
    assert f"# Made on m1 by:  {command}\n" in found


# -- haproxy


def test_haproxy_asks_ready_of_every_master() -> None:
    found = text(PLAIN, NAMED, name="salt.example.org", ca="/etc/ssl/salt-ca.pem")
    assert "http-check send meth GET uri /ready ver HTTP/1.1 hdr Host salt-ha" in directives(found)
    checked = "verify required ca-file /etc/ssl/salt-ca.pem verifyhost salt.example.org"
    assert server(found, "m1") == f"server m1 10.0.0.1:8000 check port 4531 check-ssl {checked}"
    assert server(found, "m2") == (
        f"server m2 m2.example.org:8000 check port 4531 check-ssl ssl {checked}"
    )


def test_a_status_listener_elsewhere_is_asked_there() -> None:
    master = Server("m1", Address("10.0.0.1", 8000, False), Address("10.1.0.1", 4531, False))
    assert server(text(master), "m1") == (
        "server m1 10.0.0.1:8000 check addr 10.1.0.1 port 4531 no-check-ssl"
    )


def test_a_name_is_always_checked() -> None:
    assert "verifyhost m2.example.org" in server(text(NAMED), "m2")
    with pytest.raises(HaError, match=r"m1, 10\.0\.0\.1:4531: .*name="):
        text(PLAIN)


def test_who_has_no_ready_is_named_and_asked_for_a_connection() -> None:
    found = text(Server("m1", Address("10.0.0.1", 8000, False)), NAMED)
    asked, _, connected = found.partition("backend salt_api_connects\n")
    assert server(asked, "m1") == "server m1 10.0.0.1:8000 track salt_api_connects/m1"
    assert server(connected, "m1") == "server m1 10.0.0.1:8000 check"
    assert "server m2" not in connected
    assert re.search(r"NOTE m1 has no status listener", found)
    assert not re.search(r"NOTE m2", found)


def test_ipv6_has_brackets() -> None:
    master = Server("m1", Address("fd00::1", 8000, False), Address("fd00::1", 4531, False))
    assert "[fd00::1]:8000" in server(text(master), "m1")
    elsewhere = Server("m1", master.api, Address("fd00::9", 4531, False))
    assert "check addr [fd00::9] port 4531" in server(text(elsewhere), "m1")


# -- nginx


def test_nginx_never_repeats_a_call() -> None:
    found = text(PLAIN, kind="nginx")
    blocks = re.split(r"(?m)^ {4}location ", found)
    repeated = [block for block in blocks if re.search(r"(?m)^[^#]*non_idempotent", block)]
    assert [block.split(" {")[0] for block in repeated] == ["= /login", "@salt_any_login"]
    # The default is the same; but whoever changes it should see it.
    assert "proxy_next_upstream error timeout;" in directives(found)


def test_nginx_keeps_an_address_on_one_master() -> None:
    found = directives(text(PLAIN, kind="nginx"))
    assert "hash $remote_addr consistent;" in found
    assert "server 10.0.0.1:8000 max_fails=1 fail_timeout=30s;  # m1" in found


def test_nginx_takes_no_more_masters_than_it_can_ask_for_a_token() -> None:
    masters = [Server(f"m{n}", Address(f"10.0.0.{n}", 8000, False)) for n in range(1, 12)]
    assert "server 10.0.0.10:8000" in text(*masters[:10], Server("m11", None), kind="nginx")
    with pytest.raises(HaError, match=r"has 11 masters.*among 10 at most: take haproxy"):
        text(*masters, kind="nginx")


def test_nginx_checks_certificates_for_one_name() -> None:
    with pytest.raises(HaError, match=r"one name on all masters.*name="):
        text(NAMED, kind="nginx")
    found = directives(text(NAMED, kind="nginx", name="salt.example.org"))
    assert {"proxy_ssl_verify on;", "proxy_ssl_name salt.example.org;"} <= set(found)
    assert "proxy_pass https://salt_api;" in found


def test_nginx_takes_no_mixture() -> None:
    with pytest.raises(HaError, match=r"m2 speaks TLS, that of m1 does not"):
        text(PLAIN, NAMED, kind="nginx", name="salt.example.org")


# -- both


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_a_master_without_salt_api_is_left_out_and_named(kind: str) -> None:
    found = text(Server("m3", None), PLAIN, kind=kind, name="salt.example.org")
    assert "NOTE m3 is left out" in found
    assert not [line for line in directives(found) if "m3" in line]
    with pytest.raises(HaError, match="no master of the group has a salt-api"):
        text(Server("m3", None), kind=kind)


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_a_master_that_is_down_is_in_it_and_named(kind: str) -> None:
    down = servers.assumed("m3", "10.0.0.3", Address("", 8000, False), "timed out\n# x")
    found = text(PLAIN, down, kind=kind, name="salt.example.org")
    assert "NOTE m3 could not be asked; assumed: 10.0.0.3:8000, no TLS." in found
    assert [line for line in directives(found) if "10.0.0.3:8000" in line]


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_the_ports_of_minions_are_not_balanced(kind: str) -> None:
    found = text(PLAIN, kind=kind, name="salt.example.org")
    assert re.search(r"# .*Never put 4505 and 4506 behind a balancer", found)
    assert not [line for line in directives(found) if re.search("4505|4506", line)]


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_the_wishes_are_in_it(kind: str) -> None:
    given = {"cert": "/c.pem", "listen": "10.0.0.9:8443", "timeout": 7, "name": "salt"}
    found = "\n".join(directives(text(PLAIN, NAMED, **given)))
    for word in ("/c.pem", "10.0.0.9:8443 ssl", "7s"):
        assert word in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "apache"}, "'apache': takes haproxy or nginx"),
        ({"kind": {}}, "takes haproxy or nginx"),
        ({"certs": "/a.pem"}, "'certs': no such argument; takes cert, listen"),
        ({"we\u202eb": 1}, r"'we\\u202eb': no such"),
        ({"cert": {}}, "cert=.*takes an absolute path"),
        ({"name": ["a"]}, "name=.*takes a host name"),
        ({"listen": [443]}, "listen=.*takes a port"),
        ({"cert": "salt.pem"}, "cert='salt.pem': takes an absolute path"),
        ({"cert": "/a b"}, "cert='/a b': takes an absolute path"),
        ({"ca": "/a;\nuser root"}, "ca=.*takes an absolute path"),
        ({"listen": "0"}, "listen='0': takes a port"),
        ({"listen": "a b:443"}, "listen=.*takes a host name or an IP address"),
        ({"name": "a;b"}, "name='a;b': takes a host name"),
        ({"timeout": -1}, "timeout=-1: takes a whole number from 1"),
        ({"api_port": True}, "api_port=True: takes a whole number"),
    ],
)
def test_a_wrong_wish_says_what_it_takes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(HaError, match=message):
        wishes(**{"kind": "haproxy", **given})


def test_what_is_not_wished_is_the_default() -> None:
    assert wishes(kind="nginx", cert="", listen=8443, timeout=0) == Wishes("nginx", listen="8443")
