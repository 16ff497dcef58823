"""Where the pool finds its masters, and how it says that something is wrong."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.api import BadConfiguration, InsecureConnection, SaltApiPool
from saltext_ha.api.config import Endpoint, Secret, endpoints, from_environment, is_loopback
from tests.api_server import everything

pytestmark = pytest.mark.core

USER = {"SALT_API_USERNAME": "ops", "SALT_API_PASSWORD": "s3cret"}


def urls(**environ: str) -> list[str]:
    return [endpoint.url for endpoint in from_environment(USER | environ)]


def test_the_three_ways_and_their_order() -> None:
    entries = [
        {"url": "http://salt-master-1:8002", "priority": 0},
        {"url": "http://salt-master-2:8002", "priority": 1},
    ]
    one = {"SALT_MASTER_HOST": "salt-master-3", "SALT_API_PORT": "8002"}
    several = {"SALT_MASTER_URLS": "http://salt-master-4:8002, https://salt-master-5/"}
    config = {"SALT_MASTERS_CONFIG": json.dumps(entries)}
    assert urls(**one) == ["https://salt-master-3:8002"]
    assert urls(**one, SALT_API_SCHEME="http") == ["http://salt-master-3:8002"]
    assert urls(SALT_MASTER_HOST="fd00::1") == ["https://[fd00::1]:8000"]
    assert urls(**one, **several) == ["http://salt-master-4:8002", "https://salt-master-5"]
    assert urls(**one, **several, **config) == [entry["url"] for entry in entries]
    # As compose files leave them when they are not set.
    assert urls(**one, SALT_MASTERS_CONFIG="", SALT_MASTER_URLS=" ") == urls(**one)


def test_an_entry_is_completed_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    entries = [
        {"url": "https://a", "username": "eve", "password_file": str(file), "eauth": "ldap"},
        {"url": "https://b:1/salt/", "name": "b", "verify": False, "priority": -1},
    ]
    a, b = from_environment(USER | {"SALT_MASTERS_CONFIG": json.dumps(entries)})
    assert (a.username, a.eauth, a.priority, a.name, a.verify) == (
        "eve",
        "ldap",
        0,
        "https://a",
        True,
    )
    assert (b.username, b.eauth, b.priority, b.name, b.verify) == ("ops", "pam", -1, "b", False)
    assert b.url == "https://b:1/salt"
    assert (a.password.read(), b.password.read()) == ("first", "s3cret")
    file.write_text("second\n")
    assert a.password.read() == "second"
    file.unlink()
    with pytest.raises(BadConfiguration, match=r"password_file .*: No such file"):
        a.password.read()


ENTRY = {"url": "https://a", "password": "s3cret"}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "no masters: set SALT_MASTERS_CONFIG"),
        (
            {"SALT_MASTERS_CONFIG": '[{"url": "https://a", "password": "s3cret", }]'},
            "SALT_MASTERS_CONFIG: is not JSON:",
        ),
        ({"SALT_MASTERS_CONFIG": '{"url": "https://a"}'}, "takes a list of mappings"),
        ({"SALT_MASTERS_CONFIG": "[]"}, "SALT_MASTERS_CONFIG: the list is empty"),
        ({"SALT_MASTERS_CONFIG": '["https://a"]'}, r"SALT_MASTERS_CONFIG\[0\]: takes a mapping"),
        ([ENTRY, {"priority": 1}], r"SALT_MASTERS_CONFIG\[1\].url: is missing"),
        ([ENTRY | {"priority": "high"}], r'\[0\].priority: "high" is wrong; takes a whole number'),
        ([ENTRY | {"priority": True}], r"\[0\].priority: true is wrong"),
        ([ENTRY | {"password": 12345}], r"\[0\].password: takes text"),
        ([ENTRY | {"user": "x"}], r"\[0\].user: unknown key; takes url"),
        ([ENTRY | {"url": "a:8000"}], r"\[0\].url: has no scheme; write https://"),
        ([ENTRY | {"url": "https://x:y@a"}], r"\[0\].url: has a user or password in it"),
        ([ENTRY | {"url": "https://a:port"}], r"\[0\].url: is no URL; takes https://"),
        ([ENTRY | {"url": "https://a b:1"}], r"\[0\].url: has a blank"),
        ([ENTRY | {"url": "https://a\x7f"}], r"\[0\].url: has a blank"),
        ([ENTRY, ENTRY], r"\[1\].url: https://a is there twice"),
        ([ENTRY | {"verify": "/no/ca"}], r"\[0\].verify: /no/ca does not exist"),
        ([ENTRY | {"password_file": "/f"}], r"\[0\].password_file: password is there too"),
        ({"SALT_MASTER_URLS": "https://a,,https://b"}, r"SALT_MASTER_URLS\[1\].url: has no"),
        ({"SALT_MASTER_HOST": "a", "SALT_API_PORT": "80a"}, "SALT_API_PORT: '80a' is not a port"),
        ({"SALT_MASTER_HOST": "a", "SALT_API_SCHEME": "ftp"}, "SALT_API_SCHEME: 'ftp'; takes http"),
        ({"SALT_MASTER_HOST": "https://a"}, "SALT_MASTER_HOST: takes a name or an address"),
    ],
)
def test_what_is_wrong_is_an_error_and_never_the_next_way(environ: Any, message: str) -> None:
    if isinstance(environ, list):
        environ = {"SALT_MASTERS_CONFIG": json.dumps(environ)}
    fallback = {"SALT_MASTER_HOST": "good"} if environ else {}
    with pytest.raises(BadConfiguration, match=message) as caught:
        from_environment(USER | fallback | environ)
    # What calls this raises it anew, without these frames.
    text = everything(caught.value, frames=False)
    assert "s3cret" not in text
    assert "12345" not in text
    assert "x:y" not in text


MISTYPED = [
    "admin:hunter2@m1:8000",
    "//admin:hunter2@m1:8000",
    "https:/admin:hunter2@m1:8000",
    "https//admin:hunter2@m1",
    "https://admin:hunter2#x@m1:8000",
    "https://admin:hunter2/x@m1:8000",
    "https://admin:1/hunter2@m1:8000",
    "https://admin:hunter2?x@m1:8000",
    "https://admin:hunter2[x@m1:8000",
    "https://admin:hunter2@m1:8000x",
    "https://admin:hunter2\udcff@m1",
    # As SALT_MASTER_URLS each part is a URL of its own.
    "https://admin:hunter2,x@m1:8000",
    "https://admin:1,hunter2,x@m1:8000",
    "https://hunter2\x01,x@m1:8000",
    "https://?hunter2,x@m1:8000",
]


@pytest.mark.parametrize("url", MISTYPED)
def test_no_error_shows_the_password_in_a_url(url: str) -> None:
    endpoint = Endpoint(url, "ops", Secret("s3cret"))
    for masters in ([url], [{"url": url}], [{"url": [url]}], [{url: 1}], [endpoint]):
        with pytest.raises(BadConfiguration) as caught:
            endpoints(masters, {"username": "ops", "password": "s3cret"}, "masters")
        assert "hunter2" not in everything(caught.value, frames=False)
    with pytest.raises(BadConfiguration) as caught:
        from_environment(USER | {"SALT_MASTER_URLS": url})
    assert "hunter2" not in everything(caught.value, frames=False)


def test_an_endpoint_is_completed_and_checked_like_a_mapping() -> None:
    given = [Endpoint(url, "ops", Secret("s3cret")) for url in ("https://a/", "https://b")]
    assert [(one.url, one.name) for one in endpoints(given, {}, "masters")] == [
        ("https://a", "https://a"),
        ("https://b", "https://b"),
    ]


def test_nobody_to_log_in_as() -> None:
    with pytest.raises(BadConfiguration, match=r"SALT_MASTER_URLS\[0\].username: is missing"):
        from_environment({"SALT_MASTER_URLS": "https://a"})
    with pytest.raises(BadConfiguration, match=r"masters\[0\].password: is missing"):
        SaltApiPool(["https://a"], username="ops")


@pytest.mark.parametrize("password", ["\n", "\r\n", "\n\n"])
def test_a_password_that_is_only_a_line_end_is_missing(password: str, tmp_path: Path) -> None:
    missing = r"\[0\].password: is missing"
    with pytest.raises(BadConfiguration, match=missing):
        from_environment(USER | {"SALT_MASTER_URLS": "https://a", "SALT_API_PASSWORD": password})
    for entry in ({}, {"password": password}):
        with pytest.raises(BadConfiguration, match=missing):
            endpoints([{"url": "https://a", **entry}], {"username": "o", "password": password}, "m")
    # A file is what counts then, as beside an empty password.
    (tmp_path / "file").write_text("s3cret\n")
    given = {"username": "o", "password": password, "password_file": str(tmp_path / "file")}
    assert endpoints(["https://a"], given, "m")[0].password.read() == "s3cret"


def test_secrets_are_not_shown() -> None:
    endpoint = Endpoint("https://a", "ops", Secret("s3cret"))
    assert "s3cret" not in f"{endpoint!r} {endpoint} {endpoints([endpoint], {}, 'masters')}"


def test_http_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_loopback(h) for h in ("localhost", "127.4.5.6", "::1", "10.0.0.1", "m1")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    for key, value in (USER | {"SALT_MASTER_URLS": "http://192.0.2.1:8002"}).items():
        monkeypatch.setenv(key, value)
    with pytest.warns(InsecureConnection, match=r"192\.0\.2\.1:8002 sends the password"):
        SaltApiPool().close()
    with warnings.catch_warnings():
        warnings.simplefilter("error", InsecureConnection)
        SaltApiPool(allow_insecure=True).close()
        SaltApiPool(["http://127.0.0.1:1"], username="ops", password="x").close()
    with pytest.raises(BadConfiguration, match="or allow_insecure=True"):
        SaltApiPool(allow_insecure=False)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"selection": "random"},
            "selection: 'random'; takes one of priority, round_robin",
        ),
        ({"deadline": 0}, "deadline: 0; takes a finite number above 0"),
        ({"deadline": float("inf")}, "deadline: inf; takes a finite number above 0"),
        ({"deadline": 10**400}, "deadline: 1000.*; takes a finite number above 0"),
        ({"probe_interval": float("inf")}, "probe_interval: inf"),
        ({"probe_timeout": float("nan")}, "probe_timeout: nan"),
        ({"spacing": "1"}, "spacing: '1'; takes a finite number of"),
        ({"rise": True}, "rise: True"),
        ({"verify": "/no/ca"}, "verify: /no/ca does not exist"),
        ({"allow_insecure": "false"}, "allow_insecure: 'false'; takes True or False"),
        ({"allow_insecure": 0}, "allow_insecure: 0; takes True or False"),
    ],
)
def test_wrong_options(option: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        SaltApiPool(["https://127.0.0.1:1"], username="ops", password="x", **option)


@pytest.mark.parametrize("idempotent", ["false", "n", 0, None])
def test_idempotent_is_true_or_false(idempotent: Any) -> None:
    """A text would count as true, and the job may run twice."""
    with SaltApiPool(["https://127.0.0.1:1"], username="ops", password="x") as pool:
        for call in (
            lambda: pool.local("*", "test.ping", idempotent=idempotent),
            lambda: pool.local_async("*", "test.ping", idempotent=idempotent),
            lambda: pool.runner("test.arg", idempotent=idempotent),
            lambda: pool.wheel("key.delete", ["web1"], idempotent=idempotent),
        ):
            with pytest.raises(BadConfiguration, match=r"idempotent: .*; takes True or False"):
                call()


def test_an_empty_verify_is_one_that_is_not_set() -> None:
    entry = ENTRY | {"username": "ops", "verify": ""}
    assert endpoints([entry], {}, "masters")[0].verify is True
    assert endpoints([ENTRY], {"username": "ops", "verify": ""}, "masters")[0].verify is True
    assert endpoints([entry], {"verify": "/etc"}, "masters")[0].verify == "/etc"


def test_an_empty_password_or_file_is_one_that_is_not_set(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("of the file")
    file.chmod(0o600)
    defaults = {"username": "ops", "password": "usual"}
    for own, wanted in (
        ({"password": "own", "password_file": ""}, "own"),
        ({"password": "", "password_file": str(file)}, "of the file"),
        ({"password": "", "password_file": ""}, "usual"),
    ):
        (found,) = endpoints([ENTRY | own], defaults, "masters")
        assert found.password.read() == wanted


def test_a_password_is_used_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a line end is taken away, as at the end of a file."""
    for key, value in (USER | {"SALT_MASTER_URLS": "https://127.0.0.1:1"}).items():
        monkeypatch.setenv(key, value)
    masters: list[list[str] | None] = [None, ["https://127.0.0.1:1"]]
    for given in masters:
        with SaltApiPool(given, username="ops", password=" pass phrase \n") as pool:
            endpoint = pool._masters["https://127.0.0.1:1"].endpoint
            assert endpoint.password.read() == " pass phrase "
    file = SaltApiPool(password_file="/f", verify="false", username=" eve ")
    with file as pool:
        endpoint = pool._masters["https://127.0.0.1:1"].endpoint
        assert (endpoint.username, endpoint.verify) == ("eve", False)
        assert endpoint.password.file == Path("/f")


def test_secrets_that_are_not_utf8_can_be_compared() -> None:
    """As os.environ has them: with a surrogate for each byte that is none."""
    latin = Secret("gr\udcfcn")
    assert latin.same(Secret("gr\udcfcn"))
    assert not latin.same(Secret("gr\ud800n"))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000], ids=["deep", "long number"])
def test_json_that_python_cannot_read(text: str) -> None:
    with pytest.raises(BadConfiguration, match="SALT_MASTERS_CONFIG: "):
        from_environment(USER | {"SALT_MASTERS_CONFIG": text})


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"], ids=["long", "zero"])
def test_files_that_have_no_file_name(name: str) -> None:
    entry = ENTRY | {"username": "ops"}
    with pytest.raises(BadConfiguration, match=r"\[0\].verify: .* does not exist"):
        endpoints([entry | {"verify": name}], {}, "masters")
    with pytest.raises(BadConfiguration, match="password_file"):
        Secret(file=Path(name)).read()
