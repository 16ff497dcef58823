"""The ``ha:`` mapping: defaults, and errors that say what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import ConfigError
from saltext_ha.config.mapping import HaConfig, check_url, parse
from tests.unit.config.options import OPTS

pytestmark = pytest.mark.core


def read(**ha: Any) -> HaConfig:
    return parse({**OPTS, "ha": ha})


def test_an_empty_mapping_gives_the_documented_defaults() -> None:
    for raw in ({}, None):
        config = parse({**OPTS, "ha": raw})
        assert (config.name, config.group, config.mode) == ("m1", "default", "enforce")
        assert (config.listen_host, config.port, config.address) == ("10.0.0.1", 4530, "10.0.0.1")
        assert config.state_dir == Path("/etc/salt/pki/master/ha")
        assert config.control_socket == Path("/var/run/salt/master/ha_control.ipc")
        assert (config.hold_fraction, config.hold_minimum) == (0.05, 10)
        assert config.keep_history == 365
        assert config.minions_per_worker == 200
        assert (config.pending_limit, config.pending_rate) == (10_000, 1_000)
    assert parse(OPTS) == config


def test_rules_that_lint_ignores_are_not_the_business_of_the_engine() -> None:
    assert read(lint={"ignore": ["HA218"]}) == read()


def test_a_wildcard_interface_is_not_what_peers_are_told() -> None:
    for wildcard in ("0.0.0.0", "::"):
        config = parse({**OPTS, "interface": wildcard})
        assert config.listen_host == wildcard
        assert config.address != wildcard
    assert parse({**OPTS, "interface": "m1.example.com"}).address == "m1.example.com"


def test_an_ipv6_address_is_bracketed_in_the_url() -> None:
    assert read(address="[fd00::1]", port=4531).url == "https://[fd00::1]:4531"
    assert read(address="fd00::1", port=4531).url == "https://[fd00::1]:4531"


def test_capital_letters_make_no_other_url() -> None:
    """A joining master proves its URL, and ``masters`` are compared with it."""
    config = read(address="Salt1.Example.COM", masters=["https://SALT1.example.com:4530"])
    assert config.masters == (config.url,)
    assert check_url(config.url) == config.url == "https://salt1.example.com:4530"


def test_peers_are_read_and_their_urls_made_canonical() -> None:
    config = read(peers=[{"name": "m2", "url": "https://10.0.0.2:4530/"}])
    assert config.peers == {"m2": "https://10.0.0.2:4530"}


@pytest.mark.parametrize(
    ("ha", "said"),
    [
        ({"mode": "enforced"}, ["mode", "'enforced'", "enforce, observe"]),
        ({"sync_intervall": 3}, ["unknown key 'sync_intervall'", "did you mean 'sync_interval'"]),
        ({"zzz": 3}, ["unknown key 'zzz'", "known keys:", "peer_timeout", "peers"]),
        ({"port": "4530"}, ["port", "'4530'", "whole number from 1 to 65535"]),
        ({"port": True}, ["port", "True"]),
        ({"port": 0}, ["port", "0", "1 to 65535"]),
        ({"port": 65536}, ["port"]),
        ({"sync_interval": 0}, ["sync_interval", "0.1 to 3600"]),
        ({"sync_interval": False}, ["sync_interval"]),
        ({"sync_interval": float("nan")}, ["sync_interval", "nan"]),
        ({"scan_interval": "60"}, ["scan_interval", "'60'"]),
        ({"hold_fraction": 1.1}, ["hold_fraction", "0 to 1"]),
        ({"hold_minimum": -1}, ["hold_minimum"]),
        ({"hold_minimum": 1.5}, ["hold_minimum", "1.5"]),
        ({"minions_per_worker": 0}, ["minions_per_worker", "1 to"]),
        ({"pending_limit": -1}, ["pending_limit", "0 to"]),
        ({"pending_rate": 0}, ["pending_rate", "1 to"]),
        ({"keep_history": 0}, ["keep_history", "1 to 36500"]),
        ({"keep_history": "1y"}, ["keep_history", "'1y'"]),
        ({"name": "-m1"}, ["name", "'-m1'"]),
        ({"name": "m" * 65}, ["name", "at most 64"]),
        ({"name": "m1\n"}, ["name"]),
        ({"name": "m 1"}, ["name"]),
        ({"name": True}, ["name: True takes", "in quotes"]),
        ({"group": 1}, ["group: 1 takes", "in quotes"]),
        ({"peers": [{"name": 2, "url": "https://a:1"}]}, ["peers[0].name: 2 takes", "in quotes"]),
        ({"address": "https://m1"}, ["address", "without scheme"]),
        ({"address": ""}, ["address"]),
        ({"address": "127.0.0.3:4530"}, ["address", "without scheme or port", "as port:"]),
        ({"address": "m1:4530"}, ["address", "'m1:4530'", "as port:"]),
        ({"address": "[fd00::1]:4530"}, ["address", "as port:"]),
        ({"address": "a..b"}, ["address", "'a..b'"]),
        ({"address": "10.0.0.1\n"}, ["address", r"'10.0.0.1\n'", "one line", "|"]),
        ({"state_dir": "/var/lib/ha\n"}, ["state_dir", "one line"]),
        ({"health": {"user": "bob\n"}}, ["health: user", "one line"]),
        ({"listen_host": "0.0.0.0:4530"}, ["listen_host", "as port:"]),
        ({"state_dir": "ha"}, ["state_dir", "'ha'", "absolute"]),
        ({"peers": {}}, ["peers", "list"]),
        ({"peers": ["m2"]}, ["peers[0]", "'m2'", "name and url"]),
        ({"peers": [{"name": "m2"}]}, ["peers[0]", "name and url"]),
        ({"peers": [{"name": "m 2", "url": "https://a:1"}]}, ["peers[0].name", "'m 2'"]),
        ({"peers": [{"name": "m2", "url": "10.0.0.2"}]}, ["peers[0].url", "https://10.0.0.2:4530"]),
        ({"peers": [{"name": "m2", "url": "fd00::2"}]}, ["peers[0].url", "https://[fd00::2]:4530"]),
        ({"peers": [{"name": "m2", "url": "[fd00::2]:1"}]}, ["https://[fd00::2]:1"]),
        ({"peers": [{"name": "m2", "url": "no host"}]}, ["write https://host:port"]),
        ({"masters": "https://a:1"}, ["masters", "list"]),
        ({"masters": ["a:1"]}, ["masters[0]", "'a:1'", "https://a:1"]),
        ({"masters": ["https://a:1", "https://a:1/"]}, ["masters[1]", "twice"]),
        ({"share_master_key": "yes"}, ["share_master_key", "'yes'", "true or false"]),
        ({"secret_file": "secret"}, ["secret_file", "absolute"]),
        ({"secret_file": "/does/not/exist"}, ["secret_file: /does/not/exist", "No such file"]),
        (
            {
                "peers": [
                    {"name": "m2", "url": "https://a:1"},
                    {"name": "m2", "url": "https://b:1"},
                ]
            },
            ["peers[1].name", "'m2'", "twice"],
        ),
    ],
)
def test_a_mistake_is_named_with_file_key_value_and_what_it_takes(
    ha: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**ha)
    for part in ["/etc/salt/master: ha: ", *said]:
        assert part in str(caught.value)


class SaltsOwn(list[str]):
    """As Salt 3008 gives its lists."""


@pytest.mark.parametrize(
    ("raw", "kind"),
    [([], "list"), (["m1"], "list"), (SaltsOwn(["m1"]), "list"), ("m1", "str"), (3, "int")],
)
def test_ha_must_be_a_mapping(raw: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"ha: takes a mapping, not {kind}$"):
        parse({**OPTS, "ha": raw})


@pytest.mark.parametrize("option", ["pki_dir", "sock_dir"])
def test_a_folder_of_salt_that_is_none_is_named(option: str) -> None:
    for wrong in (None, True, 5, [], {}):
        what = "takes a path" if wrong is None else "takes a path, not (bool|int|list|dict)"
        with pytest.raises(ConfigError, match=f"{option}: {what}$"):
            parse({**OPTS, option: wrong})


def test_an_id_that_cannot_be_a_name_asks_for_one() -> None:
    with pytest.raises(ConfigError, match="set ha: name"):
        parse({**OPTS, "id": "master nr 1"})


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        5,
        "10.0.0.2:4530",
        "http://10.0.0.2:4530",
        "https://10.0.0.2",
        "https://10.0.0.2:0",
        "https://10.0.0.2:99999",
        "https://10.0.0.2:port",
        "https://:4530",
        "https://m2:4530/path",
        "https://m2:4530/?a=b",
        "https://user@m2:4530",
    ],
)
def test_urls_that_no_peer_can_have(url: Any) -> None:
    with pytest.raises(ValueError, match=r"https://|scheme"):
        check_url(url)


def test_urls_keep_host_and_port() -> None:
    assert check_url("https://m2.example.com:4530") == "https://m2.example.com:4530"
    assert check_url("https://[fd00::2]:4530/") == "https://[fd00::2]:4530"


SECRET = "0123456789abcdef0123456789abcdef"


def secret_file(folder: Path, content: str = SECRET, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_text(content)
    path.chmod(mode)
    return str(path)


def test_a_secret_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read().secret is None
    path = secret_file(tmp_path, f"  {SECRET}\n")
    assert read(secret_file=path).secret == SECRET.encode()
    monkeypatch.setenv("SALT_HA_SECRET", SECRET[::-1])
    assert read().secret == SECRET[::-1].encode()
    assert read(secret_file=path).secret == SECRET.encode()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o620])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"open to others .mode {mode:04o}.; chmod 600") as caught:
        read(secret_file=secret_file(tmp_path, mode=mode))
    assert SECRET not in str(caught.value)


def test_a_short_secret_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = SECRET[1:]
    with pytest.raises(
        ConfigError, match="32 characters; make one with  openssl rand -hex 32"
    ) as e:
        read(secret_file=secret_file(tmp_path, f"{short}\n\n"))
    assert short not in str(e.value)
    monkeypatch.setenv("SALT_HA_SECRET", short)
    with pytest.raises(ConfigError, match="environment: SALT_HA_SECRET: has fewer") as e:
        read()
    assert short not in str(e.value)


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    config = read(secret_file=secret_file(tmp_path))
    assert SECRET not in repr(config)
    assert SECRET not in str(config)


def test_the_masters_are_read_and_made_canonical() -> None:
    assert read(masters=["https://10.0.0.1:4530/", "https://m2:1"]).masters == (
        "https://10.0.0.1:4530",
        "https://m2:1",
    )


@pytest.mark.parametrize(
    "ha",
    [
        {"secret_file": "5f0c9d1f"},
        {"health": {"user": "ha", "password_file": "5f0c9d1f"}},
        {"status": {"token_file": "5f0c9d1f"}},
    ],
)
def test_a_secret_in_the_place_of_its_file_is_not_shown(ha: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="_file: takes an absolute path") as refused:
        read(**ha)
    assert "5f0c9d1f" not in str(refused.value)


@pytest.mark.parametrize("key", ["masters", "peers"])
@pytest.mark.parametrize(
    ("scheme", "why"), [("https://", "a host and a port only"), ("", "has no scheme")]
)
def test_a_password_in_a_url_is_not_shown(key: str, scheme: str, why: str) -> None:
    url = f"{scheme}ha:5f0c9d1f@m2:4530"
    with pytest.raises(ConfigError, match=rf"'{scheme}\*\*\*@m2:4530' .*{why}") as refused:
        read(**{key: [url if key == "masters" else {"name": "m2", "url": url}]})
    assert "5f0c9d1f" not in str(refused.value)


def test_an_error_names_the_files_that_it_may_be_in() -> None:
    files = {"conf_file": "/etc/salt/master", "default_include": "master.d/*.conf"}
    with pytest.raises(ConfigError) as refused:
        parse({**OPTS, **files, "ha": {"mdoe": "observe"}})
    assert str(refused.value).startswith("/etc/salt/master (or master.d/*.conf): ha: unknown key")
