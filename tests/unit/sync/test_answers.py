"""What peers answer is read as if a stranger had sent it: nonsense is refused, and named so."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from saltext_ha.commands.consistency import consistency_check
from saltext_ha.commands.keys import key_pages, key_section
from saltext_ha.commands.masters import endpoints
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.lint import wire as lint
from saltext_ha.minions import job_answers
from saltext_ha.replication.placement import Stored
from saltext_ha.sync import group

INF = float("inf")
KEY = bytes(32)
ENDPOINT = {
    "address": "10.0.0.2",
    "request_port": 4506,
    "publish_port": 4505,
    "finger": "",
    "sign_finger": "",
    "transport": "zeromq",
    "workers": 5,
    "open_files": 1024,
    "max_minions": 0,
}
LINT = {
    "version": [3008, 3],
    "options": {"ha": {"masters": []}},
    "places": {"ha": ["/etc/salt/master", 1]},
    "fingerprint": None,
    "marks": {},
    "findings": [],
    "unknown": {},
}


def page(counter: Any = 1) -> bytes:
    row = ["web1", KEY, [["0" * 16, 1, "accepted"]], [["0" * 16, counter]], "accepted"]
    packed: bytes = msgpack.packb({"rows": [row], "next": None})
    return packed


def test_sense_is_taken() -> None:
    assert endpoints.from_wire("m2", ENDPOINT).request_port == 4506
    assert lint.from_wire("m2", LINT)[0].version == (3008, 3)
    assert key_pages.collect({}, page()) == b""
    rows = [["web1", "accepted", KEY, [KEY]], ["web2", None, None, []]]
    shown = group.table(rows)
    assert shown == {"web1": Stored("accepted", KEY, frozenset({KEY})), "web2": Stored()}
    placed = {"placed": [["web1", "accepted", KEY]]}
    assert key_section._placed(placed) == {("web1", "accepted", KEY)}


@pytest.mark.parametrize("key", ["request_port", "workers", "max_minions"])
def test_a_number_without_end_is_no_endpoint(key: str) -> None:
    with pytest.raises(InvalidRecord):
        endpoints.from_wire("m2", ENDPOINT | {key: INF})


@pytest.mark.parametrize("bent", [{"version": [INF]}, {"places": {"ha": ["/etc", INF]}}])
def test_a_number_without_end_is_nothing_to_lint(bent: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        lint.from_wire("m2", LINT | bent)


def test_a_number_without_end_is_no_page() -> None:
    with pytest.raises(InvalidRecord):
        key_pages.collect({}, page(counter=INF))


@pytest.mark.parametrize("bucket", [2**63, 2**64 - 1, -(2**63), -2])
def test_no_page_ends_at_a_bucket_that_cannot_be(bucket: int) -> None:
    with pytest.raises(InvalidRecord):
        key_pages._cursor(msgpack.packb([bucket, "web1", KEY]))


@pytest.mark.parametrize(
    "raw",
    [
        None,
        7,
        1.5,
        [7],
        [["web1", "accepted", KEY]],
        [["web1", "accepted", KEY, 7]],
        [["web1", "accepted", KEY, ["denied"]]],
        [["web1", "accepted", "key", []]],
        [["web1", "root", KEY, []]],
        [["web1", ["accepted"], KEY, []]],
        [[b"web1", "accepted", KEY, []]],
        [[["web1"], "accepted", KEY, []]],
    ],
)
def test_what_is_no_table_of_keys(raw: Any) -> None:
    with pytest.raises(InvalidRecord):
        group.table(raw)
    errors = {"m3": "hung up"}
    answers = {"m2": {"keys": raw}, "m4": {"keys": []}}
    tables = group.read_each(answers, errors, lambda _, answer: group.table(answer["keys"]))
    assert tables == {"m4": {}}
    assert sorted(errors) == ["m2", "m3"]


@pytest.mark.parametrize(
    "raw",
    [1.5, None, [7], [["web1", "accepted"]], [["web1", ["accepted"], KEY]], [["web1", 7, KEY]]],
)
def test_what_is_nothing_placed(raw: Any) -> None:
    with pytest.raises(InvalidRecord):
        key_section._placed({"placed": raw})


def test_counts_without_end_are_an_answer_that_is_none() -> None:
    class Contact:
        async def call(self, *args: Any) -> dict[str, Any]:
            return {"digests": {}, "keys": {"accepted": INF}}

    asked = consistency_check._ask(Contact(), bytes(16), ["keys"])  # type: ignore[arg-type]
    with pytest.raises(HaError, match="is malformed"):
        asyncio.run(consistency_check._sensible(asked))


def test_what_is_nothing_that_came_back() -> None:
    for raw in ({"targeted": 7}, {"targeted": [], "returned": [["web1", "x", 1]]}):
        assert job_answers.read_answers(raw).error == "answered nonsense"
