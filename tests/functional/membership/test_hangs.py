"""The state folder of a master hangs while its group changes: only who waits for it is held up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.transport import identity
from saltext_ha.transport.trust import Trust
from tests import runner
from tests.processes import SOON, Group, Master

NO_ANSWER = "the file system does not respond"
REFUSED = "the file system of that master does not respond"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Two masters, which run."""
    group = Group(tmp_path, "m1", "m2")
    try:
        group.start()
        group.comes_to({})
        yield group
    finally:
        group.kill()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Master]:
    """A master that does not run, and belongs to no group."""
    alone = Group(tmp_path, "m3")
    try:
        yield alone.masters[0]
    finally:
        alone.kill()


def while_it_hangs(master: Master, point: str, act: Callable[[], Any]) -> Future[Any]:
    """
    What becomes of *act* while whoever passes *point* in the engine of *master* waits. Meanwhile
    the engine answers others.
    """
    with ThreadPoolExecutor(1) as pool:
        with master.failing(f"WAIT {point}"):
            acting = pool.submit(act)
            begun = time.monotonic()
            while not acting.done():
                assert time.monotonic() - begun < 30, "it must be told in time"
                assert master.ask("status"), "the whole engine is held up"
        return acting


def told(master: Master, command: str) -> Callable[[], str]:
    """Why the engine did not do it."""

    def ask() -> str:
        with pytest.raises(HaError) as refused:
            master.engine.control(command)
        return str(refused.value)

    return ask


def trusts(master: Master) -> set[str]:
    return set(Trust(master.place.config.state_dir).peers())


def shown(master: Master) -> str:
    """The fingerprint of the certificate that its engine shows."""
    return str(master.ask("peers").get("self", {}).get("fingerprint"))


def certificate(master: Master) -> str:
    """The fingerprint of the certificate in its state folder."""
    return identity.load_or_create(master.place.config.state_dir, master.name).fingerprint


def in_the_end(master: Master, command: str) -> dict[str, Any]:
    """The answer to *command*, which is refused until what hung has ended."""
    answers: list[dict[str, Any]] = []

    def answered() -> bool:
        if answer := master.ask(command):
            answers.append(answer)
        return bool(answers)

    wait_for(answered, SOON, f"ha.{command} on {master.name} is done")
    return answers[0]


def token_of(master: Master, folder: Path) -> Path:
    """A file with a token of *master*, as an operator copies it."""
    made = runner.run(master.place, "invite")
    path = folder / "token"
    path.touch(mode=0o600)
    path.write_text(Path(made["token_file"]).read_text())
    return path


def let_join(master: Master, token: Path, test: bool = False) -> dict[str, Any]:
    return runner.run(master.place, "join", token_file=str(token), test=test)


@pytest.mark.parametrize("point", ["invite.consume", "file.rename"])
def test_a_master_that_asks_to_join(
    group: Group, stranger: Master, tmp_path: Path, point: str
) -> None:
    m1, m2 = group.masters
    token = token_of(m1, tmp_path)

    def strangers() -> list[str]:
        return [let_join(stranger, token).get("error", "") for _ in range(8)]

    refused = while_it_hangs(m1, point, strangers).result()
    assert all(REFUSED in why for why in refused), refused
    assert trusts(stranger) == set()

    def answered() -> bool:
        return "error" not in let_join(stranger, token, test=True)

    wait_for(answered, SOON, "what hung has ended")
    if point == "invite.consume":
        assert trusts(m1) == {"m2"}, "who was refused is not let in later"
    joined = let_join(stranger, token)
    assert joined["retcode"] == 0, joined
    stranger.engine.start()
    for one in (m1, m2, stranger):
        others = {"m1", "m2", "m3"} - {one.name}
        wait_for(lambda m=one, n=others: trusts(m) == n, SOON, f"{one.name} trusts the others")
    group.comes_to({}, among=(m1, m2, stranger))


@pytest.mark.parametrize(
    ("point", "known"),
    [
        ("file.rename", "nothing more was done"),
        ("identity.drop", "the masters that were reached do not trust this one any more"),
    ],
    ids=["before", "after"],
)
def test_leave(group: Group, tmp_path: Path, point: str, known: str) -> None:
    m1, m2 = group.masters
    why = while_it_hangs(m2, point, told(m2, "leave")).result()
    for words in (NO_ANSWER, known, "ha.leave again"):
        assert words in why
    wait_for(
        lambda: trusts(m1) == ({"m2"} if point == "file.rename" else set()),
        SOON,
        "m1 knows what was told",
    )
    left = in_the_end(m2, "leave")
    assert left["retcode"] == 0, left
    assert (trusts(m1), trusts(m2)) == (set(), set())
    assert shown(m2) == certificate(m2)
    assert let_join(m2, token_of(m1, tmp_path))["retcode"] == 0
    group.comes_to({})


def test_renew(group: Group) -> None:
    m1, m2 = group.masters
    before = certificate(m2)
    why = while_it_hangs(m2, "file.rename", told(m2, "renew")).result()
    assert NO_ANSWER in why
    assert "may still be done when it responds" in why
    wait_for(lambda: shown(m2) != before, SOON, "it is done, as it was said")
    assert shown(m2) == certificate(m2)
    group.comes_to({})
    assert in_the_end(m2, "renew")["retcode"] == 0
    assert shown(m2) == certificate(m2)
    wait_for(
        lambda: Trust(m1.place.config.state_dir).peers()["m2"].fingerprint == shown(m2),
        SOON,
        "m1 has taken it over",
    )
    group.comes_to({})


def test_remove_peer(group: Group) -> None:
    m1, _ = group.masters

    def remove() -> str:
        with pytest.raises(HaError) as refused:
            m1.engine.control("remove_peer", {"name": "m2"})
        return str(refused.value)

    assert NO_ANSWER in while_it_hangs(m1, "file.rename", remove).result()
    wait_for(lambda: m1.ask("peers")["peers"] == [], SOON, "it is done, as it was said")
    assert trusts(m1) == set()
    assert m1.is_fine()
