"""A group of masters with nothing but planted keys, and the words that its tests are made of."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from lab import Lab, Master, Minion, wait_for
from lab.keys import read_entry
from tests.integration.conftest import MakeLab

# What is done at intervals is to be done while a test waits. But a master that answers late, on a
# busy machine, is not to be unknown for that.
QUICK = {"sync_interval": 1, "peer_timeout": 10}
# Far more than anything here takes; what is never to happen costs this much only when it does not.
SOON = 180.0
# Where minions knock, or all masters have to be compared: two processors do all of it.
LONG = 240.0

# An option of `salt`, where an answer is read once.
PATIENT = "--timeout=60"

Three = tuple[Master, Master, Master]


@contextmanager
def group(
    make_lab: MakeLab,
    *names: str,
    ha: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    joined: bool = True,
) -> Iterator[Lab]:
    """Running masters *names* that share the master key and the roots, joined into one group."""
    with make_lab() as lab:
        tree = str(lab.root / "srv")
        shared = {"file_roots": {"base": [tree]}, "pillar_roots": {"base": [tree]}}
        first, *others = (
            lab.add_master(name, ha={**QUICK, **(ha or {})}, config={**shared, **(config or {})})
            for name in names
        )
        first.share_master_key(*others)
        lab.start_all()
        if joined:
            meet(lab)
        yield lab


def meet(lab: Lab) -> None:
    """Join the running masters of *lab* into one group, and wait until it has met."""
    lab.form_group()
    met(*lab.masters.values())


def met(*masters: Master) -> None:
    """Wait until each of *masters* knows the others, and all are level."""
    # Who was busy hears of a new member a little later than the one that has let it in.
    wait_for(lambda: all(level(m, len(masters)) for m in masters), SOON, "the group has met")


def level(master: Master, at_least: int = 1) -> bool:
    """Whether *master* says that it and all peers, so many in all, run and have the same keys."""
    rows = master.control("status")["masters"]
    running = all(row["state"] == "running" and row["behind"] == 0 for row in rows)
    return running and len(rows) >= at_least


def reasons(master: Master, *, but: str = "") -> list[str]:
    """
    Why *master* does not call its group well.

    :param but: a kind that does not count: ``comparison``, where only tests compare.
    """
    found = master.control("status")["reasons"]
    return [f"{each['about']}: {each['text']}" for each in found if each["kind"] != but]


def well(*masters: Master, but: str = "") -> None:
    """Wait until none of *masters* has a reason not to call the group well; tells which it had."""

    def nothing_wrong() -> bool:
        found = {master.name: why for master in masters if (why := reasons(master, but=but))}
        if found:
            raise AssertionError(found)
        return True

    wait_for(nothing_wrong, LONG, "the group is well", poll=0.2)


def three_level(lab: Lab) -> Three:
    """Its three masters, as soon as they are level."""
    m1, m2, m3 = lab.masters.values()
    met(m1, m2, m3)
    return m1, m2, m3


def files_of(master: Master, minion_id: str) -> dict[str, str]:
    """The key files of an id: folder → key."""
    return {folder: key.strip() for folder, key in read_entry(master.key_dir, minion_id).items()}


def shown(
    minion_id: str, files: Mapping[str, str], *masters: Master, timeout: float = SOON
) -> None:
    """Wait until the key files of an id on all *masters* are exactly *files*."""
    wanted = {folder: key.strip() for folder, key in files.items()}

    def differing() -> dict[str, list[str]]:
        found = {master.name: files_of(master, minion_id) for master in masters}
        return {name: sorted(files) for name, files in found.items() if files != wanted}

    try:
        wait_for(lambda: not differing(), timeout, "")
    except TimeoutError:
        raise AssertionError(
            f"{minion_id} is to be in {sorted(wanted)}; still otherwise: {differing()}"
        ) from None


def plant(lab: Lab, folder: str, minion_id: str, *masters: Master) -> str:
    """Put a new key into *folder* of the first of *masters*, wait until all show it; its text."""
    key = lab.key_pair()[1].strip()
    masters[0].plant(folder, minion_id, key)
    shown(minion_id, {folder: key}, *masters)
    return key


def arrived(lab: Lab, *masters: Master) -> None:
    """
    Wait until whatever was on its way between *masters* has arrived.

    A marker from each of them to all others goes through the same scan, push and apply.
    """
    for master in masters:
        marker = f"marker-{next(_markers)}"
        plant(lab, "minions_pre", marker, master, *(m for m in masters if m is not master))


def settled(lab: Lab, *masters: Master) -> None:
    """Wait until whatever was on its way between *masters* has arrived, and all are level."""
    arrived(lab, *masters)
    wait_for(lambda: all(map(level, masters)), SOON, "all masters are level")


def row(master: Master, peer: Master) -> dict[str, Any]:
    """What *master*'s status says of *peer*."""
    rows = {entry["name"]: entry for entry in master.control("status")["masters"]}
    found: dict[str, Any] = rows[peer.name]
    return found


def log_lines(node: Master | Minion, *words: str) -> list[str]:
    """The lines of a node's log with all *words* in them."""
    text = node.log_file.read_text(encoding="utf-8", errors="replace")
    return [line for line in text.splitlines() if all(word in line for word in words)]


def logged(node: Master | Minion, *words: str, times: int = 1) -> None:
    """Wait until a node's log has so many lines with all *words* in them."""
    wait_for(
        lambda: node.log_file.exists() and len(log_lines(node, *words)) >= times,
        LONG,
        f"{node.name} logs {words} {times} times",
    )


def answers(master: Master, *minions: Minion) -> None:
    """Wait until *minions* take jobs of *master*: they are connected a little earlier."""
    wanted = {minion.name: True for minion in minions}
    wait_for(
        lambda: master.salt(",".join(wanted), "test.ping", "-L").data == wanted,
        LONG,
        f"{sorted(wanted)} answer {master.name}",
    )


def let_in(master: Master, minion: Minion) -> None:
    """Accept the key of *minion* when it has knocked, and wait until it takes jobs of *master*."""
    wait_for(lambda: minion.name in master.keys()["minions_pre"], SOON, f"{minion.name} knocks")
    accept(master, minion)
    answers(master, minion)


def accept(master: Master, minion: Minion) -> None:
    """Accept a key that Salt writes anew at each knock: just then it is not there."""

    def accepted() -> bool:
        # By its name: others' keys are there as soon as the masters have met.
        master.salt_key("-a", minion.name, "-y")
        return minion.name in master.keys()["minions"]

    wait_for(accepted, SOON, f"{minion.name} is accepted")


def peers(master: Master) -> dict[str, Any]:
    """What ``ha.peers`` of *master* says when all are up: when a whole round was made with each."""

    def all_up() -> Any:
        answer = master.salt_run("ha.peers")
        return answer.data if answer.returncode == 0 else None

    found: dict[str, Any] = wait_for(all_up, SOON, f"the peers of {master.name} are up")
    return found


def replica_files(master: Master) -> list[Path]:
    return sorted((master.pki_dir / "ha").glob("replica.db*"))


def master_pub(master: Master) -> str:
    """The public key that minions know a master by."""
    own = master.pki_dir / f"{master.name}.pub"
    return (own if own.exists() else master.pki_dir / "master.pub").read_text().strip()


def _count() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


_markers = _count()


@contextmanager
def frozen(*processes: psutil.Process) -> Iterator[None]:
    """Stopped, as a process that hangs: its sockets go on accepting."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def parts(master: Master, *titles: str) -> list[psutil.Process]:
    """The processes of a master whose title has one of these in it."""
    found = []
    for pid in master.daemon.pids():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
            process = psutil.Process(pid)
            line = " ".join(process.cmdline())
            if any(title in line for title in titles):
                found.append(process)
    assert found, f"no process {titles} of {master.name}"
    return found


@contextmanager
def unseen(*masters: Master) -> Iterator[None]:
    """What is done to their key folders meanwhile is not seen half done by their engines."""
    with frozen(*(process for master in masters for process in parts(master, "Engine"))):
        yield


def rm(master: Master) -> None:
    """``rm minions/*``: the folder stays what it was, and empty."""
    with unseen(master):
        for path in (master.pki_dir / "minions").glob("[!.]*"):
            path.unlink()


def configure(master: Master, *, ha: Mapping[str, Any] | None = None, **settings: Any) -> None:
    """Change options in the file, those in *ha* below ``ha:``; the running master does not know."""
    now = yaml.safe_load(master.config_file.read_text())
    now = {**now, **settings, "ha": {**now["ha"], **(ha or {})}}
    master.config_file.write_text(yaml.safe_dump(now))


def write_sources(lab: Lab, files: Mapping[str, str]) -> None:
    """Write *files*, by their paths in the folder that trees are deployed from."""
    for path, text in files.items():
        file = lab.root / "git" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def add_master_with_trees(
    lab: Lab, name: str, config: Mapping[str, Any] | None = None, **options: Any
) -> Master:
    """
    A master that serves two trees, ``states`` and the secret ``pillar``, from folders of its own.

    :param options: as for :meth:`.Lab.add_master`.
    """
    own = lab.root / "srv" / name
    own.mkdir(parents=True)
    trees = {
        tree: {
            "source": str(lab.root / "git" / tree),
            "live": str(own / tree),
            "secret": tree == "pillar",
        }
        for tree in ("states", "pillar")
    }
    roots = {
        f"{option}_roots": {"base": [trees[tree]["live"]]}
        for option, tree in (("file", "states"), ("pillar", "pillar"))
    }
    whole = {**roots, **(config or {})}
    return lab.add_master(name, ha={**QUICK, "trees": trees}, config=whole, **options)
