"""``python -m proving.benchmarks``: every budget measured, beside rsync, lsyncd and unison."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from lab.engines import quiet
from proving import harness
from proving.benchmarks import (
    accept,
    accept_all,
    check,
    cluster,
    events,
    exchange,
    failover,
    knocking,
    leader,
    million,
    minions,
    propagate,
    pure,
    reactor,
    rivals,
    scale,
    status,
    trees,
)
from proving.benchmarks.report import Row, about, growth, markdown, table
from saltext_ha.config.leader import ETCD, GROUP

GROUPS = (
    "accept",
    "cluster",
    "events",
    "exchange",
    "propagate",
    "many",
    "start",
    "newcomer",
    "knocking",
    "check",
    "status",
    "minions",
    "failover",
    "leader",
    "reactor",
    "deploy",
    "pure",
)
ASKED_FOR = ("million",)
"""Only run if they are named: they take half an hour, and room for two million files."""
SIZES = (1_000, 10_000, 100_000)
MASTERS = (2, 3, 5, 8)
IDLE = 600.0
QUICK_IDLE = 70.0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv*, measure, print; 1 when a budget is exceeded or a row failed."""
    parser = argparse.ArgumentParser(prog="python -m proving.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, fewer samples")
    parser.add_argument(
        "--keys", type=int, nargs="+", metavar="N", help=f"key counts instead of {SIZES}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the table as docs have it")
    parser.add_argument(
        "--only",
        choices=GROUPS + ASKED_FOR,
        nargs="+",
        default=GROUPS,
        metavar="GROUP",
        help=f"some of: {', '.join(GROUPS)}; or {', '.join(ASKED_FOR)}",
    )
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="how long an engine with nothing to do is watched, longer than its scan_interval"
        f" (default: {IDLE:g}; {QUICK_IDLE:g} with --quick)",
    )
    parser.add_argument("--folder", type=Path, help="where to put the key folders (a local disk)")
    options = parser.parse_args(argv)
    try:
        rivals.require()
    except rivals.ToolsMissing as exc:
        print(f"make bench: {exc}", file=sys.stderr)
        return 2
    quiet()
    circumstances = about()
    harness.announce(circumstances)
    idle = options.idle or (QUICK_IDLE if options.quick else IDLE)
    rows: list[Row] = []
    failed = False
    for name, work in _plan(options.quick, options.keys, idle):
        if name not in options.only:
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            with harness.folder(options.folder) as folder:
                measured = work(Path(folder))
        except Exception:
            # One failed row must not throw away the minutes that the other rows took.
            traceback.print_exc()
            failed = True
            continue
        rows += measured
        print(table(measured), file=sys.stderr, flush=True)
    print(f"\n{table(rows)}\n\n{growth(rows)}")
    if options.markdown:
        options.markdown.write_text(f"{markdown(rows)}\n{growth(rows)}", encoding="utf-8")
    if options.json:
        data = {"about": circumstances, "rows": [row.data() for row in rows]}
        options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 1 if failed or any(row.ok is False for row in rows) else 0


def _plan(
    quick: bool, counts: Sequence[int] | None, idle: float
) -> Iterator[tuple[str, Callable[[Path], list[Row]]]]:
    sizes = sorted(counts or (SIZES[:2] if quick else SIZES))
    large = sizes[-1]
    samples, runs = (25, 3) if quick else (200, 5)
    yield "accept", lambda root: [accept.measure(50 if quick else 250)]
    # Salt 3006 has no cluster, and the cluster of 3007 shares its keys.
    if int(version("salt").partition(".")[0]) >= 3008:
        yield "cluster", lambda root: cluster.measure(5 if quick else 20, 2 if quick else 5)
    yield "events", partial(events.measure, runs=3 if quick else 5)
    for size in sizes:
        yield "exchange", partial(exchange.measure, size=size, rounds=20 if quick else 100)
    for size in sizes:
        yield (
            "propagate",
            partial(propagate.measure, size=size, masters=2, samples=samples, runs=runs),
        )
    for masters in MASTERS[1:]:
        # How it grows with the number of masters shows at any size.
        yield (
            "propagate",
            partial(propagate.measure, size=sizes[0], masters=masters, samples=samples, runs=0),
        )
    for size in sizes:
        if size <= 10_000:
            for masters in (2, 3):
                yield "many", partial(scale.many, size=size, masters=masters)
                yield "many", partial(accept_all.measure, size=size, masters=masters)
    for size in sizes:
        # The cost of rest matters at one size.
        yield "start", partial(scale.start, size=size, idle=idle if size == large else None)
    for size in sizes:
        yield "newcomer", partial(scale.newcomer, size=size)
    # No more minions than masters let in by default.
    yield "knocking", partial(knocking.measure, size=min(large, knocking.MINIONS))
    yield "check", partial(check.measure, size=large, runs=3 if quick else 10)
    yield "status", partial(status.measure, size=large, samples=samples // 4)
    yield "minions", partial(minions.group, size=min(large, minions.MINIONS))
    yield "minions", partial(minions.asked, samples=10 if quick else 40)
    for files in trees.FILES[: 1 if quick else None]:
        yield "deploy", partial(trees.measure, files=files, runs=3 if quick else 5)
    for hung in (False, True):
        yield "failover", partial(failover.measure, hung=hung)
    for store in (GROUP, ETCD):
        yield "leader", partial(leader.measure, store=store, runs=runs)
    yield "reactor", partial(reactor.measure, runs=runs)
    yield "pure", lambda root: pure.measure()
    for size in counts or (million.KEYS,):
        yield (
            "million",
            partial(million.measure, size=size, idle=idle, rounds=20 if quick else 100),
        )


if __name__ == "__main__":
    sys.exit(main())
