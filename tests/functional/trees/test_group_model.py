"""
Promises T1 to T5 of docs/design.md §8, of a group: random histories of deployments, alone, at once
and in a partition; of masters that end between any two steps, whose disk is full, that are hidden
from the others, that lie, whose folders somebody edits or deletes.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from saltext_ha.common.errors import HaError
from saltext_ha.replication.deployment import KEPT
from saltext_ha.trees.live_path import FOREIGN, LINKED
from tests.disk_steps import Crash, Files
from tests.functional.trees.model import KINDS, NAMES, TREE, Engine, Group, Job, Master, Stroke

# They share files, at the same path and elsewhere; no mixture of two of them is a third.
CONTENTS: list[Files] = [
    {"mark": "secret-0", "a": "secret-one", "folder/b": "secret-two"},
    {"mark": "secret-1", "a": "secret-one", "folder/b": "secret-three"},
    {"mark": "secret-2", "folder/a": "secret-one", "folder/c": "secret-two"},
    {"mark": "secret-3", "b": "secret-three"},
]
ENOUGH = len(NAMES) + 1
"""Rounds after which all have heard of everything, and serve it."""

names = st.sampled_from(NAMES)
# A deployment takes a master that follows some forty steps, and the one that begins it twice that.
strokes = st.sampled_from([False, True, True]).flatmap(
    lambda struck: (
        st.builds(Stroke, st.sampled_from(KINDS), names, st.integers(0, 60))
        if struck
        else st.none()
    )
)
mostly = st.sampled_from([True, True, True, False])
WHO = [(name,) for name in NAMES] + [*itertools.combinations(NAMES, 2)]
PARTS = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 2), (0, 0, 0)]


class GroupMachine(RuleBasedStateMachine):
    """Three masters, their operators, and what befalls them."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(Path(tempfile.mkdtemp(prefix="ha-model-")), [*CONTENTS])
        self.messages = self.written = 0
        self.answers: list[Any] = []

    def teardown(self) -> None:
        try:
            self.heal()
            self.all_serve_what_is_deployed_then()
        finally:
            self.group.close()

    @initialize(data=st.data(), deployed=mostly)
    def begin(self, data: st.DataObject, deployed: bool) -> None:
        for master in self.group.masters.values():
            self.put(master, data.draw(st.sampled_from(CONTENTS)))
            if data.draw(st.booleans(), label=f"{master.name} has a folder"):
                master.tree.live.mkdir()
                self.written += 1
                text = f"by hand {self.written}"
                (master.tree.live / "before").write_text(text)
                master.by_hand.add(text)
                # It becomes deployment 0, and may come back as such.
                self.group.contents.append(master.live())
        if deployed:
            engine = self.group.up[0]
            self.carry_out([(engine, self.payload(engine, alone=False, adopt=True))])

    def put(self, master: Master, files: Files) -> None:
        for path in [path for path in master.source.rglob("*") if path.is_file()]:
            path.unlink()
        for name, text in files.items():
            (master.source / name).parent.mkdir(exist_ok=True)
            (master.source / name).write_text(text)
        for folder in [path for path in master.source.rglob("*") if path.is_dir()]:
            if not any(folder.iterdir()):
                folder.rmdir()

    # -- what operators do

    def payload(self, engine: Engine, alone: bool, adopt: bool) -> dict[str, Any]:
        self.messages += 1
        others = [
            name
            for name in NAMES
            if name != engine.master.name
            and (not self.group.masters[name].engine or self.group.apart(name, engine.master.name))
        ]
        return {
            "by": "root",
            "message": f"message {self.messages}.",
            "adopt": adopt,
            "without": others if alone else [],
        }

    @rule(who=st.sampled_from(WHO), data=st.data(), alone=mostly, adopt=mostly, stroke=strokes)
    def deploy(
        self,
        who: tuple[str, ...],
        data: st.DataObject,
        alone: bool,
        adopt: bool,
        stroke: Stroke | None,
    ) -> None:
        """On one master, or on two at the same time."""
        engines = [engine for engine in self.group.up if engine.master.name in who]
        for engine in engines:
            self.put(engine.master, data.draw(st.sampled_from(CONTENTS)))
        self.carry_out([(e, self.payload(e, alone, adopt)) for e in engines], stroke)

    @rule(name=names, alone=mostly, to=st.integers(0, KEPT), stroke=strokes)
    def roll_back(self, name: str, alone: bool, to: int, stroke: Stroke | None) -> None:
        engine = self.group.masters[name].engine
        if engine:
            entries = engine.register.entries
            version = entries[to % len(entries)].version.hex() if to and entries else ""
            payload = self.payload(engine, alone, adopt=True) | {"to": version}
            self.carry_out([(engine, payload)], stroke)

    def carry_out(
        self, orders: list[tuple[Engine, dict[str, Any]]], stroke: Stroke | None = None
    ) -> None:
        """Deploy, or go back; what is answered is true."""
        works = [
            (e, (e.deploy.rollback if "to" in p else e.deploy.deploy)(p, Job())) for e, p in orders
        ]
        before = {engine.master.name: self.served(engine.master) for engine in self.group.up}
        found = self.group.do(*works, stroke=stroke)
        for (engine, payload), answer in zip(orders, found, strict=True):
            self.answers.append(answer)
            if engine.ended:
                continue  # nobody is answered
            assert not isinstance(answer, Crash)
            if isinstance(answer, (HaError, OSError)):
                assert not self.known_of(payload["message"]), f"it was deployed: {answer}"
                assert stroke or "is not reached" not in str(answer) or self.some_are_away(engine)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.is_true(engine, answer, payload["message"])
                # All had it whole before it became current.
                undisturbed = stroke is None and len(orders) == 1
                assert not undisturbed or answer["retcode"] == 0, answer["unknown"]
        if all(isinstance(answer, (HaError, OSError)) for answer in found) and len(orders) == 1:
            # Others may have begun to serve what was current already.
            for engine in self.group.up:
                now = self.served(engine.master)
                was = before.get(engine.master.name, now)
                # What somebody took out of it by hand was staged again, where its link leads.
                mended = now[0] == was[0] and now[1] in self.group.contents
                assert now == was or mended or self.serves_current(engine)

    def served(self, master: Master) -> tuple[str, Files]:
        """Which version the live path leads to, and what is there."""
        return master.tree.live.resolve().name, master.live()

    def some_are_away(self, engine: Engine) -> bool:
        names = {other.master.name for other in self.group.up}
        return any(
            name not in names or self.group.apart(name, engine.master.name) for name in NAMES
        )

    def known_of(self, message: str) -> bool:
        return any(
            entry.message == message
            for engine in self.group.up
            for entry in engine.register.entries
        )

    def serves_current(self, engine: Engine) -> bool:
        current = engine.register.current
        return current is not None and engine.store.live() == (LINKED, current.version)

    def is_true(self, engine: Engine, answer: dict[str, Any], message: str) -> None:
        """A master that is not named as late has served what was deployed."""
        unknown = {name for name, why in answer["masters"].items() if why}
        assert (answer["retcode"] == 0) is (not unknown)
        if answer["trees"][0]["number"] is None:
            return  # nothing was to be done
        (version,) = {e.version for e in engine.register.entries if e.message == message}
        for name in answer["masters"].keys() - unknown:
            assert version.hex() in self.group.masters[name].served, name

    # -- what happens to masters

    @rule(name=names, stroke=strokes)
    def go_round(self, name: str, stroke: Stroke | None) -> None:
        if engine := self.group.masters[name].engine:
            self.round(engine, stroke)

    def round(self, engine: Engine, stroke: Stroke | None = None) -> None:
        before, link = engine.master.live(), engine.store.live()
        self.group.do((engine, engine.round()), stroke=stroke)
        if engine.ended:
            return
        if engine.register.conflict:
            assert engine.master.live() == before, "each goes on serving its own"
        now, version = engine.store.live()
        if now == LINKED and version is not None and (now, version) != link:
            assert not any(engine.store.versions.edits(version)), "edits are not what was deployed"

    @rule(name=names)
    def end_or_start(self, name: str) -> None:
        master = self.group.masters[name]
        if master.engine:
            master.end()
        else:
            master.start()
            assert master.engine is not None
            assert master.engine.trees.behind(), "it was ready before it asked anybody"

    @rule(sides=st.sampled_from(PARTS))
    def part(self, sides: tuple[int, ...]) -> None:
        self.group.sides = dict(zip(NAMES, sides, strict=True))

    @rule(name=names, data=st.data(), way=st.sampled_from(["beside", "in its place", "removed"]))
    def edit(self, name: str, data: st.DataObject, way: str) -> None:
        """Somebody changes what is live there by hand."""
        master = self.group.masters[name]
        files = master.live()
        if not files:
            return
        path = master.tree.live / data.draw(st.sampled_from(sorted(files)))
        if way == "beside":
            path = master.tree.live / f"mine{self.written}"
        else:
            master.by_hand.discard(path.read_text())
            path.unlink()
        if way != "removed":
            self.written += 1
            path.write_text(f"by hand {self.written}")
            master.by_hand.add(f"by hand {self.written}")
        master.edited = master.live()
        if not master.tree.live.is_symlink():
            self.group.contents.append(master.edited)  # as above

    @rule(name=names, data=st.data())
    def delete_a_version(self, name: str, data: st.DataObject) -> None:
        """Somebody deletes a folder that is served, or that others may want to have."""
        master = self.group.masters[name]
        if versions := master.versions():
            self.group.take_away(master, data.draw(st.sampled_from(versions)))

    # -- T1

    @precondition(lambda self: len(self.answers) % 5 == 4)
    @rule()
    def heal(self) -> None:
        """All see each other again: they serve the same, or show why they do not."""
        self.group.sides = dict.fromkeys(NAMES, 0)
        for master in self.group.masters.values():
            if master.engine is None:
                master.start()
        for _ in range(ENOUGH):
            for engine in self.group.up:
                self.round(engine)
        registers = {engine.register for engine in self.group.up}
        assert len(registers) == 1
        (register,) = registers
        for engine in self.group.up:
            (shown,) = self.group.do((engine, engine.deploy.deployments({})))
            self.answers.append(shown)
            (row,) = shown["trees"]
            assert bool(row["conflict"]) is register.conflict
            if register.conflict:
                assert shown["retcode"] == 1
                assert any("different versions" in note for note in engine.trees.notes())
            elif register.current and not self.serves_current(engine):
                self.has_a_reason(engine)
                assert shown["retcode"] == 1

    def has_a_reason(self, engine: Engine) -> None:
        """It does not serve what is current, and says so."""
        why = engine.trees.behind()
        assert why
        if engine.store.live()[0] != FOREIGN:
            assert "could not be fetched" in why or "not here" in why, why

    def all_serve_what_is_deployed_then(self) -> None:
        for master in self.group.masters.values():
            self.put(master, CONTENTS[0])
        engine = self.group.up[0]
        self.carry_out([(engine, self.payload(engine, alone=False, adopt=True))])
        answer = self.answers[-1]
        assert not isinstance(answer, BaseException), answer
        assert answer["retcode"] == 0
        for other in self.group.up:
            assert other.master.live() == CONTENTS[0]
            assert not other.register.conflict
            assert not other.trees.behind()
        self.nothing_written_by_hand_is_lost()

    # -- T2 to T5, at any time

    @invariant()
    def what_is_live_is_whole(self) -> None:
        for master in self.group.masters.values():
            master.look()
        assert not self.group.torn
        assert not self.group.unhandled

    @invariant()
    def nothing_written_by_hand_is_lost(self) -> None:
        for master in self.group.masters.values():
            files = [path for path in master.root.rglob("*") if path.is_file()]
            kept = {path.read_text(errors="replace") for path in files}
            assert master.by_hand <= kept, master.name

    @invariant()
    def who_is_behind_says_so(self) -> None:
        for engine in self.group.up:
            if engine.register.current and not self.serves_current(engine):
                assert engine.trees.behind()
                assert engine.trees[TREE].lag()
            if engine.register.conflict:
                assert any("different versions" in note for note in engine.trees.notes())

    @invariant()
    def secrets_stay_where_they_are(self) -> None:
        told = str([self.answers, *(engine.announced for engine in self.group.up)])
        assert "secret-" not in told
        for engine in self.group.up:
            versions = {entry.version for entry in engine.register.entries}
            for version in versions:
                at = told.find(version.hex()[:8])
                assert at < 0, told[at - 200 : at + 80]
            folder = engine.master.tree.folder
            assert not folder.exists() or folder.stat().st_mode & 0o077 == 0


GroupMachine.TestCase.settings = settings(
    max_examples=100,
    deadline=None,
    # Shrinking a history takes minutes; the one that failed is readable enough.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
)
TestGroup = GroupMachine.TestCase
