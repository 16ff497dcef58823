"""
Invariant I6: what was decided survives ``kill -9`` at any point, on any master of the group.

Real engines on real folders. In every case one process kills itself at a named point (see
``saltext_ha/common/fail_points.py``) in the middle of a piece of work, and is started again. What
holds then is looked at from outside: key files, rotate files, pinned certificates, the master key.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from lab.key_folders import FOLDERS, public_keys
from lab.wait import wait_for
from saltext_ha.common.fail_points import POINTS, Point
from saltext_ha.keystore import minion_key
from saltext_ha.transport.trust import Trust
from tests import runner
from tests.keys import JUNK
from tests.processes import ACCEPTED, PENDING, REJECTED, SOON, Group, Keys, Master

KEYS = dict(zip((f"web{number}" for number in range(12)), public_keys(7), strict=False))
OTHER_KEY = next(public_keys(8))
# So many that they are written by several threads.
MANY = dict(zip((f"db{number}" for number in range(48)), public_keys(9), strict=False))
# Accepted at first; to be rejected, deleted, left alone. Pending at first; to be accepted, left.
REJECT, DELETE, KEEP = ["web0", "web1"], ["web2", "web3"], ["web4"]
ACCEPT, WAIT = ["web5", "web6"], ["web7"]

Scene = Callable[[Path, Point, int], None]
CASES: list[tuple[Scene, Point, int]] = []
groups: list[Group] = []


def case(*points: Point | tuple[Point, int]) -> Callable[[Scene], Scene]:
    """Run the decorated scene once for each of *points*, or its n-th passing."""

    def add(scene: Scene) -> Scene:
        for entry in points:
            point, times = entry if isinstance(entry, tuple) else (entry, 1)
            CASES.append((scene, point, times))
        return scene

    return add


@pytest.fixture(autouse=True)
def end_all() -> Iterator[None]:
    yield
    while groups:
        groups.pop().kill()


def group_of(root: Path, *names: str) -> Group:
    group = Group(root, *names)
    groups.append(group)
    return group


def in_folder(folder: str, *ids: str) -> Keys:
    return {(folder, minion_id): (KEYS | MANY)[minion_id] for minion_id in ids}


def settle(folder: Path) -> None:
    """Nobody has written these keys for long: they need not be written anew."""
    for path in folder.iterdir():
        os.utime(path, (1, 1))


def unlike_ours(folder: Path) -> None:
    """These files are not as the engine would write them: they are written anew."""
    for path in folder.iterdir():
        path.write_text(path.read_text() + "\n")


def two_masters(root: Path) -> tuple[Group, Master, Master]:
    """Two that run, and show the same accepted and pending keys."""
    group = group_of(root, "m1", "m2")
    m1, m2 = group.masters
    for master in (m1, m2):
        master.knock({i: KEYS[i] for i in [*REJECT, *DELETE, *KEEP, *ACCEPT, *WAIT]})
        master.accept(*REJECT, *DELETE, *KEEP)
        # Who follows an acceptance links files then, and writes them for a rejection.
        settle(master.pki_dir / PENDING)
        unlike_ours(master.pki_dir / ACCEPTED)
    group.start()
    group.comes_to(
        in_folder(ACCEPTED, *REJECT, *DELETE, *KEEP) | in_folder(PENDING, *ACCEPT, *WAIT)
    )
    assert not m1.rotation.exists()
    assert not m2.rotation.exists()
    return group, m1, m2


def decide(master: Master) -> Keys:
    """What an operator does there with ``salt-key``, and what is to be everywhere then."""
    master.accept(*ACCEPT)
    master.reject(*REJECT)
    master.delete(*DELETE)
    return (
        in_folder(ACCEPTED, *KEEP, *ACCEPT)
        | in_folder(PENDING, *WAIT)
        | in_folder(REJECTED, *REJECT)
    )


@case("reconcile.record", ("reconcile.record", 2), "reconcile.done")
def the_operators_master_dies(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    with m1.dying(point, times):
        expected = decide(m1)
        m1.ask("sync")
    group.comes_to(expected)
    assert m2.rotation.exists()


@case(
    "reconcile.begin",
    "reconcile.record",
    "reconcile.done",
    ("reconcile.done", 2),
    "store.write",
    ("store.write", 2),
    "store.rename",
    ("store.rename", 4),
    "store.sync",
    ("store.sync", 4),
    "store.remove",
    ("store.remove", 3),
    "apply.store",
    ("apply.store", 2),
    "apply.done",
    "revoke.begin",
    "revoke.rotate",
    "revoke.clean",
    "revoke.done",
    "revoke.marked",
)
def a_master_dies_while_it_follows(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    with m2.dying(point, times):
        expected = decide(m1)
        m1.ask("sync")
    group.comes_to(expected)
    assert m2.rotation.exists()


@case("apply.begin", "store.rename", "store.remove", "apply.store", "apply.done")
def a_master_dies_when_it_is_resumed(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    before = m2.shown()
    m2.ask("pause")
    expected = decide(m1)
    m1.ask("sync")
    assert m2.shown() == before
    with m2.dying(point, times):
        m2.ask("resume")
    group.comes_to(expected)
    assert m2.rotation.exists()


@case(("store.write", 30), ("store.rename", 30), ("store.remove", 30))
def a_master_dies_while_it_writes_many(root: Path, point: Point, times: int) -> None:
    _follow_many(root, point, times, unlike_ours)


@case(("store.rename", 30), ("store.remove", 30))
def a_master_dies_while_it_moves_many(root: Path, point: Point, times: int) -> None:
    _follow_many(root, point, times, settle)


def _follow_many(root: Path, point: Point, times: int, prepare: Callable[[Path], None]) -> None:
    group = group_of(root, "m1", "m2")
    m1, m2 = group.masters
    m1.knock(MANY)
    group.start()
    group.comes_to(in_folder(PENDING, *MANY))
    prepare(m2.pki_dir / PENDING)
    with m2.dying(point, times):
        m1.accept(*MANY)
        m1.ask("sync")
    group.comes_to(in_folder(ACCEPTED, *MANY))
    leftovers = [path for folder in FOLDERS for path in (m2.pki_dir / folder).glob(".*.ha")]
    assert not leftovers


@case("apply.junk")
def a_master_where_junk_knocked_dies(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    junk = m2.pki_dir / PENDING / "web10"
    junk.write_text(JUNK)
    os.utime(junk, (1, 1))
    m2.ask("sync")
    m1.knock({"web10": KEYS["web10"]})
    with m2.dying(point, times):
        expected = decide(m1)
        m1.accept("web10")
        m1.ask("sync")
    group.comes_to(expected | in_folder(ACCEPTED, "web10"))


@case(("reconcile.record", 2), ("reconcile.done", 2), "decide.done")
def two_accept_different_keys(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    m2.engine.kill()
    m1.knock({"db": KEYS["web10"]})
    m1.accept("db")
    m1.accept(*ACCEPT)
    m1.ask("sync")
    m2.knock({"db": OTHER_KEY})
    m2.accept("db")

    if point == "decide.done":
        m2.engine.start()
    else:
        with m2.dying(point, times):
            m2.engine.launch()
    common = in_folder(ACCEPTED, *REJECT, *DELETE, *KEEP, *ACCEPT) | in_folder(PENDING, *WAIT)
    mine, theirs = {(ACCEPTED, "db"): KEYS["web10"]}, {(ACCEPTED, "db"): OTHER_KEY}
    for master in (m1, m2):
        wait_for(lambda m=master: m.ask("status")["conflicts"], SOON, f"{master.name} knows")
        wait_for(lambda m=master: ACCEPT[1] in str(m.shown()), SOON, f"{master.name} has the rest")
    wait_for(lambda: m2.shown() == common | theirs, SOON, "m2 keeps its own and has the rest")
    assert m1.shown() == common | mine
    right = minion_key.show(minion_key.fingerprint(OTHER_KEY), short=False)
    if point == "decide.done":
        with m1.dying(point, times):
            m1.ask("resolve", minion="db", fingerprint=right)
    else:
        m1.ask("resolve", minion="db", fingerprint=right)
    group.comes_to(common | theirs)
    assert m1.rotation.exists()


@case("hold.done")
def a_key_folder_vanishes(root: Path, point: Point, times: int) -> None:
    group = group_of(root, "m1", "m2")
    m1, m2 = group.masters
    for master in (m1, m2):
        master.knock(KEYS)
        master.accept(*KEYS)
    group.start()
    everything = in_folder(ACCEPTED, *KEYS)
    group.comes_to(everything)
    folder, away = m2.pki_dir / ACCEPTED, m2.pki_dir / "unmounted"
    with m2.dying(point, times):
        folder.rename(away)
        folder.mkdir()
    wait_for(lambda: m2.ask("status")["held"], SOON, "m2 holds the change back")
    assert m1.shown() == everything
    folder.rmdir()
    away.rename(folder)
    group.comes_to(everything)
    assert not m1.rotation.exists()


@case("replica.created", "adopt.begin", "adopt.record", "adopt.done", "sign.write", "sign.done")
def a_replica_is_lost(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    m2.engine.kill()
    expected = decide(m1)
    m1.ask("sync")
    # What lies there is of no known age: decided by nobody, as far as the group can know.
    m2.reject(*KEEP)
    for file in m2.place.config.state_dir.glob("replica.db*"):
        file.unlink()
    with m2.dying(point, times):
        m2.engine.launch()
    group.comes_to(expected)


@case("replica.node", "apply.store")
def a_master_dies_while_it_catches_up(root: Path, point: Point, times: int) -> None:
    group, m1, m2 = two_masters(root)
    m2.engine.kill()
    expected = decide(m1)
    m1.ask("sync")
    with m2.dying(point, times):
        m2.engine.launch()
    group.comes_to(expected)
    assert m2.rotation.exists()


@case("identity.certificate", "file.sync")
def a_master_dies_at_its_first_start(root: Path, point: Point, times: int) -> None:
    group = group_of(root, "m1")
    (m1,) = group.masters
    for file in m1.place.config.state_dir.iterdir():
        if file.is_file():
            file.unlink()
    m1.knock({"web0": KEYS["web0"]})
    with m1.dying(point, times):
        m1.engine.launch()
    group.comes_to(in_folder(PENDING, "web0"))


# -- members


def new_pair(master: Master) -> dict[str, bytes]:
    """A key pair for that master, as Salt would have made one at its first start."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = {
        "master.pem": key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        ),
        "master.pub": key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ),
    }
    for name, content in pair.items():
        (master.pki_dir / name).write_bytes(content)
    return pair


def assert_pair_is_whole(master: Master) -> None:
    """Salt finds a private half, from which it can make the other, and none that does not fit."""
    private, public = master.pki_dir / "master.pem", master.pki_dir / "master.pub"
    key = load_pem_private_key(private.read_bytes(), None).public_key()
    if public.exists():
        derived = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        assert public.read_bytes().split() == derived.split()


def trusts(master: Master) -> set[str]:
    return set(Trust(master.place.config.state_dir).peers())


def all_trust_each_other(*masters: Master) -> None:
    names = {master.name for master in masters}
    for master in masters:
        wait_for(
            lambda m=master: trusts(m) == names - {m.name},
            SOON,
            f"{master.name} trusts all others of {sorted(names)} and nobody else",
        )


def token_of(master: Master) -> str:
    made = runner.run(master.place, "invite", share_master_key=True)
    return Path(made["token_file"]).read_text()


def file_with(token: str, master: Master) -> str:
    """As an operator copies it to *master*."""
    path = master.pki_dir / "token"
    path.touch(mode=0o600)
    path.write_text(token)
    return str(path)


def let_join(master: Master, token: str) -> int:
    """The exit status of ``salt-run ha.join``."""
    file = file_with(token, master)
    return int(runner.run(master.place, "join", token_file=file, force=True)["retcode"])


def two_and_a_stranger(root: Path) -> tuple[Group, Master, Master, Master]:
    """A group of two, and a master with keys of its own that is to join it."""
    group = group_of(root, "m1", "m2")
    m1, m2 = group.masters
    m1.knock({i: KEYS[i] for i in (*ACCEPT, *KEEP)})
    m1.accept(*ACCEPT)
    stranger = Group(root, "m3").masters[0]
    group.masters.append(stranger)
    stranger.knock({i: KEYS[i] for i in (*KEEP, *WAIT)})
    stranger.accept(*KEEP)
    group.start()
    return group, m1, m2, stranger


UNITED = in_folder(ACCEPTED, *ACCEPT, *KEEP) | in_folder(PENDING, *WAIT)


@case(
    "join.pin",
    ("join.pin", 2),
    "join.done",
    "handover.aside",
    ("handover.aside", 2),
    "handover.private",
    "handover.public",
    ("file.rename", 4),
    "handover.done",
)
def the_master_that_joins_dies(root: Path, point: Point, times: int) -> None:
    group, m1, m2, m3 = two_and_a_stranger(root)
    shared, own = new_pair(m1), new_pair(m3)
    token = token_of(m1)
    with m3.failing(f"KILL {point} {times}"):
        given = {"token_file": file_with(token, m3), "force": True}
        joining = runner.start(m3.place, "join", m3.environment, **given)
        assert joining.wait(SOON) == -signal.SIGKILL
    assert_pair_is_whole(m3)
    assert let_join(m3, token) == 0
    for name, content in shared.items():
        assert (m3.pki_dir / name).read_bytes() == content
        assert own[name] in {kept.read_bytes() for kept in m3.pki_dir.glob(f"{name}.before-*")}
    all_trust_each_other(m1, m2, m3)
    group.comes_to(UNITED)


@case("invite.consume", "invite.pin", "invite.tell", "invite.reply")
def the_master_that_invites_dies(root: Path, point: Point, times: int) -> None:
    group, m1, m2, m3 = two_and_a_stranger(root)
    shared = new_pair(m1)
    token = token_of(m1)
    with m1.dying(point, times):
        assert let_join(m3, token) == 2
    assert let_join(m3, token) == 0
    for name, content in shared.items():
        assert (m3.pki_dir / name).read_bytes() == content
    all_trust_each_other(m1, m2, m3)
    group.comes_to(UNITED)


@case(
    "leave.tell",
    ("leave.tell", 2),
    "leave.unpin",
    ("leave.unpin", 2),
    "leave.done",
    "identity.drop",
)
def a_master_that_leaves_dies(root: Path, point: Point, times: int) -> None:
    group = group_of(root, "m1", "m2", "m3")
    m1, m2, m3 = group.masters
    m1.knock({i: KEYS[i] for i in (*ACCEPT, *WAIT)})
    group.start()
    group.comes_to(in_folder(PENDING, *ACCEPT, *WAIT))
    m1.accept(*ACCEPT)
    m1.ask("sync")
    with m3.dying(point, times):
        m3.ask("leave")
    m3.ask("leave")  # the operator got no answer, and tries again
    all_trust_each_other(m1, m2)
    assert trusts(m3) == set()
    expected = in_folder(ACCEPTED, *ACCEPT) | in_folder(PENDING, *WAIT)
    group.comes_to(expected, among=(m1, m2))
    new_pair(m1)
    m3.engine.kill()
    m3.engine.start()
    assert let_join(m3, token_of(m1)) == 0
    all_trust_each_other(m1, m2, m3)
    group.comes_to(expected)


@case("file.rename", "remove.unpin", "remove.tell")
def a_master_that_removes_another_dies(root: Path, point: Point, times: int) -> None:
    group = group_of(root, "m1", "m2", "m3")
    m1, m2, m3 = group.masters
    m1.knock({i: KEYS[i] for i in (*ACCEPT, *WAIT)})
    group.start()
    group.comes_to(in_folder(PENDING, *ACCEPT, *WAIT))
    m3.engine.kill()
    with m1.dying(point, times):
        m1.ask("remove_peer", name="m3")
    m1.ask("remove_peer", name="m3")
    m1.accept(*ACCEPT)
    expected = in_folder(ACCEPTED, *ACCEPT) | in_folder(PENDING, *WAIT)
    all_trust_each_other(m1, m2)
    group.comes_to(expected, among=(m1, m2))
    # It was not stolen after all: back under a new certificate.
    new_pair(m1)
    m3.engine.start()
    m3.ask("leave")
    m3.engine.kill()
    m3.engine.start()
    assert let_join(m3, token_of(m1)) == 0
    all_trust_each_other(m1, m2, m3)
    group.comes_to(expected)


def _name(entry: tuple[Scene, Point, int]) -> str:
    scene, point, times = entry
    return f"{scene.__name__}-{point}" + (f"-{times}" if times > 1 else "")


@pytest.mark.parametrize("entry", CASES, ids=_name)
def test_killed(tmp_path: Path, entry: tuple[Scene, Point, int]) -> None:
    scene, point, times = entry
    scene(tmp_path, point, times)


def test_there_is_a_case_for_every_point() -> None:
    # That it is reached, each case sees itself: the process would not die.
    # Those of trees: functional/trees. A look changes nothing.
    keys = {point for point in POINTS if not point.startswith(("tree.", "state."))}
    assert {point for _, point, _ in CASES} == keys
