"""The contact to one peer notes whether the peer is up, and says so when that changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from saltext_ha.common.errors import HaError, InvalidRecord, PeerRefused, PeerUnreachable
from saltext_ha.sync.contact import LARGE, MAX_BACKOFF, MAX_REASONS, Contact
from saltext_ha.sync.group import SLOW
from saltext_ha.sync.hello import Greeting
from saltext_ha.sync.messages import BYTES_PER_MESSAGE
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.peer import Peer

INTERVAL = 3.0


class Client:
    """Answers nothing, or fails as it is told."""

    peer = Peer("m2", "https://10.0.0.2:4530", "", "")

    def __init__(self) -> None:
        self.fails: HaError | None = None
        self.waited: list[float | None] = []

    async def call(
        self, method: str, payload: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        self.waited.append(timeout)
        if self.fails:
            raise self.fails
        return {}


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def contact(client: Client, announced: list[str]) -> Contact:
    made = cast(PeerClient, client)
    return Contact(made, lambda tag, data: announced.append(tag), INTERVAL)


def call(contact: Contact) -> None:
    asyncio.run(contact.call("digest", {}))


def fail(contact: Contact, client: Client, why: str = "timed out") -> None:
    client.fails = PeerUnreachable(why)
    with pytest.raises(PeerUnreachable):
        call(contact)
    client.fails = None


def test_a_peer_is_up_after_a_whole_round_not_after_one_answer(
    contact: Contact, announced: list[str]
) -> None:
    call(contact)
    assert (contact.up, contact.tried, contact.seen is None) == (None, False, False)
    contact.works()
    contact.works()
    assert (contact.up, contact.tried, contact.error, announced) == (True, True, "", ["peer/up"])


def test_a_call_without_an_answer_says_that_the_peer_is_down(
    contact: Contact, client: Client, announced: list[str]
) -> None:
    contact.works()
    fail(contact, client)
    fail(contact, client)
    assert (contact.up, contact.error, announced) == (False, "timed out", ["peer/up", "peer/down"])
    client.fails = None
    contact.works()
    assert (contact.up, contact.error, announced[2:]) == (True, "", ["peer/up"])


def test_a_peer_that_refuses_is_up(contact: Contact, client: Client) -> None:
    contact.works()
    client.fails = PeerRefused("not now")
    with pytest.raises(PeerRefused):
        call(contact)
    assert contact.up


def test_nonsense_is_named_with_the_address(contact: Contact) -> None:
    contact.failed(InvalidRecord("digests make no sense"))
    assert contact.error == "10.0.0.2:4530 answers nonsense: digests make no sense"


def test_a_peer_that_is_down_is_tried_less_and_less_often(contact: Contact, client: Client) -> None:
    pauses = []
    for _ in range(6):
        contact.up = None
        fail(contact, client)
        fail(contact, client)  # of the same try
        pauses.append(contact.pause)
    assert pauses == [6.0, 12.0, 24.0, *[MAX_BACKOFF] * 3]
    contact.works()
    assert contact.pause == INTERVAL


def test_each_reason_is_logged_once(
    contact: Contact, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        for number in range(2 * MAX_REASONS):
            fail(contact, client, f"reason {number}")
    assert len(caplog.messages) == MAX_REASONS
    assert caplog.messages[0] == "ha peer down: name=m2 reason=reason 0"


def test_a_peer_that_calls_is_tried_once_if_it_was_down(contact: Contact, client: Client) -> None:
    contact.works()
    assert not contact.called(), "it is up"
    fail(contact, client)
    assert contact.called()
    assert not contact.called(), "within the interval"


def test_a_peer_that_called_lately_is_there_though_it_does_not_answer(
    contact: Contact, client: Client
) -> None:
    fail(contact, client)
    assert contact.ago() is None
    contact.called()
    assert contact.ago() is not None


def test_only_large_questions_wait_longer(contact: Contact, client: Client) -> None:
    async def ask() -> None:
        for asking in (contact, contact.within(SLOW)):
            await asking.call("digest", {})
            await asking.call_large("compare", {})

    asyncio.run(ask())
    assert client.waited == [None, LARGE, None, SLOW]


def test_a_peer_that_is_met_may_take_larger_messages_again(contact: Contact) -> None:
    hurried = contact.within(SLOW)
    assert contact.limit.halve()
    assert hurried.limit.most == BYTES_PER_MESSAGE == 2 * contact.limit.most
    contact.met(Greeting(caller="m1"))
    assert contact.limit.most == BYTES_PER_MESSAGE
    assert contact.greeting == Greeting(caller="m1")


def test_a_greeting_that_is_too_old_or_makes_no_sense_is_refused() -> None:
    told = {"name": "m2", "caller": "m1", "one_denied": False}
    assert Greeting.read(told) == Greeting(False, "m1")
    with pytest.raises(InvalidRecord, match="malformed one_denied"):
        Greeting.read(told | {"one_denied": "yes"})
    del told["caller"]
    with pytest.raises(HaError, match="before 28 November 2026: upgrade it in two steps"):
        Greeting.read(told)


def test_why_a_peer_is_down_is_told_until_it_answers(contact: Contact, client: Client) -> None:
    assert contact.why_down == ""
    fail(contact, client)
    assert contact.why_down == "timed out"
    contact.up = None  # the first round after it has begun, and may take long
    assert contact.why_down == ""
    contact.works()
    assert contact.why_down == ""
