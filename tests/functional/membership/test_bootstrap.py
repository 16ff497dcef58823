"""Masters that were never started become one group by themselves, in whatever order they start."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Place, free_port
from lab.wait import wait_for
from saltext_ha.commands.membership import join
from saltext_ha.common import master_key
from saltext_ha.membership.join import Applicant
from saltext_ha.transport import control_client
from saltext_ha.transport.identity import load_or_create
from saltext_ha.transport.peer import make_peer
from tests.bootstrapper import Starter

SECRET = "0123456789abcdef0123456789abcdef"
NAMES = ("m1", "m2", "m3")
SOON = 120.0


@pytest.fixture(scope="module")
def hosts() -> Iterator[Iterator[list[Starter]]]:
    """Three processes at a time, which are three hosts; the last three may still be ending."""
    processes = [[Starter() for _ in NAMES] for _ in range(2)]
    yield itertools.cycle(processes)
    for process in itertools.chain(*processes):
        process.close()


@pytest.fixture
def starters(hosts: Iterator[list[Starter]]) -> list[Starter]:
    """Three hosts without masters."""
    return next(hosts)


def places(root: Path, reverse: Sequence[str] = (), **ha: Any) -> list[Place]:
    """Three masters with one configuration; those in *reverse* have the list backwards."""
    secret = root / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    ports = [free_port() for _ in NAMES]
    masters = [f"https://127.0.0.1:{port}" for port in ports]
    found = []
    for name, port in zip(NAMES, ports, strict=True):
        settings = {
            "masters": masters[::-1] if name in reverse else masters,
            "secret_file": str(secret),
            "share_master_key": True,
            "sync_interval": 0.2,
            **ha,
        }
        found.append(Place(root, name, settings, {"keysize": 2048}, port))
    return found


def ask(place: Place, command: str, **payload: Any) -> dict[str, Any]:
    return control_client.request(place.config.control_socket, command, payload)


def is_one_group(masters: Sequence[Place]) -> bool:
    for place in masters:
        peers = {peer["name"]: peer["state"] for peer in ask(place, "peers")["peers"]}
        if peers != {other.name: "up" for other in masters if other is not place}:
            return False
    return True


def keys_of(masters: Sequence[Place]) -> set[str]:
    return {str(master_key.describe(place.opts)["fingerprint"]) for place in masters}


def note_of(place: Place) -> str:
    return str(ask(place, "status")["masters"][0]["note"])


def start(starters: Sequence[Starter], masters: Sequence[Place]) -> None:
    """All at once; returns when their engines listen."""
    for starter, place in zip(starters, masters, strict=True):
        starter.launch(place)
    for starter in starters:
        starter.running()


def stop(starters: Sequence[Starter]) -> None:
    for starter in starters:
        starter.stop()


@contextlib.contextmanager
def one_group(starters: Sequence[Starter], masters: Sequence[Place]) -> Iterator[None]:
    """*masters* run on *starters*, and have joined each other."""
    start(starters, masters)
    try:
        wait_for(lambda: is_one_group(masters), SOON, "all are one group")
        yield
    finally:
        stop(starters)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_ends_as_one_group_with_one_master_key(
    tmp_path: Path, starters: list[Starter], seed: int
) -> None:
    choose = random.Random(seed)
    masters = places(tmp_path)
    # Some at the very same time, some far apart.
    for starter, place in zip(starters, masters, strict=True):
        starter.launch(place, delay=choose.choice((0.0, choose.uniform(0, 0.8))))
    answers = [starter.running() for starter in starters]
    try:
        wait_for(lambda: is_one_group(masters), SOON, "all are one group")
        assert len(keys_of(masters)) == 1
        assert [answer["retcode"] for answer in answers] == [0, 0, 0]
        assert [answer["kind"] for answer in answers].count("notice") == 1
        # No salt-master would start these engines.
        assert all("has no '- ha: {}' in engines:" in str(answer["notes"]) for answer in answers)
        status = ask(masters[0], "status")
        assert status["notes"] == []
    finally:
        stop(starters)


@pytest.mark.parametrize("seed", range(4))
def test_engines_that_run_already_find_each_other(
    tmp_path: Path, starters: list[Starter], seed: int
) -> None:
    """No ha.join at all: one group, and what it lacks for hot-hot minions is said."""
    choose = random.Random(seed)
    masters = places(tmp_path)
    for starter, place in zip(starters, masters, strict=True):
        starter.launch(place, delay=choose.choice((0.0, choose.uniform(0, 0.5))), join=False)
    for starter in starters:
        starter.running()
    try:
        wait_for(lambda: is_one_group(masters), SOON, "all are one group")
        assert len(keys_of(masters)) == 3
        wait_for(lambda: note_of(masters[0]) == "", SOON, "nobody is missing any more")
        status = ask(masters[0], "status")
        assert "different master keys" in str(status["notes"])
        assert "salt-run ha.join force=True" in str(status["notes"])
        wait_for(
            lambda: ask(masters[0], "status")["state"] == "degraded", SOON, "the group is degraded"
        )
        # The command that it names is the one that mends it.
        refused = join.join(masters[1].opts, masters[1].config, "", 10)
        assert refused["kind"] == "notice"
        for place in masters[1:]:
            done = join.join(place.opts, place.config, "", 10, force=True)
            assert (done["kind"], done["retcode"]) == ("join", 0), done
        assert len(keys_of(masters)) == 1
        # They use the new key from a restart on.
        assert "restart salt-master" in note_of(masters[1])
    finally:
        stop(starters)


def test_two_that_both_found_a_group_end_as_one(tmp_path: Path, starters: list[Starter]) -> None:
    """Each believes to be the first: its list has it there."""
    masters = places(tmp_path, reverse=["m3"])
    with one_group(starters, masters):
        assert len(keys_of(masters)) == 2
        assert "different master keys" in str(ask(masters[1], "status")["notes"])


def test_a_restart_changes_nothing(tmp_path: Path, starters: list[Starter]) -> None:
    masters = places(tmp_path)
    start(starters, masters)
    wait_for(lambda: is_one_group(masters), SOON, "all are one group")
    (key,) = keys_of(masters)
    stop(starters)
    # Alone, and not first; then the first, with nobody else there.
    for starter, place in zip(starters[::-1], masters[::-1], strict=True):
        starter.launch(place)
        answer = starter.running()
        assert "already in group" in answer["notes"][0]
    try:
        wait_for(lambda: is_one_group(masters), SOON, "all are one group")
        assert keys_of(masters) == {key}
    finally:
        stop(starters)


def test_who_left_stays_out_until_joined_again(tmp_path: Path, starters: list[Starter]) -> None:
    masters = places(tmp_path)
    m1, _, m3 = masters
    with one_group(starters, masters):
        notes = ask(m3, "leave")["notes"]
        assert m3.config.url in notes[-1]
        stop(starters[2:])
        starters[2].launch(m3)
        assert "left its group" in starters[2].running()["notes"][0]
        # The others still have it in their list, and know the secret.
        wait_for(lambda: "that master left its group" in note_of(m1), SOON, "m1 asked m3")
        assert "left its group" in note_of(m3)
        assert ask(m3, "peers")["peers"] == []
        assert [peer["name"] for peer in ask(m1, "peers")["peers"]] == ["m2"]
        answer = join.join(m3.opts, m3.config, "", 10, force=True)
        assert answer["kind"] == "join"
        wait_for(lambda: is_one_group(masters), SOON, "all are one group again")
        wait_for(lambda: note_of(m1) == "", SOON, "nobody is missing any more")


def test_who_was_removed_is_not_asked_back(tmp_path: Path, starters: list[Starter]) -> None:
    masters = places(tmp_path)
    m1, m2, m3 = masters
    with one_group(starters, masters):
        notes = ask(m1, "remove_peer", name="m3")["notes"]
        assert "a new secret" in " ".join(notes)
        for place in (m1, m2):
            wait_for(
                lambda place=place: "m3 was removed from this group" in note_of(place),
                SOON,
                f"{place.name} met m3",
            )
            assert "m3" not in [peer["name"] for peer in ask(place, "peers")["peers"]]
        # m3 itself trusts them still, and gets nowhere by asking.
        answer = join.join(m3.opts, m3.config, "", 0)
        assert answer["kind"] == "notice"
        with pytest.raises(join.HaError, match="was removed from this group"):
            join.join(m3.opts, m3.config, "", 0, force=True)


def test_where_ha_peers_says_that_another_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "https://10.9.9.9:4530"
    m1, m2, _ = places(tmp_path, peers=[{"name": "m2", "url": elsewhere}])

    async def find_group(own: Applicant, *_: Any) -> None:
        peer = make_peer("m2", m2.config.url, load_or_create(tmp_path / "two", "m2").certificate)
        raise join.HaError(f"m2 is called at {own.trust.url_of(peer)}")

    monkeypatch.setattr(join, "find_group", find_group)
    with pytest.raises(join.HaError, match=elsewhere):
        join.join(m1.opts, m1.config, "", 0)


def test_a_founder_whose_configuration_starts_no_engine_is_told(tmp_path: Path) -> None:
    m1, *_ = places(tmp_path)
    founds, *rest = join.join(m1.opts, m1.config, "", 30)["notes"]
    assert "founds group" in founds
    assert "has no '- ha: {}' in engines:" in rest[-1]


def test_what_is_not_configured_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    with pytest.raises(join.HaError, match=r"needs  ha: masters .* secret.* token"):
        join.join(place.opts, place.config, "", 0)


def test_masters_without_a_secret_are_noted(tmp_path: Path, starters: list[Starter]) -> None:
    masters = [f"https://127.0.0.1:{free_port()}"]
    place = Place(tmp_path, "m1", {"masters": masters}, {"keysize": 2048})
    starters[0].launch(place, join=False)
    starters[0].running()
    try:
        wait_for(lambda: "there is no secret" in note_of(place), SOON, "the note")
    finally:
        stop(starters[:1])
