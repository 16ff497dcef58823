"""``python -m proving.torture``: act histories out, check them, and say what really happened."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from proving.torture import report, schedule
from proving.torture.faults import own_mounts
from proving.torture.history import History
from proving.torture.mutants import MUTANTS
from proving.torture.nursery import Nursery
from proving.torture.run import Setting, alike, broken, run
from proving.torture.shrink import shortest_prefix, without_idle_steps

TRIES = 3
"""How often a part of a failing history must pass before it counts as passing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse *argv*, act out, print; 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m proving.torture", description=__doc__)
    parser.add_argument("--histories", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the first history")
    parser.add_argument("--jobs", type=int, default=2, help="histories at a time")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mutant", choices=list(MUTANTS), default="", help="take this guard out")
    parser.add_argument("--mutants", action="store_true", help="take each guard out; all must fail")
    parser.add_argument("--show", action="store_true", help="print the histories, do nothing")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="act out what the file says")
    parser.add_argument("--no-shrink", action="store_true", help="report failures as they are")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave failed masters there")
    parser.add_argument("--folder", type=Path, help="where masters live; its path must be short")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="INTERPRETER",
        help="one that has (another) Salt; several make groups of mixed versions",
    )
    options = parser.parse_args(argv)
    if options.show:
        for history in _histories(options):
            print(history.to_json())
        return 0
    if options.worker:
        return _work(options)
    print(_who(options), flush=True)
    if options.mutants:
        return _mutants(options)
    if options.replay:
        histories = [History.from_json(options.replay.read_text(encoding="utf-8"))]
        with _Setting(options) as setting:
            return _tell([_one(h, setting, options) for h in histories])
    return _tell(_parallel(options, options.mutant))


def _who(options: argparse.Namespace) -> str:
    """Which Salts take part, and whether groups can be mixed."""
    question = "import salt.version; print(salt.version.__version__)"
    salts = [
        subprocess.run(
            [interpreter, "-c", question], capture_output=True, text=True, check=True
        ).stdout.strip()
        for interpreter in options.python or [sys.executable]
    ]
    if len(set(salts)) > 1:
        return f"Salt {', '.join(salts)}, in mixed groups"
    return f"Salt {salts[0]} only: no mixed groups (make test-all installs others; or --python)"


class _Setting:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def __enter__(self) -> Setting:
        options = self._options
        mounting = own_mounts()
        interpreters = options.python or [sys.executable]
        self._nurseries = [Nursery(interpreter) for interpreter in interpreters]
        return Setting(self._nurseries, mounting, options.mutant, options.folder, options.keep)

    def __exit__(self, *exc: object) -> None:
        for nursery in self._nurseries:
            nursery.close()


def _histories(options: argparse.Namespace) -> Iterator[History]:
    """As many histories as were asked for; with a mutant, only those that can show it."""
    all_of_them = (schedule.history(seed) for seed in count(options.seed))
    mutant = MUTANTS.get(options.mutant)
    return islice(filter(mutant.wanted if mutant else None, all_of_them), options.histories)


def _work(options: argparse.Namespace) -> int:
    """Every *step*-th history from the *first* on, one JSON line each on stdout."""
    with _Setting(options) as setting:
        for history in islice(_histories(options), options.first, None, options.step):
            told = _one(history, setting, options)
            print(json.dumps(told), flush=True)
    return 0


def _one(history: History, setting: Setting, options: argparse.Namespace) -> dict[str, object]:
    result = run(history, setting)
    text = ""
    if result.flaws:
        prefix = shortest = None
        if not options.no_shrink:

            def fails(part: History) -> bool:
                return any(alike(run(part, setting).flaws, result.flaws) for _ in range(TRIES))

            first = shortest_prefix(history, fails)
            prefix, shortest = len(first.steps), without_idle_steps(first, fails)
        text = report.failure(result, setting.told(), prefix, shortest)
    return {
        "seed": history.seed,
        "steps": len(history.steps),
        "seconds": round(result.seconds, 1),
        "flaws": result.flaws,
        "counts": dict(result.counts),
        "text": text,
    }


def _parallel(options: argparse.Namespace, mutant: str) -> Iterator[dict[str, object]]:
    """The results of all histories, as they come."""
    jobs = max(1, min(options.jobs, options.histories))
    commands = []
    for job in range(jobs):
        command = [sys.executable, "-m", "proving.torture", "--worker", "--step", str(jobs)]
        command += ["--first", str(job), "--seed", str(options.seed)]
        command += ["--histories", str(options.histories)]
        command += ["--keep", str(options.keep.resolve())] if options.keep else []
        command += ["--mutant", mutant] if mutant else []
        command += ["--no-shrink"] if options.no_shrink or mutant else []
        for interpreter in options.python:
            command += ["--python", interpreter]
        commands.append(command)
    with (
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryDirectory(
            prefix="t-", dir=options.folder, ignore_cleanup_errors=True
        ) as folder,
    ):
        for command in commands:
            command += ["--folder", folder]  # ours to remove: a worker that is killed leaves it
        workers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
            for command in commands
        ]
        try:
            yield from _lines(workers)
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
        if any(worker.returncode for worker in workers):
            output.seek(0)
            raise RuntimeError(f"a worker failed:\n{output.read()}")


def _lines(workers: Sequence[subprocess.Popen[str]]) -> Iterator[dict[str, object]]:
    import selectors

    with selectors.DefaultSelector() as selector:
        for worker in workers:
            assert worker.stdout is not None
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    yield json.loads(line)
                else:
                    selector.unregister(key.fileobj)
                    key.data.wait()


def _tell(results: Iterator[dict[str, object]] | list[dict[str, object]]) -> int:
    counts: Counter[str] = Counter()
    done = failed = 0
    for result in results:
        done += 1
        counts.update(result["counts"])  # type: ignore[call-overload]
        verdict = "FAILED" if result["flaws"] else "green"
        print(
            f"seed {result['seed']}: {verdict}, {result['steps']} steps, {result['seconds']} s",
            flush=True,
        )
        if result["flaws"]:
            failed += 1
            print(result["text"], flush=True)
    print("\nWhat really happened:")
    print("\n".join(report.table(+counts)))
    print(f"\n{done} histories, {done - failed} green, {failed} failed")
    return 1 if failed else 0


def _mutants(options: argparse.Namespace) -> int:
    """Each mutant until a history breaks an invariant; 1 when one survives, or torture fails."""
    failed = False
    for mutant in [options.mutant] if options.mutant else MUTANTS:
        tried = 0
        for tried, result in enumerate(_parallel(options, mutant), 1):
            flaws = result["flaws"]
            assert isinstance(flaws, list)
            seen = [flaw for flaw in flaws if broken([flaw])]
            if seen:
                print(f"{mutant}: red after {tried}, seed {result['seed']}: {seen[0]}", flush=True)
                break
            if flaws:
                failed = True
                print(f"{mutant}: ERROR, seed {result['seed']}: {flaws[0]}", flush=True)
                break
        else:
            failed = True
            print(f"{mutant}: SURVIVED {tried} histories", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
