"""What a member that turned did is found, whoever was told of it, and undone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place
from saltext_ha.commands.membership import deeds, undoing
from saltext_ha.commands.membership.introductions import Pin, introduced_by
from saltext_ha.commands.membership.undoing import Undo, undo
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.reconciler import merging
from saltext_ha.replica.history import Write
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, REJECTED, Dot, Record, Value
from saltext_ha.replication.vouching import Vouch
from saltext_ha.sync.codec import to_wire
from saltext_ha.transport import fingerprints
from saltext_ha.transport.trust import Trust
from tests.engines import delete, level, met, places, put, run, running
from tests.keys import public_key
from tests.loop import in_a_loop, until
from tests.turned import YEAR, Turned

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

KEYS = [public_key(number) for number in range(4)]
PRINTS = [minion_key.fingerprint(key) for key in KEYS]
RECORD = Record("web1", PRINTS[0], KEYS[0])


def there(place: Place) -> dict[str, str]:
    """id → folder, of all keys of a master."""
    return {
        path.name: folder
        for folder in ("minions", "minions_pre", "minions_rejected")
        for path in (place.pki_dir / folder).glob("[!.]*")
    }


@contextlib.asynccontextmanager
async def with_a_thief(root: Path) -> AsyncIterator[tuple[Engine, Engine, Turned]]:
    """m1 and m2 run; m3 is pinned on both, and in other hands."""
    one, two, three = places(root, "m1", "m2", "m3")
    async with met(one, two) as (m1, m2):
        for place in (one, two):
            Trust(place.config.state_dir).pin(three.peer)
        yield m1, m2, Turned(three.config.state_dir, "m3")


async def undone(m1: Engine, m2: Engine, left: dict[str, str]) -> dict[str, Any]:
    """
    What ``ha.remove_peer`` on m1 tells of m3, with all that it did in the last hour undone; the
    key files that are *left* are there on both when this returns.
    """
    told = await run(m1.place, "remove_peer", "m3", undo=True, since="1h")
    assert told["retcode"] == 0, told
    await until(lambda: there(m1.place) == there(m2.place) == left, "undone")
    return told


async def misbehave(m1: Engine, m2: Engine, thief: Turned, root: Path) -> Turned:
    """All that a member can do, told to m2 alone; the member that it brings in tells m1."""
    for minion_id in ("web1", "web2", "web4"):
        put(m1.place, minion_id)
    put(m2.place, "web3", folder="minions_pre")
    every = {"web1": "minions", "web2": "minions", "web3": "minions_pre", "web4": "minions"}
    await until(lambda: there(m1.place) == there(m2.place) == every, "all have the keys")
    peer, now = m2.place.peer, time.time()
    await thief.decide(peer, "backdoor", ACCEPTED, KEYS[1], at=now - YEAR)
    await thief.decide(peer, "web1", DELETED, KEYS[0], at=now - YEAR)
    await thief.decide(peer, "web2", REJECTED, KEYS[0], at=now, by="", on="m2")
    await thief.decide(peer, "web3", ACCEPTED, KEYS[0], at=now + YEAR)
    friend = Turned(root / "friend", "x1", "d" * 16)
    await thief.introduce(peer, friend, "https://127.0.0.1:1")
    await until(lambda: "x1" in m1.parts.trust.peers(), "m1 hears of it", 90)
    await friend.decide(m1.place.peer, "backdoor2", ACCEPTED, KEYS[2], at=0.0, on="m2")
    now_there = {
        "web2": "minions_rejected",
        "web3": "minions",
        "web4": "minions",
        "backdoor": "minions",
        "backdoor2": "minions",
    }
    await until(lambda: there(m1.place) == there(m2.place) == now_there, "all is done")
    await level(m1, m2)
    return friend


@in_a_loop
async def test_all_that_it_did_is_shown_and_undone_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saltext_ha.engine.member_loop.MEMBERS_INTERVAL", 0.2)
    monkeypatch.setattr(deeds, "PORTION", 2)
    began = time.time()
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        await misbehave(m1, m2, thief, tmp_path)
        one = m1.place
        before = there(one)
        # Told to m2 alone, so m1 has it from m2: that alone would hide it.
        shown = await run(one, "history", "backdoor", since="1h")
        assert [line["from"] for line in shown["writes"]] == ["m2"]
        plan = await run(one, "remove_peer", "m3", undo=True, since="1h", test=True)
        assert there(one) == there(m2.place) == before
        assert "m3" in m1.parts.trust.peers()
        # Those that are to go need not answer.
        assert (plan["retcode"], plan["unknown"]) == (0, {})
        assert [(row["name"], row["introducer"]) for row in plan["members"]] == [("x1", "m3")]
        fates = {row["id"]: (row["what"], row["state"], row["to"]) for row in plan["keys"]}
        assert fates == {
            "backdoor": (ACCEPTED, ACCEPTED, PENDING),
            "backdoor2": (ACCEPTED, ACCEPTED, PENDING),
            "web1": (DELETED, DELETED, ACCEPTED),
            "web2": (REJECTED, REJECTED, ACCEPTED),
            "web3": (ACCEPTED, ACCEPTED, PENDING),
        }
        back = next(row for row in plan["keys"] if row["id"] == "backdoor")
        assert (back["from"], back["by"], back["on"]) == ("m3", "alice", "m1")
        assert back["at"] < began - 60 < began <= back["received"] <= time.time()

        done = await run(one, "remove_peer", "m3", undo=True, since="1h")
        assert done["retcode"] == 0, done
        clean = {
            "backdoor": "minions_pre",
            "backdoor2": "minions_pre",
            "web1": "minions",
            "web2": "minions",
            "web3": "minions_pre",
            "web4": "minions",
        }
        await until(lambda: there(one) == there(m2.place) == clean, "all is undone")
        trusts = [engine.parts.trust for engine in (m1, m2)]
        await until(lambda: [len(trust.peers()) for trust in trusts] == [1, 1], "both are out")
        # Again, when it is out already: nothing is left to do.
        again = await run(one, "remove_peer", "m3", undo=True, since="all")
        assert (again["retcode"], {row["to"] for row in again["keys"]}) == (0, {""})
        await level(m1, m2)


@in_a_loop
async def test_without_undo_it_is_only_told(tmp_path: Path) -> None:
    async with with_a_thief(tmp_path) as (m1, _, thief):
        await thief.decide(m1.place.peer, "backdoor", ACCEPTED, KEYS[1], at=0.0)
        told = await run(m1.place, "remove_peer", "m3")
        assert told["retcode"] == 0, told
        assert [row["to"] for row in told["keys"]] == [PENDING]
        assert "undo=True since=7d" in " ".join(told["notes"])
        await until(lambda: there(m1.place) == {"backdoor": "minions"}, "it is written")
        refused = await run(m1.place, "remove_peer", "m3", undo=True)
        assert "since=2d" in refused["error"]
        assert (await run(m1.place, "remove_peer", "m9"))["retcode"] == 2
        itself = await run(m1.place, "remove_peer", m1.place.name)
        assert "is this master: salt-run ha.leave  takes it out" in itself["error"]


async def disowning(m1: Engine, m2: Engine, thief: Turned) -> tuple[Turned, Vouch]:
    """
    *thief* under a node's name by which it has accepted a key, and its word that this node has
    written nothing.
    """
    owner = fingerprints.digest(thief.identity.fingerprint)
    word = Vouch(owner, b"nonce..8", 0)
    mine = Turned(thief.identity.key_file.parent, "m3", word.node)
    await mine.decide(m1.place.peer, "backdoor", ACCEPTED, KEYS[1], at=0.0)
    await level(m1, m2)
    return mine, word


@in_a_loop
async def test_before_one_that_runs_is_removed_its_minions_are_thought_of(tmp_path: Path) -> None:
    async with met(*places(tmp_path, "m1", "m2")) as (m1, m2):
        planned = await run(m1.place, "remove_peer", "m2", test=True)
        assert "salt-run ha.drain m2, then salt-run ha.leave there" in planned["notes"][-1]
        leaving = await run(m2.place, "leave", test=True)
        assert "salt-run ha.drain m2 moves them before" in leaving["notes"][1]
        await m2.stop()
        await until(lambda: not m1.parts.group.contacts["m2"].up, "m2 is down")
        planned = await run(m1.place, "remove_peer", "m2", test=True)
        assert "ha.drain" not in " ".join(planned["notes"])


@in_a_loop
async def test_what_it_disowns_is_not_taken_for_what_others_decided(tmp_path: Path) -> None:
    """It accepts a key by a write that it then says it has not made."""
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        mine, word = await disowning(m1, m2, thief)
        for engine in (m1, m2):
            said = [list(mine.signed(word))]
            await mine.tell(engine.place.peer, "hello", {"vouched": said})

        def gone() -> bool:
            replicas = [engine.parts.core.replica for engine in (m1, m2)]
            records = [r.get("backdoor")[PRINTS[1]] for r in replicas]
            return not any(word.node in dict(record.context) for record in records)

        await until(gone, "what it disowns is out")
        await level(m1, m2)
        told = await undone(m1, m2, {"backdoor": "minions_pre"})
        assert [(row["id"], row["to"]) for row in told["keys"]] == [("backdoor", PENDING)]


@in_a_loop
async def test_a_knock_that_swallowed_a_decision_is_undone(tmp_path: Path) -> None:
    """It turns keys that others decided about pending: it claims to have seen that, and knocks."""
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        put(m1.place, "web1", folder="minions_rejected")
        put(m1.place, "web2")
        put(m1.place, "web3", folder="minions_pre")
        before = {"web1": "minions_rejected", "web2": "minions", "web3": "minions_pre"}
        await until(lambda: there(m2.place) == before, "all have the keys")
        for minion_id in before:
            await thief.decide(m2.place.peer, minion_id, PENDING, KEYS[0], at=0.0)
        await until(lambda: there(m1.place) == dict.fromkeys(before, "minions_pre"), "all pend")
        told = await undone(m1, m2, before)
        assert {row["id"]: (row["what"], row["to"]) for row in told["keys"]} == {
            "web1": (PENDING, REJECTED),
            "web2": (PENDING, ACCEPTED),
        }
        assert told["knocks"] == 3


@in_a_loop
async def test_what_it_disowns_beside_records_is_cut_at_once(tmp_path: Path) -> None:
    """
    It disowns a write to m2 only; m1 first hears that beside a record, from m2. What then stands in
    the place of the write was its, and not m2's.
    """
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        mine, word = await disowning(m1, m2, thief)
        said = {"vouched": [list(mine.signed(word))]}
        (claimed,) = (await thief.known(m1.place.peer, "backdoor")).values()
        friend = Turned(m2.place.config.state_dir, "m2")
        beside = {"records": [to_wire(claimed._replace(minion_id="web9"))], **said}
        answer = await friend.tell(m1.place.peer, "push", beside)
        # Nothing of what m2 sent before is refused; what was m3's is.
        assert "web9" in str(answer["refused"])
        assert "backdoor" not in str(answer["refused"])
        (left,) = m1.known(lambda of: of.get("backdoor")).values()
        assert word.node not in dict(left.context)
        status = await run(m1.place, "status")
        noted = [row["note"] for row in status["masters"] if row["self"]]
        assert "not taken from m3: record of 'backdoor'" in str(noted)
        told = await undone(m1, m2, {"backdoor": "minions_pre"})
        assert [(row["id"], row["to"]) for row in told["keys"]] == [("backdoor", PENDING)]


@in_a_loop
async def test_what_it_says_under_the_name_of_another_write_is_found(tmp_path: Path) -> None:
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        put(m2.place, "web1")
        await until(lambda: there(m1.place) == {"web1": "minions"}, "accepted")
        (made,) = m2.known(lambda of: of.get("web1")).values()
        for number, minion_id in enumerate(("backdoor", "backdoor2")):
            print_, key = PRINTS[number + 1], KEYS[number + 1]
            forged = made._replace(minion_id=minion_id, fingerprint=print_, public_key=key)
            await thief.push(m1.place.peer, forged)
        await thief.push(m2.place.peer, made._replace(values=rejected(made)))
        await level(m1, m2)
        clean = {"backdoor": "minions_pre", "backdoor2": "minions_pre", "web1": "minions"}
        told = await undone(m1, m2, clean)
        fates = {row["id"]: (row["state"], row["to"]) for row in told["keys"]}
        assert fates == {
            "backdoor": (ACCEPTED, PENDING),
            "backdoor2": (ACCEPTED, PENDING),
            "web1": (REJECTED, ACCEPTED),
        }


def rejected(record: Record) -> tuple[Value, ...]:
    return tuple(value._replace(state=REJECTED) for value in record.values)


@in_a_loop
async def test_what_another_made_and_it_only_passed_on_is_not_its(tmp_path: Path) -> None:
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        # m2 decides while it does not reach m1, and m3 is the first to tell m1 of it.
        put(m2.place, "web1")
        await m2.notice("web1")
        known = await thief.known(m2.place.peer, "web1")
        await thief.push(m1.place.peer, *known.values())
        await thief.decide(m1.place.peer, "backdoor", ACCEPTED, KEYS[1], at=0.0, on="m2")
        told = await run(m1.place, "remove_peer", "m3", undo=True, since="1h")
        assert [row["id"] for row in told["keys"]] == ["backdoor"]
        left = {"backdoor": "minions_pre", "web1": "minions"}
        await until(lambda: there(m1.place) == left, "undone")


@in_a_loop
async def test_a_master_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        await thief.decide(m2.place.peer, "backdoor", ACCEPTED, KEYS[1], at=0.0)
        await level(m1, m2)
        await m2.stop()
        told = await run(m1.place, "remove_peer", "m3", undo=True, since="1h")
        assert told["retcode"] == 2
        assert list(told["unknown"]) == ["m2"]
        # Only m2 knows who told of it.
        assert told["keys"] == []
        async with running(m2.place) as (back,):
            await m1.meets(back)
            told = await run(m1.place, "remove_peer", "m3", undo=True, since="1h")
            assert (told["retcode"], [row["to"] for row in told["keys"]]) == (0, [PENDING])
            await until(lambda: there(back.place) == {"backdoor": "minions_pre"}, "undone")


# -- what follows from what


def pin(
    on: str, name: str, introducer: str | None, added: str = "2026-11-01T00:00:00+00:00"
) -> Pin:
    return Pin(on, name, "ab", introducer, added)


def test_whom_it_introduced() -> None:
    pins = [
        pin("m1", "m3", ""),
        pin("m2", "m3", "m1"),
        # Told to m2, which told m1; and x1 told of another.
        pin("m2", "x1", "m3"),
        pin("m1", "x1", "m2"),
        pin("m1", "x2", "x1"),
        pin("x1", "x2", ""),
        # m3 was only the first to tell of whom m1 let in.
        pin("m2", "m4", "m3"),
        pin("m1", "m4", ""),
        pin("m4", "m1", "m3"),
        pin("m1", "m2", None),
    ]
    assert set(introduced_by("m3", pins, "m1")) == {"x1", "x2"}
    later = Pin("m1", "", "", "", "2026-11-02T00:00:00+00:00").at
    assert introduced_by("m3", pins, "m1", later) == {}
    assert set(introduced_by("x1", pins, "m1")) == {"x2"}


def test_nobody_whom_it_introduced_clears_itself_or_another_or_accuses_others() -> None:
    pins = [
        pin("m1", "m3", ""),
        pin("m1", "x1", "m3"),
        pin("m1", "x2", "m3"),
        pin("m1", "m2", None),
        pin("m1", "m4", None),
    ]
    assert set(introduced_by("m3", pins, "m1")) == {"x1", "x2"}
    lies = [
        pin("x1", "x1", ""),
        pin("x1", "x2", ""),
        pin("x2", "x1", ""),
        pin("x1", "m4", "m3"),
        pin("x2", "m1", "m3"),
        pin("x2", "m2", "m3"),
    ]
    assert set(introduced_by("m3", pins + lies, "m1")) == {"x1", "x2"}
    # m3 was the first to tell of one whom an honest master let in, and that let in another.
    honest = [
        pin("m1", "m5", "m3"),
        pin("m2", "m5", ""),
        pin("m1", "m6", "m3"),
        pin("m5", "m6", ""),
        pin("m6", "m5", ""),
    ]
    assert set(introduced_by("m3", pins + lies + honest, "m1")) == {"x1", "x2"}


def test_what_is_no_fingerprint_keeps_nobody_from_removing() -> None:
    with pytest.raises(InvalidRecord):
        deeds._pin("m2", ["x1", "ab", "m3", ""])


def value(dot: Dot, state: str) -> Value:
    return Value(dot, state, 0.0, "", "")


def test_what_becomes_of_a_key() -> None:
    mine, theirs, other = Dot("a" * 16, 1), Dot("e" * 16, 1), Dot("b" * 16, 1)
    key = PRINTS[0]

    def fate(now: list[tuple[Dot, str]], past: list[tuple[Dot, str]]) -> Undo:
        values = tuple(value(dot, state) for dot, state in now)
        record = RECORD._replace(values=values, context=tuple((d.node, 1) for d, _ in now))
        return undo(key, {key: record}, {theirs}, past)

    assert undo(key, {}, {theirs}, []) == Undo("", undoing.GONE)
    assert fate([(mine, ACCEPTED)], []) == Undo("", undoing.OVERRULED)
    assert fate([(theirs, ACCEPTED)], [(theirs, ACCEPTED), (mine, PENDING)]) == Undo(PENDING)
    assert fate([(theirs, ACCEPTED)], [(theirs, ACCEPTED), (mine, DELETED)]) == Undo(DELETED)
    past = [(theirs, DELETED), (other, ACCEPTED), (mine, REJECTED)]
    assert fate([(theirs, DELETED)], past) == Undo(ACCEPTED)
    assert fate([(theirs, DELETED)], [(theirs, DELETED)]) == Undo("", undoing.NOBODY_ELSE)
    # Side by side with what somebody else said meanwhile.
    assert fate([(mine, ACCEPTED), (theirs, REJECTED)], []) == Undo(ACCEPTED)
    assert fate([(mine, REJECTED), (theirs, ACCEPTED)], []) == Undo("", undoing.OTHERS_TOO)
    assert fate([(mine, PENDING), (theirs, ACCEPTED)], []) == Undo(PENDING)
    # A knock of its that claims to have seen what others decided.
    for decided in (ACCEPTED, REJECTED):
        past = [(theirs, PENDING), (mine, decided), (other, DELETED)]
        assert fate([(theirs, PENDING)], past) == Undo(decided)
        assert fate([(other, PENDING), (theirs, PENDING)], past) == Undo(decided)
        assert fate([(other, PENDING)], past) == Undo("", undoing.OVERRULED)
    # As any knock, after what all masters dropped, or while nobody has decided.
    assert fate([(theirs, PENDING)], [(theirs, PENDING), (mine, DELETED)]).target == ""
    assert fate([(theirs, PENDING)], [(theirs, PENDING)]).target == ""
    assert fate([(mine, DELETED), (theirs, PENDING)], [(mine, DELETED)]).target == ""


def test_two_keys_of_one_minion_are_never_accepted_by_undoing() -> None:
    a, b = PRINTS[:2]
    gone = RECORD._replace(values=(value(Dot("e" * 16, 1), DELETED),))
    held = RECORD._replace(fingerprint=b, values=(value(Dot("a" * 16, 1), ACCEPTED),))
    plans = undoing.without_conflicts({a: Undo(ACCEPTED)}, {a: gone, b: held})
    assert plans == {a: Undo("", undoing.ANOTHER)}
    # The other one is the thief's, and goes.
    both = {a: Undo(ACCEPTED), b: Undo(PENDING)}
    assert undoing.without_conflicts(both, {a: gone, b: held}) == both


# -- records that claim what nobody wrote


async def poison(thief: Turned, engine: Engine, minion_id: str, **claims: int) -> None:
    """Have a record claim writes: it says what it said, and names more than there are."""
    (known,) = (await thief.known(engine.place.peer, minion_id)).values()
    context = tuple(sorted({**dict(known.context), **claims}.items()))
    await thief.push(engine.place.peer, known._replace(context=context))


def wide() -> dict[str, int]:
    return {f"{number:016x}": 1 for number in range(4000)}


@in_a_loop
async def test_a_record_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        put(m1.place, "web1")
        await until(lambda: there(m2.place) == {"web1": "minions"}, "accepted")
        for claims in (wide(), {m1.parts.core.replica.node: 2**53 - 1}):
            await poison(thief, m2, "web1", **claims)
        await m2.parts.core.scan()
        await delete(m1, "web1")
        await until(lambda: there(m2.place) == {}, "deleted on m2, too")
        await level(m1, m2)
        found = await run(m1.place, "rewrite", "*")
        assert (found["retcode"], found["changes"]) == (0, [])
        assert "claims more" in (await run(m1.place, "rewrite", "web1"))["error"]


@in_a_loop
async def test_a_revocation_passes_beside_what_it_claims(tmp_path: Path) -> None:
    """An older release still has a record that claims writes of nobody, and decides about it."""
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        put(m1.place, "web1")
        await until(lambda: there(m2.place) == {"web1": "minions"}, "accepted")
        (known,) = (await thief.known(m2.place.peer, "web1")).values()
        gone = value(Dot("b" * 16, 1), DELETED)
        claims = {**dict(known.context), "b" * 16: 1, "c" * 16: 2**53 - 1}
        record = known._replace(values=(gone,), context=tuple(sorted(claims.items())))
        answer = await thief.push(m2.place.peer, record)
        assert "salt-run ha.rewrite" in str(answer["refused"])
        await until(lambda: there(m1.place) == there(m2.place) == {}, "deleted")
        await level(m1, m2)
        found = await run(m1.place, "rewrite", "*")
        assert (found["retcode"], found["changes"]) == (0, [])


@in_a_loop
async def test_what_an_older_release_took_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_a_thief(tmp_path) as (m1, m2, thief):
        for minion_id in ("web1", "web2", "web3"):
            put(m1.place, minion_id)
        await until(lambda: len(there(m2.place)) == 3, "accepted")
        await level(m1, m2)
        with monkeypatch.context() as old:
            old.setattr(merging, "is_sound", lambda record, highs: True)
            old.setattr(merging, "mends", lambda theirs, ours: False)
            await poison(thief, m2, "web1", **{m1.parts.core.replica.node: 2**53 - 1})
            await poison(thief, m2, "web2", **wide())
            await level(m1, m2)
        for engine in (m1, m2):
            assert len(engine.known(lambda of: of.nodes.seen())) > 4000
        # This is lost on the way, and so is all that m1 decides from now on.
        await delete(m1, "web1", "web3")
        await m1.link(m2).exchange()
        assert there(m2.place) == dict.fromkeys(("web1", "web2", "web3"), "minions")
        found = await run(m1.place, "rewrite", "*", test=True)
        assert [change["id"] for change in found["changes"]] == ["web1", "web2", "web3"]
        m1.parts.trust.remove("m3")
        await until(lambda: set(m1.parts.links) == {"m2"}, "m3 is out")
        replica = m1.parts.core.replica
        former = replica.node
        one = await run(m1.place, "rewrite", "web1")
        assert len(one["changes"]) == 1
        # It vouches for the name that it took, and for all that it wrote under the other.
        assert replica.node != former
        assert m1.known(lambda of: of.own_vouch()) is not None
        assert replica.vouched.get(former) is not None
        assert (one["retcode"], one["unreachable"]) == (1, {})  # others still differ
        assert "m2 does not know the same yet" in one["notes"][0]
        await m2.stop()
        rest = await run(m1.place, "rewrite", "*")
        assert (rest["retcode"], list(rest["unreachable"])) == (2, ["m2"])
        async with running(m2.place) as (back,):
            await until(lambda: there(back.place) == {"web2": "minions"}, "m2 has them")
            await level(m1, back)
            assert len(m1.known(lambda of: of.nodes.seen())) < 20
            # And decisions arrive again, in both directions.
            put(m1.place, "web5")
            await delete(back, "web2")
            there_now = {"web5": "minions"}
            await until(lambda: there(m1.place) == there(back.place) == there_now, "all well")
            await level(m1, back)


def test_an_answer_without_end_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever turned may go on for ever; each page sorts after the one before."""
    monkeypatch.setattr(deeds, "PORTION", 2)
    asked: list[Any] = []

    def pages(count: int) -> Any:
        async def page(after: Any) -> list[Write]:
            asked.append(after)
            assert len(asked) < 10, "it does not stop"
            at = float(len(asked))
            lines = 2 if len(asked) < count else 1
            write = Write("a" * 16, 1, "w", b"k", "accepted", 0.0, "", "m3", at, "m2")
            return [write._replace(counter=2 * len(asked) + i) for i in range(lines)]

        return page

    assert len(asyncio.run(deeds._all_of(pages(3), 3))) == 5
    asked.clear()
    with pytest.raises(InvalidRecord, match="does not end within 6 writes"):
        asyncio.run(deeds._all_of(pages(100), 3))
    assert len(asked) == 3
    asked.clear()
    assert len(asyncio.run(deeds._all_of(pages(5)))) == 9, "what is known here has an end"


def test_a_line_of_an_answer_is_bounded() -> None:
    line = ["a" * 16, 1, "w" * 255, b"k" * 32, "accepted", 0.0, "x" * 64, "m3", 1.0, "m2"]
    assert deeds._write(line).by == "x" * 64
    for place, long in ((2, "w" * 256), (3, b"k" * 65), (6, "x" * 65), (7, "x" * 65)):
        with pytest.raises(InvalidRecord):
            deeds._write([*line[:place], long, *line[place + 1 :]])
