"""``ha.restart_masters`` on real masters, whose service manager is this test."""

from __future__ import annotations

import threading
from pathlib import Path

from lab import Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, level, meet

# What restarts a service in two steps: it has to outlive the salt-master from which it was started.
COMMAND = (
    "sh -c 'touch {0}.stop; while test -e {0}.stop; do sleep 0.1; done; sleep 1; touch {0}.start'"
)


def ready(master: Master) -> bool:
    """Whether all masters could take over, by what *master* knows."""
    return all(each["health"]["ready"] for each in master.control("status")["masters"])


def stale(master: Master) -> dict[str, set[str]]:
    """Master → the options that it runs with other values of than its files have."""
    section = master.salt_run("ha.check_consistency").data["sections"]["running"]
    found: dict[str, set[str]] = {}
    for difference in section["differences"]:
        for name in difference["values"]:
            found.setdefault(name, set()).add(difference["path"])
    return found


def test_masters_with_older_files_are_named_and_restarted_one_after_the_other(
    make_lab: MakeLab,
) -> None:
    with make_lab() as lab:
        shared = lab.root / "git"
        shared.mkdir()
        (shared / "jobs.conf").write_text("keep_jobs_seconds: 7200\n")
        for name in ("m1", "m2"):
            live = lab.root / "live" / name / "shared"
            live.parent.mkdir(parents=True)
            lab.add_master(
                name,
                ha={
                    **QUICK,
                    "restart": COMMAND.format(lab.root / name),
                    "trees": {"shared": {"source": str(shared), "live": str(live)}},
                },
                config={"include": f"{live}/*.conf"},
            )
        m1, m2 = lab.masters.values()
        lab.start_all()
        meet(lab)
        wait_for(lambda: ready(m1), SOON, "both serve")
        m1.salt_run("ha.deploy").check()
        assert stale(m2) == {name: {"keep_jobs_seconds"} for name in lab.masters}
        starts = {m.name: m.control("restart", {"name": m.name})["start"] for m in (m1, m2)}
        order: list[str] = []
        end = threading.Event()

        def look(master: Master) -> None:
            stop, start = (Path(f"{lab.root / master.name}.{verb}") for verb in ("stop", "start"))
            if stop.exists():
                master.stop()
                order.append(master.name)
                stop.unlink()
            if start.exists():
                start.unlink()
                master.launch()

        def work() -> None:
            while not end.wait(0.1):
                for master in (m1, m2):
                    look(master)

        services = threading.Thread(target=work)
        services.start()
        try:
            answer = m1.salt_run("ha.restart_masters", timeout=500)
        finally:
            end.set()
            services.join()
        answer.check()
        assert order == ["m2", "m1"]
        for master in (m1, m2):
            assert master.control("restart", {"name": master.name})["start"] != starts[master.name]
        wait_for(lambda: level(m1), SOON, "both are level")
        assert stale(m2) == {}
