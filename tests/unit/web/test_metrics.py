"""What Prometheus is told of a snapshot and of the engine: every value from where it belongs."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from saltext_ha.common.counters import Counters
from saltext_ha.health import group_state
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.transport import identity, succession
from saltext_ha.web import metrics
from saltext_ha.web.own_metrics import OwnSources
from saltext_ha.web.snapshot import Taken

Samples = dict[tuple[str, ...], float]


def row(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("accepted", "pending", "rejected", "denied", "behind", "held", "bound")
    )
    return {"name": name, "state": state, "seen": None, "health": {}, **nothing, **more}


M1 = row(
    "m1",
    accepted=11,
    pending=12,
    rejected=13,
    denied=14,
    behind=0,
    held=15,
    bound=16,
    mines={"older": 17, "unknown": 18},
    health={"healthy": True, "ready": False},
)
M2 = row("m2", accepted=21, behind=22, held=0, seen=2.5, health={"healthy": False, "ready": False})
M3 = row("m3", "unknown", seen=99.0)
SECTION: dict[str, Any] = {"status": "differ", "count": 3, "unknown": {}}
SAME: dict[str, Any] = {"status": "same", "count": 0, "unknown": {}}


@pytest.fixture
def own(tmp_path: Path) -> Any:
    counters = Counters(rotations=5)
    for seconds in (0.004, 0.02, 0.02, 60.0):
        counters.arrived("m2", seconds)
    counters.exchanged("m2", 100, 50)
    counters.exchanged("m2", 10, 5)
    checks = [
        {"name": "publisher", "ok": True, "seconds": 0.5},
        {"name": "runner", "ok": False, "seconds": 1.5},
        {"name": "salt-api login", "ok": None, "seconds": 9.0},
    ]
    health: Any = SimpleNamespace(told=lambda: {"checks": checks}, draining=True)
    failovers: Any = SimpleNamespace(count=6)
    made = identity.load_or_create(tmp_path, "m1")
    return OwnSources(
        "m1",
        "prod",
        WriteMode(),
        health,
        lambda: made,
        counters,
        failovers,
        lambda: {"no certificate": 7},
    )


def samples(own: Any, **more: Any) -> Samples:
    """(name, label values in the order of their names…, without the group) → value."""
    status = {
        "state": "degraded",
        "tolerates": 3,
        "conflict_count": 4,
        "at": 1700000000.5,
        "masters": [M1, M2, M3],
        "consistency": {
            "status": "differ",
            "stale": "",
            "at": 1700000001.5,
            "unknown": {},
            "counts": {"access": 3},
            "sections": {"access": SECTION, "roots": SAME},
        },
    }
    comparison: Any = status["consistency"]
    comparison |= more
    told = group_state.judge([], comparison, 4, (), 4).reasons
    status["reasons"] = [reason.data() for reason in told]
    body, kind = metrics.render(own, Taken(status, b"", 0.0), "text/plain")
    assert kind.startswith("text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("saltext_ha_"):
                assert labels.pop("group") == "prod", sample
            found[(sample.name, *(labels[name] for name in sorted(labels)))] = sample.value
    return found


def of(found: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Label values → value, of one metric."""
    return {key[1:]: value for key, value in found.items() if key[0] == f"saltext_ha_{name}"}


def test_the_group(own: Any) -> None:
    found = samples(own)
    assert of(found, "state") == {("ok",): 0, ("degraded",): 1, ("unknown",): 0}
    assert of(found, "tolerates") == {(): 3}
    assert of(found, "conflicts") == {(): 4}
    assert of(found, "status_timestamp_seconds") == {(): 1700000000.5}


def test_every_master_and_nothing_of_one_that_is_unknown(own: Any) -> None:
    found = samples(own)
    assert of(found, "up") == {("m1",): 1, ("m2",): 1, ("m3",): 0}
    assert of(found, "healthy") == {("m1",): 1, ("m2",): 0}
    assert of(found, "ready") == {("m1",): 0, ("m2",): 0}
    assert of(found, "keys") == {
        ("m1", "accepted"): 11,
        ("m1", "pending"): 12,
        ("m1", "rejected"): 13,
        ("m1", "denied"): 14,
        ("m2", "accepted"): 21,
    }
    assert of(found, "behind_keys") == {("m1",): 0, ("m2",): 22}
    assert of(found, "held_keys") == {("m1",): 15, ("m2",): 0}
    assert of(found, "bound_minions") == {("m1",): 16}
    assert of(found, "arrived_mines") == {("m1", "older"): 17, ("m1", "unknown"): 18}
    assert of(found, "seen_seconds") == {("m2",): 2.5, ("m3",): 99}


def test_drift(own: Any) -> None:
    found = samples(own)
    assert of(found, "drift") == {("access",): 3, ("roots",): 0}
    assert of(found, "consistency_stale") == {(): 0}
    assert of(found, "consistency_timestamp_seconds") == {(): 1700000001.5}
    assert of(found, "consistency_complete") == {(): 1}


def test_drift_that_is_not_known(own: Any) -> None:
    unknown = {"access": SECTION | {"status": "unknown"}}
    found = samples(own, status="unknown", stale="more than a day ago", sections=unknown)
    assert of(found, "drift") == {}
    assert of(found, "consistency_stale") == {(): 1}
    assert of(found, "consistency_complete") == {(): 0}
    # Nor is it complete where one master could not be asked.
    found = samples(own, unknown={"m3": "refused the connection"})
    assert of(found, "consistency_complete") == {(): 0}
    # Nor where one could be asked, and cannot tell a part.
    part = SECTION | {"unknown": {"m3": "not reported"}}
    found = samples(own, sections={"access": part})
    assert of(found, "drift") == {("access",): 3}
    assert of(found, "consistency_complete") == {(): 0}
    never = samples(own, status="unknown", at=None, sections={})
    assert of(never, "consistency_timestamp_seconds") == of(never, "consistency_complete") == {}


def test_the_engine_itself(own: Any) -> None:
    found = samples(own)
    assert of(found, "check_ok") == {("publisher",): 1, ("runner",): 0}
    assert of(found, "check_seconds") == {("publisher",): 0.5, ("runner",): 1.5}
    assert of(found, "draining") == {(): 1}
    own.health.draining = False
    assert of(samples(own), "draining") == {(): 0}
    (ends,) = of(found, "certificate_expiry_timestamp_seconds").values()
    assert ends == succession.expiry(own.identity().certificate).timestamp()
    assert ends > time.time()
    ((name, one),) = ((key, value) for key, value in found.items() if key[0] == "saltext_ha_info")
    assert {"m1", "enforce"} < set(name)
    assert one == 1


def test_what_was_counted(own: Any) -> None:
    found = samples(own)
    assert of(found, "aes_rotations_total") == {(): 5}
    assert of(found, "failovers_total") == {(): 6}
    assert of(found, "refused_total") == {("no certificate",): 7}
    assert of(found, "antientropy_bytes_total") == {("sent", "m2"): 110, ("received", "m2"): 55}
    buckets = of(found, "propagation_seconds_bucket")
    assert buckets["0.005", "m2"] == 1
    assert buckets["0.01", "m2"] == 1
    assert buckets["0.025", "m2"] == buckets["30.0", "m2"] == 3
    assert buckets["+Inf", "m2"] == 4
    assert of(found, "propagation_seconds_count") == {("m2",): 4}
    assert of(found, "propagation_seconds_sum") == {("m2",): pytest.approx(60.044)}


def test_the_format_that_was_asked_for(own: Any) -> None:
    status: dict[str, Any] = {
        "state": "ok",
        "tolerates": 1,
        "conflict_count": 0,
        "at": 1.0,
        "masters": [],
        "consistency": {"status": "same", "stale": "", "at": 1.0, "unknown": {}, "sections": {}},
        "reasons": [],
    }
    accept = "application/openmetrics-text; version=1.0.0"
    body, kind = metrics.render(own, Taken(status, b"", 0.0), accept)
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    # What asks for no format that there is gets one that all understand.
    for nonsense in ("application/openmetrics-text; version=abc", ";q=,", "\udcff"):
        body, kind = metrics.render(own, Taken(status, b"", 0.0), nonsense)
        assert kind.startswith("text/plain")
        assert list(text_string_to_metric_families(body.decode()))
