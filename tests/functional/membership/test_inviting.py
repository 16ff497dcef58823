"""``ha.invite`` and ``ha.withdraw`` as runners: what they tell, and what they leave on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Place
from saltext_ha.membership import admission
from saltext_ha.membership.invites import Invites, name_of
from saltext_ha.membership.token import decode
from tests import runner
from tests.loop import in_a_loop, until
from tests.peers import Master

pytestmark = pytest.mark.core


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "m1")


def invited(place: Place) -> dict[str, Any]:
    return runner.run(place, "invite")


def laid_down(place: Place) -> set[str]:
    return {path.stem for path in (place.config.state_dir / "invites").glob("*.token")}


def test_what_a_runner_says_of_an_invitation_lets_nobody_in(place: Place) -> None:
    answer = invited(place)
    token = Path(answer["token_file"]).read_text().strip()
    ticket = decode(token)
    assert answer["invitation"] == name_of(ticket.invite)
    for secret in (token, ticket.invite, ticket.secret.hex()):
        assert secret not in str(answer)


def test_a_disk_that_is_full_or_read_only_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = place.config.state_dir / "invites"
    invited(place)
    monkeypatch.setattr(os, "fsync", full)
    answer = invited(place)
    assert answer["retcode"] == 2
    assert re.fullmatch(rf"{folder}/[0-9a-f]+\.json: No space left on device", answer["error"])
    shutil.rmtree(folder)
    folder.write_text("")
    for function in ("invite", "withdraw"):
        answer = runner.run(place, function)
        assert (answer["error"], answer["retcode"]) == (f"{folder}: File exists", 2)


def test_one_is_withdrawn_or_all_are(place: Place) -> None:
    first, second, third = (invited(place)["invitation"] for _ in range(3))
    only_said = runner.run(place, "withdraw", invitation=first, test=True)
    assert only_said["notes"] == [f"invitation {first} would be withdrawn"]
    assert laid_down(place) == {first, second, third}
    done = runner.run(place, "withdraw", invitation=first)
    assert (done["retcode"], laid_down(place)) == (0, {second, third})
    again = runner.run(place, "withdraw", invitation=first)
    assert again["retcode"] == 1
    assert "is open here" in again["notes"][0]
    done = runner.run(place, "withdraw")
    assert len(done["notes"]) == 2
    assert laid_down(place) == set(Invites(place.config.state_dir).open()) == set()
    assert runner.run(place, "withdraw")["notes"] == ["no invitation of this master is open"]


def test_one_that_was_used_is_no_longer_withdrawn(place: Place) -> None:
    answer = invited(place)
    ticket = decode(Path(answer["token_file"]).read_text())
    assert Invites(place.config.state_dir).consume(ticket.invite, "somebody")
    late = runner.run(place, "withdraw", invitation=answer["invitation"])
    assert late["retcode"] == 1
    assert "was used already" in late["notes"][0]
    assert "ha.remove_peer" in late["notes"][0]


@in_a_loop
async def test_the_engine_removes_a_token_that_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PURGE", 0.02)
    m1 = Master(tmp_path, "m1")
    invites = Invites(m1.state_dir)
    path = invites.lay_down(name_of(invites.create(b"k" * 32, "prod", 1, False).id), "ha1.x")
    tidying = asyncio.ensure_future(m1.admission(m1.membership).tidy())
    await until(lambda: not path.exists(), "it is removed")
    tidying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tidying


@pytest.mark.parametrize(
    ("given", "seconds"), [(90, 90), ("90s", 90), ("30m", 1800), ("1h", 3600), ("1d", 86400)]
)
def test_a_lifetime_is_a_span_as_everywhere(place: Place, given: Any, seconds: int) -> None:
    assert runner.run(place, "invite", expires=given)["expires_in"] == seconds


@pytest.mark.parametrize("given", [0, True, None, "2d", "1.5s", "soon", -1])
def test_a_lifetime_that_makes_no_sense_is_refused(place: Place, given: Any) -> None:
    answer = runner.run(place, "invite", expires=given)
    assert answer["retcode"] == 2
    assert "whole seconds from 1 to 86400, or a span" in answer["error"]
