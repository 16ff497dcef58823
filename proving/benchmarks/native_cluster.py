"""
What Salt's own isolated cluster does with minion keys by itself: no ha engine anywhere.

``python -m proving.benchmarks.native_cluster`` starts three real masters (Salt 3008 or newer)
and prints the table of docs/native-cluster.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from lab import Lab, Master, wait_for
from lab.cluster import add_cluster, ready, start_cluster
from lab.keys import STATES, write_whole

PATIENCE = 5.0  # seconds after which something that takes milliseconds is taken as never coming
RESTART = 60.0
CASES = [
    ("`salt-key -a`", "minions_pre", ["-a"]),
    ("`salt-key -r` of a pending key", "minions_pre", ["-r"]),
    ("`salt-key -r --include-accepted`", "minions", ["--include-accepted", "-r"]),
    ("`salt-key -d` of an accepted key", "minions", ["-d"]),
    ("`salt-key -d` of a pending key", "minions_pre", ["-d"]),
    ("`salt-key -d` of a denied key", "minions_denied", ["-d"]),
]


def say(what: str, result: str) -> None:
    """One line of the table."""
    print(f"| {what} | {result} |", flush=True)


def folders(master: Master, minion_id: str) -> list[str]:
    """Where an id is to be found on a master."""
    return [folder for folder in STATES if (master.key_dir / folder / minion_id).exists()]


def follows(act: Callable[[], object], masters: Sequence[Master], minion_id: str) -> str:
    """Do *act* on the first of *masters*; whether and how soon the others show the same."""
    first, *others = masters
    before = folders(first, minion_id)
    thread = threading.Thread(target=act)
    thread.start()
    wait_for(lambda: folders(first, minion_id) != before, 30, "it is done", poll=0.001)
    began, wanted = time.monotonic(), folders(first, minion_id)
    try:
        wait_for(lambda: all(folders(m, minion_id) == wanted for m in others), PATIENCE, "", 0.001)
    except TimeoutError:
        return f"no: {' and '.join(folders(others[0], minion_id)) or 'nothing'} there"
    else:
        return f"yes, in {max(1, round((time.monotonic() - began) * 1000))} ms"
    finally:
        thread.join()


def aes_keys(masters: Sequence[Master]) -> list[str]:
    """The keys that the members' jobs are encrypted with."""
    return [(master.key_dir / ".aes").read_text() for master in masters]


def decisions(lab: Lab, masters: Sequence[Master]) -> None:
    """What ``salt-key`` and knocking minions do."""
    for number, (what, folder, options) in enumerate(CASES):
        minion_id, (_, key) = f"key{number}", lab.key_pair()
        for master in masters:
            master.plant(folder, minion_id, key)
        command = [*options, minion_id, "-y"]
        say(what, follows(lambda c=command: masters[0].salt_key(*c), masters, minion_id))  # type: ignore[misc]
    for minion_id, what in (("knock", "a minion knocks"), ("auto", "a minion is auto-accepted")):
        minion = lab.add_minion(minion_id, [masters[0]])
        say(what, follows(minion.launch, masters, minion_id))
        minion.stop()


def revocation(lab: Lab, masters: Sequence[Master]) -> None:
    """What a deletion on the first member means for a minion of the second."""
    m1, m2, _ = masters
    minion = lab.add_minion("web", [m2])
    for master in masters:
        master.plant("minions", "web", minion.pub)
    minion.start(wait_accepted=True)
    wait_for(lambda: m2.salt("web", "test.ping").data == {"web": True}, 60, "m2 reaches it")
    before = aes_keys(masters)
    m1.salt_key("-d", "web", "-y").check()
    wait_for(lambda: aes_keys(masters)[0] != before[0], 30, "m1 has made a new AES key")
    time.sleep(PATIENCE)
    changed = [m.name for m, old, new in zip(masters, before, aes_keys(masters)) if old != new]  # noqa: B905
    say("… new AES key after a deletion on m1", f"on {' and '.join(changed)} only")

    def jobs() -> int:
        return minion.log_file.read_text(errors="replace").count("Executing command test.")

    ran = jobs()
    m2.salt("*", "test.echo", "canary", timeout=60)  # 3008's salt sends a test.ping before
    say("… jobs of m2 that the deleted minion still runs", str(jobs() - ran))
    minion.stop()


def outages(masters: Sequence[Master]) -> None:
    """Members that are away, and come back."""
    m1, m2, m3 = masters
    for master in masters:
        master.plant("minions", "gone", m1.key_dir.joinpath("cluster.pub").read_text())
    m3.stop()
    m1.salt_key("-d", "gone", "-y").check()
    m3.start()
    wait_for(lambda: ready(m3), RESTART, "m3 is open to minions again")
    time.sleep(PATIENCE)
    say("a deletion while m3 was down, m3 back", "kept" if folders(m3, "gone") else "deleted")

    m2.stop()
    m3.stop()
    warning = "Unable to forward event"
    before = m1.log_file.read_text(errors="replace").count(warning)
    m1.salt_run("event.send", "one/event").check()
    time.sleep(4 * PATIENCE)
    count = m1.log_file.read_text(errors="replace").count(warning) - before
    say(f"two of three down, one event: failed sends in {4 * PATIENCE:g} s", str(count))

    m1.kill()
    for master in masters:
        master.launch()
    for master in masters:
        master.wait_ready(RESTART)
    try:
        wait_for(lambda: all(map(ready, masters)), RESTART, "")
        say("all restarted: open to minions", "yes")
    except TimeoutError:
        shut = [master.name for master in masters if not ready(master)]
        say(f"all restarted: still shut after {RESTART:g} s", ", ".join(shut))


def main() -> None:
    with Lab() as lab:
        config = {"loop_interval": 2, "autosign_file": "/autosign"}
        masters = add_cluster(lab, "m1", "m2", "m3", isolated=True, engine=False, config=config)
        for master in masters:
            write_whole(master.root / "autosign", "auto\n", 0o600)
        start_cluster(masters)
        decisions(lab, masters)
        revocation(lab, masters)
        outages(masters)


if __name__ == "__main__":
    main()
