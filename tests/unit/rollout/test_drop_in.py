"""What minions are told of their masters: the file, and for which masters none would work."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import salt.config
import yaml
from salt.utils.templates import JINJA

from saltext_ha.commands.masters import endpoints
from saltext_ha.commands.masters.endpoints import MinionEndpoint
from saltext_ha.commands.rollout import minion_config
from saltext_ha.common.errors import HaError
from saltext_ha.config.watchdog import WatchdogSettings, parse
from saltext_ha.rollout import drop_in

pytestmark = pytest.mark.core

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "deploy" / "install-minion.sh"
FINGER = ":".join(["3a"] * 32)
OTHER = ":".join(["77"] * 32)
M1 = MinionEndpoint("m1", "10.0.0.1", finger=FINGER)
M2 = MinionEndpoint("m2", "10.0.0.2", finger=FINGER)


def config(
    *masters: MinionEndpoint, errors: Any = None, minions: int = 3, **wish: Any
) -> dict[str, Any]:
    return minion_config.answer(list(masters), errors or {}, minions, wish)


def loaded(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(answer["text"])
    return found


def test_a_group_with_one_key() -> None:
    answer = config(M1, M2)
    found = loaded(answer)
    assert found == answer["options"]
    assert found["master"] == ["10.0.0.1", "10.0.0.2"]
    assert (found["master_port"], found["publish_port"]) == (4506, 4505)
    assert (found["master_finger"], found["master_type"]) == (FINGER, "failover")
    assert (answer["findings"], answer["notes"], answer["retcode"]) == ([], [], 0)


@pytest.mark.parametrize("kind", drop_in.TYPES)
@pytest.mark.parametrize(("watchdog", "limit"), [(False, 40), (True, 15)])
def test_a_connection_that_is_deaf_is_ended_in_time(kind: str, watchdog: bool, limit: int) -> None:
    found = loaded(config(M1, M2, type=kind, watchdog=watchdog))
    assert found["tcp_keepalive"] is True
    idle, again, count = (found[f"tcp_keepalive_{name}"] for name in ("idle", "intvl", "cnt"))
    # Not sooner: networks hang for a moment.
    assert 10 <= idle + again * count <= limit


@pytest.mark.parametrize("kind", drop_in.TYPES)
@pytest.mark.parametrize("failback", [False, True])
@pytest.mark.parametrize("watchdog", [False, True])
def test_lint_has_nothing_against_any_of_them(kind: str, failback: bool, watchdog: bool) -> None:
    wish = {"type": kind, "watchdog": watchdog, "failback": failback and kind == "failover"}
    assert config(M1, M2, **wish)["findings"] == []
    signing = [
        replace(each, finger=f, sign_finger=OTHER) for each, f in ((M1, FINGER), (M2, OTHER))
    ]
    if kind == "failover":
        assert config(*signing, **wish)["findings"] == []


def test_a_minion_of_several_masters_checks_none_all_the_time() -> None:
    """Salt 3007 would (HA219); with the other kinds the option is left to Salt."""
    assert loaded(config(M1, M2, type=drop_in.HOT))["zmq_monitor"] is False
    assert "zmq_monitor" not in loaded(config(M1, M2, type=drop_in.FAILOVER))
    far = [replace(each, transport="tcp") for each in (M1, M2)]
    assert "zmq_monitor" not in loaded(config(*far, type=drop_in.HOT))


def test_the_file_says_what_masters_are_called() -> None:
    called = [replace(M1, name="1"), replace(M2, name="on")]
    assert loaded(config(*called))["ha_masters"] == {"1": "10.0.0.1", "on": "10.0.0.2"}
    apart = [replace(M1, request_port=4516, publish_port=4515), M2]
    answer = config(*apart, type="hot")
    assert loaded(answer)["ha_masters"] == {"m1": "10.0.0.1:4516", "m2": "10.0.0.2:4506"}
    assert set(loaded(answer)["ha_masters"].values()) == set(loaded(answer)["master"])
    far = [replace(each, address=f"fd00::{each.name[1]}") for each in apart]
    answer = config(replace(far[0], name="master_type"), far[1], type="hot")
    assert loaded(answer)["ha_masters"] == {"master_type": "[fd00::1]:4516", "m2": "[fd00::2]:4506"}
    # A minion of an older release that runs the watchdog takes no other key under ha:.
    parse(loaded(answer))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["m1"], "['m1']: takes a mapping of names to masters"),
        ({"m 1": "10.0.0.1"}, "'m 1': is no name of a master"),
        ({1: "10.0.0.1"}, "1: is no name of a master"),
        ({"m1": "10.0.0.9"}, "m1: 10.0.0.9 is none of masters"),
        ({"m1": "10.0.0.1:4516"}, "m1: 10.0.0.1:4516 is none of masters"),
        ({"m1": "http://10.0.0.1"}, "m1: 'http://10.0.0.1' is no host"),
        ({"m1": "10.0.0.1", "m2": "10.0.0.1:4506"}, "10.0.0.1:4506 is called m1 and m2"),
    ],
)
def test_names_that_mean_no_master(names: Any, said: str) -> None:
    with pytest.raises(HaError, match=f"master_names: {re.escape(said)}"):
        drop_in.wanted(["10.0.0.1", "10.0.0.2"], finger=FINGER, master_names=names)
    some = drop_in.wanted(["10.0.0.1", "10.0.0.2"], finger=FINGER, master_names={"m2": "10.0.0.2"})
    assert drop_in.options(some)["ha_masters"] == {"m2": "10.0.0.2"}


def test_lint_is_really_asked() -> None:
    answer = config(M1, replace(M2, address="no-such-master.invalid"), type="hot")
    assert "HA113" in {finding["code"] for finding in answer["findings"]}
    assert answer["retcode"] == 1
    with pytest.raises(HaError, match="send every answer to both"):
        config(M1, replace(M2, address="10.0.0.1", request_port=4516), type="hot")


def test_ports_of_the_masters() -> None:
    moved = [replace(each, request_port=4516, publish_port=4515) for each in (M1, M2)]
    found = loaded(config(*moved))
    assert found["master"] == ["10.0.0.1", "10.0.0.2"], "bare hosts"
    assert (found["master_port"], found["publish_port"]) == (4516, 4515)
    with pytest.raises(HaError, match="different request ports"):
        config(M1, replace(M2, request_port=4516))
    with pytest.raises(HaError, match=r"publish on different ports \(m1 4505, m2 4515\)"):
        config(M1, replace(M2, publish_port=4515))
    hot = loaded(config(M1, replace(M2, request_port=4516, publish_port=4515), type="hot"))
    assert hot["master"] == ["10.0.0.1:4506", "10.0.0.2:4516"]
    assert "publish_port" not in hot


def test_the_transport_of_the_masters() -> None:
    over_tcp = [replace(each, transport="tcp") for each in (M1, M2)]
    assert loaded(config(*over_tcp))["transport"] == "tcp"
    assert "transport" not in loaded(config(M1, M2))
    with pytest.raises(HaError, match=r"speak different transports: m1 zeromq, m2 tcp"):
        config(M1, over_tcp[1])
    with pytest.raises(HaError, match="takes zeromq, tcp, ws"):
        drop_in.wanted(["m1"], transport="udp")


@pytest.mark.parametrize(("minions", "jitter"), [(0, None), (500, None), (3000, 10), (10_000, 30)])
def test_thousands_of_minions_are_given_time(minions: int, jitter: int | None) -> None:
    answer = config(M1, M2, watchdog=True, minions=minions)
    ours = loaded(answer).get("ha")
    assert ours == (None if jitter is None else {"watchdog": {"jitter": jitter}})
    # The watchdog takes what is written.
    settings = parse(loaded(answer))
    assert settings.jitter == (jitter or WatchdogSettings.jitter)
    assert "jitter" not in config(M1, M2, minions=minions)["text"], "nobody would read it"


def test_different_keys_are_never_pinned() -> None:
    with pytest.raises(HaError, match="to one of them only"):
        config(M1, replace(M2, finger=OTHER))
    with pytest.raises(HaError, match="no master key yet"):
        config(M1, replace(M2, finger=""))


def test_masters_that_sign() -> None:
    one = replace(M1, sign_finger=OTHER)
    two = replace(M2, finger=":".join(["55"] * 32), sign_finger=OTHER)
    answer = config(one, two)
    found = loaded(answer)
    assert found["verify_master_pubkey_sign"] is True
    assert "master_finger" not in found
    assert OTHER in answer["notes"][0]
    hashed = minion_config.answer([one, two], {}, 3, {}, "sha512")
    assert hashed["notes"] == answer["notes"], "no minion compares the fingerprint of a master"
    with pytest.raises(HaError, match="not all masters sign"):
        config(one, M2)
    with pytest.raises(HaError, match="a hot minion keeps one master key"):
        config(one, two, type="hot")


def test_a_master_that_is_away_is_in_it_and_unknown() -> None:
    away = MinionEndpoint("m2", "10.0.0.2", reached=False)
    answer = config(M1, away, errors={"m2": "timed out"})
    assert loaded(answer)["master"] == ["10.0.0.1", "10.0.0.2"]
    assert (answer["retcode"], answer["unknown"]) == (2, {"m2": "timed out"})
    assert "m2 could not be asked (timed out)" in answer["notes"][0]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"type": "list"}, "takes failover or hot"),
        ({"alive": 0}, "takes a whole number"),
        ({"alive": True}, "takes a whole number"),
        ({"failback": "yes"}, "takes True or False"),
        ({"type": "hot", "failback": True}, "is for type failover"),
    ],
)
def test_what_makes_no_sense(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(HaError, match=words):
        config(M1, M2, **wish)


@pytest.mark.parametrize(
    ("masters", "words"),
    [
        (["m1:4505"], "4505 is the publish port"),
        (["m1", "m1:4506"], "named twice"),
        (["m1", "m2:4508"], "different request ports"),
        (["m1", "m1:4508"], "different request ports"),
        ([], "takes a list"),
        ("m1,,m2", "no host"),
        # As the script refuses them; None is what a template leaves of an unknown name.
        (["m1", None], "None: takes a host"),
        ([10.1], "10.1: takes a host"),
        (["m1", "*"], "'\\*': that is no host"),
        (["m1;reboot"], "that is no host"),
        (["-m1"], "that is no host"),
        (["m1\u202e"], "that is no host"),
    ],
)
def test_masters_as_somebody_wrote_them(masters: Any, words: str) -> None:
    with pytest.raises(HaError, match=words):
        drop_in.wanted(masters, finger=FINGER)


def test_two_masters_at_one_address_are_not_for_a_hot_minion() -> None:
    with pytest.raises(HaError, match="send every answer to both"):
        drop_in.wanted(["10.0.0.1", "10.0.0.1:4508"], type="hot", publish_port=None, finger=FINGER)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"jitter": 30}, "needs watchdog"),
        ({"jitter": 0.5, "watchdog": True}, "takes a whole number from 0 to 3600"),
        ({"publish_port": None}, "none is for type hot"),
        ({"publish_port": 0}, "takes a whole number from 1 to 65535"),
    ],
)
def test_what_makes_no_sense_in_the_state(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(HaError, match=words):
        drop_in.wanted(["m1", "m2"], **wish)


def test_one_key_and_a_signature_are_not_both_insisted_on() -> None:
    with pytest.raises(HaError, match="finger and signed exclude each other"):
        drop_in.wanted(["m1", "m2"], finger=FINGER, signed=True)


@pytest.mark.parametrize(
    "raw",
    [
        {"address": "a b"},
        {"address": "\x1b[2J"},
        {"finger": "3a"},
        {"request_port": 0},
        {"transport": "x\n"},
        {"workers": None},
    ],
)
def test_a_peer_that_talks_nonsense(raw: dict[str, Any]) -> None:
    good = M2.to_wire()
    assert endpoints.from_wire("m2", good) == M2
    with pytest.raises(HaError, match="makes no sense"):
        endpoints.from_wire("m2", {**good, **raw})
    with pytest.raises(HaError, match="makes no sense"):
        endpoints.from_wire("m2", {})


def test_what_the_page_has_people_write_by_hand_is_the_same() -> None:
    page = (ROOT / "docs" / "minions.md").read_text(encoding="utf-8")
    (block,) = [text for text in page.split("```") if text.startswith("yaml\n") and MASTER in text]
    by_hand = yaml.safe_load(block.removeprefix("yaml\n"))
    assert by_hand == drop_in.options(drop_in.wanted(["10.0.0.1", "10.0.0.2"], watchdog=True))


MASTER = "\nmaster_type: failover\n"
OVER_TCP = {"transport": "tcp"}


@pytest.mark.parametrize(
    ("second", "wish", "args"),
    [
        ({}, {}, []),
        ({}, {"type": "hot"}, ["--type=hot"]),
        ({}, {"failback": True, "alive": 15}, ["--failback", "--alive-interval=15"]),
        ({}, {"failback": True, "watchdog": True}, ["--failback", "--watchdog"]),
        ({}, {"type": "hot", "watchdog": True}, ["--type=hot", "--watchdog"]),
        ({}, {"watchdog": True, "minions": 10_000}, ["--watchdog", "--jitter=30"]),
        (
            {},
            {"failback": True, "watchdog": True, "minions": 3000},
            ["--failback", "--watchdog", "--jitter=10"],
        ),
        (OVER_TCP, {}, ["--transport=tcp"]),
        (OVER_TCP, {"type": "hot"}, ["--type=hot", "--transport=tcp"]),
        ({"publish_port": 4515}, {"type": "hot"}, ["--type=hot", "--publish-port=none"]),
    ],
)
def test_the_script_writes_the_same_file(
    tmp_path: Path, second: dict[str, Any], wish: dict[str, Any], args: list[str]
) -> None:
    first = {key: value for key, value in second.items() if key == "transport"}
    (tmp_path / "etc").mkdir()
    command = ["sh", str(SCRIPT), f"--root={tmp_path}", f"--finger={FINGER}", *args]
    subprocess.run([*command, "m1=10.0.0.1", "m2=10.0.0.2"], check=True, capture_output=True)
    written = tmp_path / "etc" / "salt" / "minion.d" / drop_in.NAME
    text = config(replace(M1, **first), replace(M2, **second), **wish)["text"]
    assert written.read_text() == text


MOVED = (replace(M1, request_port=4516), replace(M2, request_port=4516))


@pytest.mark.parametrize(
    ("masters", "wish"),
    [
        (MOVED, {}),
        (MOVED, {"type": "hot"}),
        (MOVED, {"failback": True, "watchdog": True}),
        ((M1, replace(M2, publish_port=4515)), {"type": "hot"}),
        ((M1, replace(M2, request_port=4516, publish_port=4515)), {"type": "hot"}),
        ((replace(M1, transport="tcp"), replace(M2, transport="tcp")), {}),
        ((M1, M2), {"watchdog": True, "minions": 10_000}),
    ],
)
def test_the_state_that_manages_it_wants_the_same(
    masters: tuple[MinionEndpoint, ...], wish: dict[str, Any]
) -> None:
    answer = config(*masters, **wish)
    ((name, state),) = yaml.safe_load(answer["sls"])["masters of this minion"].items()
    assert name == "ha.multi_master"
    again = drop_in.wanted(**{key: value for each in state for key, value in each.items()})
    assert drop_in.text(drop_in.options(again)) == answer["text"]


def test_half_of_the_minions_begin_with_each_master() -> None:
    """By the state in the documentation; at each rendering a minion has the same list."""
    page = (ROOT / "docs" / "installing-minions.md").read_text()
    (sls,) = re.findall(r"```jinja\n(.*?)```", page, re.DOTALL)
    sls, opts = sls.replace("3a:9f:…", FINGER), salt.config.DEFAULT_MINION_OPTS.copy()

    def masters(minion: str) -> list[str]:
        rendered = JINJA(
            sls, from_str=True, to_str=True, opts=opts, saltenv="base", grains={"id": minion}
        )
        ((state,),) = (found.values() for found in yaml.safe_load(rendered["data"]).values())
        wish = drop_in.wanted(**{name: value for each in state for name, value in each.items()})
        return [host for host, _ in wish.masters]

    lists = [masters(f"web{number}") for number in range(100)]
    assert {*map(tuple, lists)} == {("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")}
    assert 35 < sum(hosts[0] == "10.0.0.1" for hosts in lists) < 65
    assert masters("web7") == lists[7]
