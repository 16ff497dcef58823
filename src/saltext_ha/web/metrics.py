"""
The metrics for Prometheus; imported only if ``prometheus_client`` is installed.

docs/status-page.md lists names and meanings. Unknown values are left out, not guessed: alerts check
for that with ``absent``, or by ``saltext_ha_up``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.exposition import choose_encoder

from saltext_ha.common import version
from saltext_ha.health.group_state import COMPARISON, DEGRADED, OK, UNKNOWN
from saltext_ha.replication.record import SHOWN
from saltext_ha.transport import succession
from saltext_ha.web.own_metrics import OwnSources
from saltext_ha.web.snapshot import Taken

STATES = (OK, DEGRADED, UNKNOWN)

Row = Mapping[str, Any]
"""What the status says of one master."""


def render(own: OwnSources, taken: Taken, accept: str) -> tuple[bytes, str]:
    """The metrics, and their content type, in the format that *accept* asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(own, taken))
    ProcessCollector(registry=registry)
    try:
        encoder, kind = choose_encoder(accept)
    except Exception:  # it stumbles over a version that is none
        encoder, kind = choose_encoder("")
    return encoder(registry), kind


class _Collector:
    def __init__(self, own: OwnSources, taken: Taken) -> None:
        self._own = own
        self._status = taken.data

    def collect(self) -> Iterator[Metric]:
        """All metrics, as Prometheus' client takes them."""
        for metrics in (self._group, self._masters, self._this_master, self._counted):
            for metric in metrics():
                # In one Prometheus there may be other groups, with masters of the same names.
                for sample in metric.samples:
                    sample.labels["group"] = self._own.group
                yield metric

    def _group(self) -> Iterator[Metric]:
        status = self._status
        yield StateSetMetricFamily(
            "saltext_ha_state",
            "The group as this master sees it.",
            {state: state == status["state"] for state in STATES},
        )
        yield _gauge("tolerates", "How many masters may be lost.", status["tolerates"])
        yield _gauge(
            "conflicts", "Minion ids with different accepted keys.", status["conflict_count"]
        )
        yield _gauge("status_timestamp_seconds", "When this was looked at.", status["at"])
        drift = GaugeMetricFamily(
            "saltext_ha_drift", "Differences that the last check found.", labels=["section"]
        )
        consistency = status["consistency"]
        for name, section in consistency["sections"].items():
            if section["status"] != "unknown":
                drift.add_metric([name], section["count"])
        yield drift
        yield _gauge(
            "consistency_stale",
            "Whether the last comparison is too old to count, or the one after it failed.",
            float(bool(consistency["stale"])),
        )
        if consistency["at"]:
            yield _gauge(
                "consistency_timestamp_seconds", "When masters were compared.", consistency["at"]
            )
            yield _gauge(
                "consistency_complete",
                "Whether all masters could be compared in all sections.",
                float(not any(map(_is_unknown_comparison, status["reasons"]))),
            )

    def _masters(self) -> Iterator[Metric]:
        rows = self._status["masters"]
        yield _by_master("up", "Whether its engine answers.", rows, _is_up)
        yield _by_master(
            "healthy", "Whether the master serves; absent: unknown.", rows, _health("healthy")
        )
        yield _by_master("ready", "Whether it should get callers.", rows, _health("ready"))
        keys = GaugeMetricFamily(
            "saltext_ha_keys", "Minion keys in its key store.", labels=["master", "state"]
        )
        for row in rows:
            for state in SHOWN:
                if row[state] is not None:
                    keys.add_metric([row["name"], state], row[state])
        yield keys
        yield _by_master(
            "behind_keys", "Keys that differ from this master's.", rows, lambda r: r["behind"]
        )
        yield _by_master("held_keys", "Changes held back.", rows, lambda r: r["held"])
        yield _by_master(
            "bound_minions", "Minions connected to it.", rows, lambda r: r.get("bound")
        )
        mines = GaugeMetricFamily(
            "saltext_ha_arrived_mines",
            "Minions that came to it lately: older: their mine is older there than elsewhere; "
            "unknown: that is not known (yet).",
            labels=["master", "state"],
        )
        for row in rows:
            for state, count in (row.get("mines") or {}).items():
                mines.add_metric([row["name"], state], count)
        yield mines
        yield _by_master("seen_seconds", "Since it last answered.", rows, lambda r: r["seen"])

    def _this_master(self) -> Iterator[Metric]:
        own = self._own
        good = GaugeMetricFamily(
            "saltext_ha_check_ok", "Health questions to this master.", labels=["check"]
        )
        took = GaugeMetricFamily(
            "saltext_ha_check_seconds", "How long the answer took.", labels=["check"]
        )
        for check in own.health.told()["checks"]:
            if check["ok"] is None:
                continue
            good.add_metric([check["name"]], float(check["ok"]))
            took.add_metric([check["name"]], check["seconds"])
        yield good
        yield took
        yield _gauge("draining", "Whether it is taken out of service.", float(own.health.draining))
        expiry = succession.expiry(own.identity().certificate).timestamp()
        yield _gauge("certificate_expiry_timestamp_seconds", "When this master's ends.", expiry)
        about = InfoMetricFamily("saltext_ha", "This engine.")
        about.add_metric(
            [],
            {
                "name": own.name,
                "mode": own.mode.name,
                "version": version.ours(),
                "salt": version.salt(),
            },
        )
        yield about

    def _counted(self) -> Iterator[Metric]:
        counters = self._own.counters
        took = HistogramMetricFamily(
            "saltext_ha_propagation_seconds",
            "From a change noticed here until the peer's key store has it.",
            labels=["peer"],
        )
        for peer, histogram in sorted(counters.propagation.items()):
            took.add_metric([peer], histogram.cumulative(), histogram.sum)
        yield took
        moved = CounterMetricFamily(
            "saltext_ha_antientropy_bytes",
            "Bytes to find and repair differences.",
            labels=["peer", "direction"],
        )
        for peer, (sent, received) in sorted(counters.antientropy.items()):
            moved.add_metric([peer, "sent"], sent)
            moved.add_metric([peer, "received"], received)
        yield moved
        yield CounterMetricFamily(
            "saltext_ha_aes_rotations",
            "New AES keys that this engine asked the master for.",
            counters.rotations,
        )
        yield CounterMetricFamily(
            "saltext_ha_failovers",
            "Minions that moved to this master.",
            self._own.failovers.count,
        )
        refused = CounterMetricFamily(
            "saltext_ha_refused", "Peers and strangers turned away.", labels=["reason"]
        )
        for reason, count in sorted(self._own.refused().items()):
            refused.add_metric([reason], count)
        yield refused


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"saltext_ha_{name}", text, value)


def _by_master(
    name: str, text: str, rows: Iterable[Row], read: Callable[[Row], Any]
) -> GaugeMetricFamily:
    """A value for each master, by *read*; None: it is not known."""
    family = GaugeMetricFamily(f"saltext_ha_{name}", text, labels=["master"])
    for row in rows:
        value = read(row)
        if value is not None:
            family.add_metric([row["name"]], float(value))
    return family


def _is_unknown_comparison(reason: Mapping[str, Any]) -> bool:
    return reason["kind"] == COMPARISON and UNKNOWN in reason["states"]


def _is_up(row: Row) -> bool:
    return bool(row["state"] == "running")


def _health(name: str) -> Callable[[Row], Any]:
    return lambda row: row["health"].get(name)
