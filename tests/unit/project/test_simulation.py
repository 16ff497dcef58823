"""The simulation converges, repeats itself, and stands on the product's own code."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from proving.simulation import plot, report, scenarios
from proving.simulation.group import Settings
from proving.simulation.keys import Keys
from proving.simulation.network import Conditions
from proving.simulation.replica import MemoryReplica, Pool
from proving.simulation.scenarios import Case, Outcome
from saltext_ha.replication import digest, record
from saltext_ha.sync import antientropy, sending
from saltext_ha.sync.codec import from_wire, to_wire
from saltext_ha.sync.link import Link

KEYS, MASTERS = 2_000, 8

SMALL: dict[str, Callable[[Case], Outcome]] = {
    "accept": partial(scenarios.accept, samples=20),
    "burst": partial(scenarios.burst, size=100),
    "partition": partial(scenarios.partition, seconds=60, changes=60, contested=10),
    "away": partial(scenarios.away, changes=100),
    "churn": partial(scenarios.churn, seconds=60),
    "cold": scenarios.cold,
}


@pytest.fixture(scope="module")
def case() -> Case:
    keys = Keys(1, KEYS, MASTERS)
    return Case(keys, Settings(MASTERS), Conditions(), 1)


@pytest.mark.parametrize("name", SMALL)
def test_all_masters_converge(case: Case, name: str) -> None:
    found = SMALL[name](case).data()
    assert found["all_worst_s"] < 60  # type: ignore[operator]
    assert found["messages"] >= 1  # type: ignore[operator]


def test_a_seed_repeats_itself(case: Case) -> None:
    one, again = (SMALL["churn"](case) for _ in range(2))
    assert one == again
    assert SMALL["churn"](dataclasses.replace(case, seed=2)) != one


def test_every_scenario_is_tested() -> None:
    assert SMALL.keys() == scenarios.SCENARIOS.keys()


def test_much_loss_is_repaired_by_anti_entropy(case: Case) -> None:
    lossy = dataclasses.replace(case, conditions=Conditions(loss=0.1))
    calm, torn = (scenarios.accept(c, samples=20) for c in (case, lossy))
    assert max(calm.last) < 1 < max(torn.last)


# -- it is the product's code: break that, and the simulation notices


def test_without_pushing_news_wait_for_anti_entropy(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(self: Link, records: Any) -> None:
        pass

    pushed = SMALL["accept"](case).data()["median_s"]
    monkeypatch.setattr(Link, "push", mute)
    assert SMALL["accept"](case).data()["median_s"] > 2 * pushed  # type: ignore[operator]


def test_without_anti_entropy_a_partition_does_not_heal(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(ours: bytes, theirs: bytes) -> list[int]:
        return []

    monkeypatch.setattr(scenarios, "LIMIT", 120.0)
    monkeypatch.setattr(antientropy, "differing", nothing)
    monkeypatch.setattr(sending, "MAX_DOWN", 0)  # nothing is kept for those that cannot be reached
    with pytest.raises(AssertionError, match="still behind"):
        SMALL["partition"](case)


def test_a_merge_that_forgets_concurrent_writes_is_seen(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(context: record.Context, dot: record.Dot) -> bool:
        return True

    monkeypatch.setattr(scenarios, "LIMIT", 120.0)
    monkeypatch.setattr(record, "covers", always)
    with pytest.raises(AssertionError):
        SMALL["partition"](case)


def test_a_revocation_that_does_not_win_is_seen(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient(states: Any) -> str | None:
        return next((s for s in (record.ACCEPTED, record.REJECTED) if s in set(states)), None)

    monkeypatch.setattr(record, "visible", lenient)
    with pytest.raises(AssertionError, match="not rejected everywhere"):
        SMALL["partition"](case)


def test_records_that_cannot_be_read_are_seen(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(entry: record.Record) -> list[Any]:
        return to_wire(entry)[:3]

    monkeypatch.setattr(sending, "to_wire", shorter)
    with pytest.raises(AssertionError, match="refuses what it was sent"):
        SMALL["burst"](case)


# -- its parts


def test_keys_are_what_masters_take_from_each_other() -> None:
    keys = Keys(3, 50, 4)
    for index in range(50):
        entry = keys.record(index)
        assert from_wire(to_wire(entry)) == entry
        assert keys.digest(index) == record.record_digest(entry)
        assert keys.fingerprint(index) == entry.fingerprint
        assert keys.index(entry.minion_id) == index
        assert index in keys.in_bucket(digest.bucket_of(entry.minion_id))
    assert keys.index("web99999999.prod.example.com") is None
    assert keys.index("db1") is None


@pytest.mark.parametrize("empty", [False, True])
def test_a_replica_shows_what_was_put_into_it(empty: bool) -> None:
    keys = Keys(3, 50, 4)
    replica = MemoryReplica(keys, Pool(), empty)
    changed = keys.record(7)._replace(public_key="another", fingerprint=b"k" * 32)
    entries = [changed, *(keys.record(i) for i in range(0, 50, 3))]
    for entry in (*entries, *entries):
        replica.put(entry)
    everything = {e.minion_id: e for e in entries if e is not changed}
    if not empty:
        everything = {keys.minion_id(i): keys.record(i) for i in range(50)}
    expected = [*everything.values(), changed]
    found = [r for bucket in range(digest.BUCKETS) for r in replica.in_bucket(bucket)]
    assert sorted(found, key=_pair) == sorted(expected, key=_pair)
    digests = {(e.minion_id, e.fingerprint): record.record_digest(e) for e in expected}
    seen: dict[tuple[str, bytes], bytes] = {}
    for bucket in range(digest.BUCKETS):
        seen.update(replica.digests_in(bucket))
    assert seen == digests
    tree = digest.DigestTree((digest.bucket_of(pair[0]), d) for pair, d in digests.items())
    assert replica.records.root == tree.root


def test_what_is_drawn_is_an_svg_with_every_number(case: Case) -> None:
    outcomes = [SMALL[name](case).data() for name in ("accept", "burst")]
    growth = [
        scenarios.steady(Case(Keys(1, 100, masters), Settings(masters), Conditions(), 1)).data()
        for masters in (2, 4)
    ]
    data = {
        "about": {"keys": KEYS, "masters": MASTERS},
        "scenarios": outcomes,
        "steady": growth,
    }
    words = [element.text for element in ET.fromstring(plot.draw(data)).iter() if element.text]
    for row in outcomes:
        assert report.size(row["bytes"]) in words  # type: ignore[arg-type]
        assert report.seconds(row["all_worst_s"]) in words  # type: ignore[arg-type]
    assert len(report.table(data).splitlines()) == 7
    # A full mesh: with n masters each of them asks n - 1 others.
    assert growth[1]["requests_made_per_s"] > 2.5 * growth[0]["requests_made_per_s"]


def _pair(entry: record.Record) -> Sequence[Any]:
    return entry.minion_id, entry.fingerprint
