"""A reactor on our events, and a real minion that makes such events itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from tests.integration.bus import heard
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group

pytestmark = pytest.mark.core

HEALTH = "salt/ha/health"
TAG = "salt/ha/key/accepted"
# What docs/events.md shows, with something that a test can see as the reaction.
BELIEVED = """
{% if salt['ha.genuine'](tag, data) %}
believed:
  runner.salt.cmd:
    - args:
      - fun: file.append
      - path: PATH
      - args: {{ [tag, data] | json | json }}
{% endif %}
"""
SEEN = BELIEVED.replace("{% if salt['ha.genuine'](tag, data) %}", "{% if true %}")


class Site:
    """One master with its reactor, and the minion that has turned."""

    def __init__(self, lab: Lab, m1: Master, evil: Minion, folder: Path) -> None:
        self.lab, self.m1, self.evil, self._folder = lab, m1, evil, folder

    def noted(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """What the SLS of that name reacted to."""
        lines = (self._folder / f"{name}.txt").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def of(self, name: str, sort: str) -> list[dict[str, Any]]:
        return [data for tag, data in self.noted(name) if tag == sort]

    def fires(self, tag: str, data: dict[str, Any], **load: Any) -> None:
        """Have the minion's own ``event.fire_master`` send that; ``load`` as it likes."""
        preload = {"preload": json.dumps(load)} if load else {}
        self.evil.salt_call("event.fire_master", json.dumps(data), tag, **preload).check()


@pytest.fixture(scope="module")
def site(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("reactor")
    files = []
    for name, text in (("seen", SEEN), ("believed", BELIEVED)):
        files.append(str(folder / f"{name}.sls"))
        note = folder / f"{name}.txt"
        note.touch()
        Path(files[-1]).write_text(text.replace("PATH", str(note)))
    # Those of the engine come by themselves, at any time: two who write at once lose a line.
    reactor = [{"salt/ha/key/*": files}, {"salt/key": files}, {HEALTH: files[1:]}]
    with group(make_lab, "m1", joined=False, config={"reactor": reactor}) as lab:
        (m1,) = lab.masters.values()
        evil = lab.add_minion("evil", [m1])
        evil.plant_key()
        evil.start()
        evil.wait_ready()
        yield Site(lab, m1, evil, folder)


def taken_in(site: Site, count: int) -> None:
    """Wait until whoever checks nothing believes so many: two who write at once lose a line."""
    wait_for(lambda: len(site.of("seen", TAG)) >= count, SOON, f"{count} forgeries are believed")


def test_a_reactor_believes_the_engine_and_no_minion(site: Site) -> None:
    wait_for(lambda: bool(site.of("believed", HEALTH)), SOON, "the engine is believed")
    said = {"id": "victim", "act": "accepted", "master": "m1", "before": None}
    forged = {**said, "proof": "0" * 64, "fired": time.time()}
    with heard(site.m1) as events:
        # By itself: Salt puts it below "data".
        site.fires(TAG, forged)
        taken_in(site, 1)
        # In a list, Salt fires what the list holds, as it is; with "pretag" under any tag.
        site.fires("x", {}, events=[{"tag": TAG, "data": forged}])
        taken_in(site, 2)
        site.fires("x", {}, events=[{"tag": "ha/key/accepted", "data": forged}], pretag="salt")
        taken_in(site, 3)
        replayed = {**site.of("believed", HEALTH)[-1], "id": "victim"}
        site.fires("x", {}, events=[{"tag": "ha/key/accepted", "data": replayed}], pretag="salt")
        taken_in(site, 4)
        site.fires("x", {}, events=[{"tag": "key", "data": said}], pretag="salt")

        def forgeries() -> list[tuple[str, Any]]:
            return [(tag, data) for tag, data in events if "victim" in json.dumps(data)]

        tags = [TAG] * 4 + ["salt/key"]
        wait_for(lambda: {t for t, _ in forgeries()} >= {*tags}, SOON, "Salt fires them all")
    wait_for(lambda: bool(site.of("seen", "salt/key")), SOON, "that of a key as well")
    # What is fired later is reacted to later.
    done = len(site.of("believed", HEALTH))
    wait_for(lambda: len(site.of("believed", HEALTH)) > done, SOON, "the engine still is")
    assert {tag for tag, _ in site.noted("believed")} == {HEALTH}
