"""
Three masters of a group, and three of Salt's own isolated cluster, in the same run.

That cluster replicates automatic acceptances and deletions, but no ``salt-key -a``. For all that it
does and does not, see ``python -m proving.benchmarks.native_cluster``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from lab import Lab, Master, key_folders, wait_for
from lab.cluster import add_cluster, start_cluster
from lab.keys import write_whole
from proving.benchmarks.processors import used
from proving.benchmarks.report import RIVALS, Row
from proving.benchmarks.rsync import Shot

PATIENCE = 30.0
POLL = 0.0005
AUTO = "auto"


def measure(deletions: int, arrivals: int) -> list[Row]:
    """
    Rows for *deletions* by ``salt-key -d`` and *arrivals* of minions that are accepted at once.

    The clock runs from the change on m1 to the change on the last master. The column of Salt's
    cluster has medians.
    """
    ids = key_folders.ids(deletions)
    options = {"loop_interval": 2, "autosign_file": "/autosign"}
    with Lab() as lab:
        ha = {"hold_minimum": 2 * deletions}
        ours = [lab.add_master(name, ha=ha, config=options) for name in ("m1", "m2", "m3")]
        for other in ours[1:]:
            ours[0].share_master_key(other)
        key_folders.plant(ours[0].pki_dir, ids)
        _let_in(ours)
        lab.start_all()
        lab.form_group()
        for master in ours:
            wait_for(partial(_has, master, len(ids)), 120, f"all keys are on {master.name}")
        works: list[float] = []
        deleted, accepted = _both(lab, ours, ids, arrivals, lambda: works.append(used(*ours)))
    with Lab() as lab:
        theirs = add_cluster(lab, "m1", "m2", "m3", isolated=True, engine=False, config=options)
        _let_in(theirs)
        for master in theirs:
            key_folders.plant(master.key_dir, ids)
        start_cluster(theirs)
        beside = [Shot(median(times)) for times in _both(lab, theirs, ids, arrivals)]
    rows = (("salt-key -d", deletions, deleted), ("auto-acceptance", arrivals, accepted))
    return [
        Row(
            f"{what}, to the last of 3 masters",
            keys,
            times,
            rivals={RIVALS[-1]: shot},
            cpu=(after - before) / keys,
        )
        for (what, keys, times), shot, (before, after) in zip(
            rows, beside, pairwise(works), strict=True
        )
    ]


def _let_in(masters: Iterable[Master]) -> None:
    for master in masters:
        write_whole(master.root / "autosign", f"{AUTO}*\n", 0o600)


def _has(master: Master, count: int) -> bool:
    return key_folders.count(master.pki_dir) == count


def _both(
    lab: Lab,
    masters: Sequence[Master],
    ids: Iterable[str],
    arrivals: int,
    note: Callable[[], object] = lambda: None,
) -> tuple[list[float], list[float]]:
    """
    Milliseconds of every deletion, and of every acceptance.

    :param note: called before both, between them and at the end.
    """
    folders = [master.key_dir / key_folders.ACCEPTED for master in masters]
    deleted, accepted = [], []
    note()
    with ThreadPoolExecutor(1) as pool:
        for minion_id in ids:
            command = pool.submit(masters[0].salt_key, "-d", minion_id, "-y")
            deleted.append(_follows([folder / minion_id for folder in folders], there=False))
            command.result().check()
    note()
    for number in range(arrivals):
        minion = lab.add_minion(f"{AUTO}{number}", [masters[0]])
        minion.launch()
        accepted.append(_follows([folder / minion.name for folder in folders], there=True))
        minion.stop()
    note()
    return deleted, accepted


def _follows(paths: Sequence[Path], there: bool) -> float:
    """Milliseconds from the change of the first of *paths* to the change of the last."""
    wait_for(lambda: paths[0].exists() is there, PATIENCE, "it is done", POLL)
    began = time.perf_counter()
    wait_for(lambda: all(each.exists() is there for each in paths), PATIENCE, "by all", POLL)
    return (time.perf_counter() - began) * 1000
