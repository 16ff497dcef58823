"""
The demo shows the main job on two real masters and three real minions on loopback.

Every step says what it does, does it with the commands that an operator would type, checks the
result, and says so. If a step does not hold, the demo ends there with a non-zero exit status.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import Lab, Master, wait_for
from lab.cli import Result

LOCAL_CONFIG = "demo-acl.conf"
MINIONS = "db1,web1,web2"


class Failed(Exception):
    """A step did not hold."""


class Stage:
    """Numbers and prints the steps."""

    def __init__(self) -> None:
        self.number = 0
        self.begun = time.monotonic()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.number += 1
        self.say(f"\n{self.number}. {title}")
        try:
            yield
        except (AssertionError, TimeoutError, Failed) as exc:
            self.say(f"   ✗ failed: {exc}")
            raise Failed(title) from exc

    def say(self, text: str) -> None:
        print(text, flush=True)

    def done(self, text: str) -> None:
        self.say(f"   ✓ {text}")

    def command(self, text: str) -> None:
        self.say(f"   $ {text}")

    def show(self, result: Result) -> None:
        for line in result.stdout.rstrip().splitlines():
            self.say(f"   │ {line}")


def check(holds: object, what: str) -> None:
    """:raises Failed: *holds* is false; says *what* does not hold."""
    if not holds:
        raise Failed(what)


def timed_salt_key(master: Master, other: Master, state: str, *args: str) -> float:
    """
    Run ``salt-key`` on *master* and measure how much later *other* shows the same.

    :return: milliseconds from the move of the key on *master* to its move on *other*.
    """
    minion_id = args[1]

    def moment(where: Master) -> Callable[[], float | None]:
        folders = {s: Path(where.pki_dir) / s for s in ("minions", "minions_rejected")}

        def look() -> float | None:
            if state == "gone":
                there = any((folder / minion_id).exists() for folder in folders.values())
                return None if there else time.monotonic()
            return time.monotonic() if (folders[state] / minion_id).exists() else None

        return look

    times: dict[str, float] = {}

    def watch(where: Master) -> None:
        look = moment(where)
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            found = look()
            if found is not None:
                times[where.name] = found
                return
            time.sleep(0.0005)

    watchers = [threading.Thread(target=watch, args=(where,)) for where in (master, other)]
    for watcher in watchers:
        watcher.start()
    master.salt_key(*args, "-y").check()
    for watcher in watchers:
        watcher.join()
    check(len(times) == 2, f"{minion_id} is not {state} on both masters after 30 s: {times}")
    return (times[other.name] - times[master.name]) * 1000


def main() -> int:
    """Run the demo; return the exit status."""
    stage = Stage()
    try:
        with Lab() as lab:
            play(stage, lab)
    except Failed as exc:
        stage.say(f"\nThe demo failed in: {exc}")
        return 1
    except KeyboardInterrupt:
        stage.say("\nStopped; masters and minions are ended.")
        return 130
    stage.say(f"\nAll {stage.number} steps held, in {time.monotonic() - stage.begun:.0f} s.")
    return 0


def play(stage: Stage, lab: Lab) -> None:
    """The demo itself."""
    m1, m2 = lab.add_master("m1"), lab.add_master("m2")
    web1 = lab.add_minion("web1", [m1, m2], type="hot")
    web2 = lab.add_minion("web2", [m1, m2], type="hot")
    db1 = lab.add_minion("db1", [m1, m2], type="failover")

    with stage.step("Start two masters, m1 and m2, each with the ha engine"):
        m1.share_master_key(m2)
        lab.start_all([m1, m2])
        stage.done(f"m1 on {m1.address}, m2 on {m2.address}; minions will know both by one key")

    with stage.step("Make them one group: m1 invites, m2 joins with the one-time token"):
        stage.command("salt-ha invite > token   # on m1; it is on no bus and in no job cache")
        token = m1.invite()
        stage.command("salt-ha join < token     # on m2")
        m2.join(token).check()
        again = m2.join(token + "x")
        check(again.returncode != 0, "an altered token was taken")
        wait_for(lambda: m1.control("status")["state"] == "ok", 120, "both masters see each other")
        stage.command("salt-run ha.status")
        stage.show(m1.salt_run_text("ha.status"))
        stage.done("joined; a token that was altered is refused")

    minions = (web1, web2, db1)
    with stage.step("Start three minions (two hot-hot, one failover); they knock"):
        for minion in minions:
            minion.start()
        for master in (m1, m2):
            folder = Path(master.pki_dir) / "minions_pre"
            wait_for(
                functools.partial(holds, folder, 3), 120, f"three pending keys on {master.name}"
            )
        stage.done("db1 knocked at m1 only, and yet all three are pending on both masters")

    with stage.step("Accept on one master; the other has it"):
        for master, other, minion_id in ((m1, m2, "web1"), (m2, m1, "web2"), (m2, m1, "db1")):
            stage.command(f"salt-key -a {minion_id} -y   # on {master.name}")
            took = timed_salt_key(master, other, "minions", "-a", minion_id)
            stage.done(f"accepted on {other.name} {took:.0f} ms later")
        for minion in minions:
            minion.wait_ready()
        for master in (m1, m2):
            reached = wait_for(functools.partial(pings, master), 120, f"answers to {master.name}")
            check(reached == {"web1": True, "web2": True}, f"{master.name} reaches {reached}")
        stage.done("both masters reach both hot-hot minions")

    with stage.step("Reject and delete; the other master follows"):
        strangers = {name: lab.key_pair()[1] for name in ("stranger", "retired", "late")}
        for name in ("stranger", "retired"):
            m1.plant("minions_pre", name, strangers[name])
            wait_for((Path(m2.pki_dir) / "minions_pre" / name).exists, 60, f"{name} pending on m2")
        stage.command("salt-key -r stranger -y   # on m2")
        took = timed_salt_key(m2, m1, "minions_rejected", "-r", "stranger")
        stage.done(f"rejected on m1 {took:.0f} ms later")
        timed_salt_key(m1, m2, "minions", "-a", "retired")
        stage.command("salt-key -d stranger -y   # on m1")
        took = timed_salt_key(m1, m2, "gone", "-d", "stranger")
        stage.done(f"gone from m2 {took:.0f} ms later")

    with stage.step("kill -9 master m2, change keys on m1 meanwhile, start m2 again"):
        m2.kill()
        stage.command("salt-key -d retired -y   # on m1, m2 is dead")
        m1.salt_key("-d", "retired", "-y").check()
        m1.plant("minions_pre", "late", strangers["late"])
        m1.salt_key("-a", "late", "-y").check()
        check("retired" in m2.keys()["minions"], "m2 still holds the deleted key before its start")
        m2.start()
        begun = time.monotonic()
        wait_for(
            lambda: "late" in m2.keys()["minions"] and "retired" not in m2.keys()["minions"],
            120,
            "m2 caught up",
        )
        caught_up = time.monotonic() - begun
        wait_for(lambda: m1.control("status")["state"] == "ok", 120, "both masters in sync")
        check("retired" not in m1.keys()["minions"], "the deleted key came back on m1")
        stage.done(f"m2 caught up {caught_up:.1f} s after its start; nothing deleted came back")

    with stage.step("Are my masters the same?"):
        stage.command("salt-run ha.check_consistency")
        clean = m1.salt_run_text("ha.check_consistency")
        stage.show(clean)
        check(clean.returncode == 0, f"exit status {clean.returncode} instead of 0")
        stage.done("exit status 0")

    with stage.step("Plant drift: the night shift gets rights on m2 only; m2 is restarted"):
        config = Path(m2.config_dir) / "master.d" / LOCAL_CONFIG
        config.parent.mkdir(exist_ok=True)
        config.write_text("external_auth: {pam: {alice: ['.*', '@runner']}}\n")
        restart(m1, m2)
        stage.command("salt-run ha.check_consistency")
        drift = m1.salt_run_text("ha.check_consistency")
        stage.show(drift)
        check(drift.returncode == 1, f"exit status {drift.returncode} instead of 1")
        check("external_auth:pam:alice" in drift.stdout, "the difference is not named")
        stage.done("found, down to the leaf; exit status 1")

    with stage.step("Mend it"):
        config.unlink()
        restart(m1, m2)
        mended = m1.salt_run_text("ha.check_consistency")
        check(mended.returncode == 0, f"still different:\n{mended.stdout}")
        stage.done("all the same again; exit status 0")

    with stage.step("Which master is a minion connected to, before and after m1 dies?"):
        asked = ("salt", "-L", MINIONS, "ha.current_master")
        stage.command(f"{' '.join(asked)}   # on m1")
        stage.show(m1.cli(*asked, out=None))
        before = bindings(m1)
        check(before.get("db1") == m1.address, f"db1 is on {before.get('db1')}, not on m1")
        m1.kill()
        begun = time.monotonic()
        stage.say("   m1 is killed …")
        after = wait_for(
            lambda: found if "db1" in (found := bindings(m2)) else {}, 120, "db1 answers on m2"
        )
        stage.command(f"{' '.join(asked)}   # on m2")
        stage.show(m2.cli(*asked, out=None))
        check(set(after.values()) == {m2.address}, f"not all are connected to m2: {after}")
        stage.done(
            f"db1 moved to m2 {time.monotonic() - begun:.0f} s after m1 died, with no new key"
        )
        status = m2.salt_run_text("ha.status")
        stage.command("salt-run ha.status   # on m2")
        stage.show(status)
        check(status.returncode == 2, f"a dead master gives exit status 2, not {status.returncode}")
        stage.done("m1 is unknown, never shown as fine; exit status 2")


def holds(folder: Path, count: int) -> bool:
    """Whether a key folder holds *count* keys."""
    return len(list(folder.glob("[!.]*"))) == count


def pings(master: Master) -> dict[str, bool]:
    """The answer of ``salt 'web*' test.ping`` on *master*; empty while no minion answers."""
    return dict(master.salt("web*", "test.ping").data or {})


def restart(first: Master, other: Master) -> None:
    """Restart *other* as an operator would, and wait until the group is whole again."""
    other.stop()
    other.start()

    # The group need not be well: masters are compared meanwhile, and may be meant to differ.
    def whole() -> bool:
        masters = first.control("status")["masters"]
        return all(each["health"]["ready"] and each["behind"] == 0 for each in masters)

    wait_for(whole, 120, "both masters in sync")


def bindings(master: Master) -> dict[str, str]:
    """Connected minion → address of its current master, as *master* is answered."""
    answers = master.cli("salt", "--static", "-L", MINIONS, "ha.current_master").data or {}
    return {
        name: answer["address"]
        for name, answer in answers.items()
        if isinstance(answer, dict) and answer.get("connected")
    }


if __name__ == "__main__":
    sys.exit(main())
