"""``python -m proving.simulation``: what many masters far apart cost, and how fast they are."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from proving.simulation import plot
from proving.simulation.group import Settings
from proving.simulation.keys import Keys
from proving.simulation.network import Conditions
from proving.simulation.report import markdown, table
from proving.simulation.scenarios import SCENARIOS, Case, Outcome, Steady, steady

GROWTH = (2, 3, 5, 10, 20, 50, 100)
INTERVALS = (3.0, 10.0, 30.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv*, simulate, print."""
    parser = argparse.ArgumentParser(prog="python -m proving.simulation", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--masters", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interval", type=float, default=Settings.interval, help="sync_interval")
    parser.add_argument("--learn", type=float, default=Settings.learn, help="seconds a record")
    parser.add_argument("--loss", type=float, default=Conditions.loss, help="of messages")
    parser.add_argument("--only", nargs="+", choices=(*SCENARIOS, "steady"), metavar="SCENARIO")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw them there")
    parser.add_argument("--from", dest="source", type=Path, metavar="JSON", help="draw these again")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)  # links go up and down on purpose
    data = json.loads(options.source.read_text()) if options.source else _simulate(options)
    print(f"\n{table(data)}\n\n{markdown(data)}")
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(plot.draw(data), encoding="utf-8")
    return 0


def _simulate(options: argparse.Namespace) -> dict[str, object]:
    settings = Settings(options.masters, options.interval, learn=options.learn)
    conditions = Conditions(loss=options.loss)
    wanted = options.only or (*SCENARIOS, "steady")
    growth: list[Steady] = []
    outcomes: list[Outcome] = []
    if "steady" in wanted:
        for masters in GROWTH:
            # The number of keys makes no difference while all is the same.
            keys = Keys(options.seed, 1_000, masters)
            for interval in INTERVALS:
                case = dataclasses.replace(settings, masters=masters, interval=interval)
                growth.append(steady(Case(keys, case, conditions, options.seed)))
                print(growth[-1].data(), file=sys.stderr, flush=True)
    keys = Keys(options.seed, options.keys, options.masters)
    for name, scenario in SCENARIOS.items():
        if name in wanted:
            began = time.perf_counter()
            outcomes.append(scenario(Case(keys, settings, conditions, options.seed)))
            took = time.perf_counter() - began
            print(f"{outcomes[-1].data()} ({took:.0f} s)", file=sys.stderr, flush=True)
    return {
        "about": {
            "keys": options.keys,
            "masters": options.masters,
            "seed": options.seed,
            **dataclasses.asdict(settings),
            **dataclasses.asdict(conditions),
        },
        "scenarios": [outcome.data() for outcome in outcomes],
        "steady": [row.data() for row in growth],
    }


if __name__ == "__main__":
    sys.exit(main())
