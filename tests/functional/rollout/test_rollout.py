"""What the state ``ha.multi_master`` refuses, writes and notices."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import json
import os
import stat
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
import salt.config
import yaml
from salt.state import STATE_INTERNAL_KEYWORDS

from saltext_ha.common.errors import HaError
from saltext_ha.lint import check
from saltext_ha.minion import options, tcp_links
from saltext_ha.minion.restarting import detached, processes, restart
from saltext_ha.rollout import drop_in, plan, record, trial
from saltext_ha.rollout.record import FAILED, KEPT, PUT_BACK, TRYING, RolloutRecord
from saltext_ha.states import ha as state
from tests.functional.sleepers import Sleeper
from tests.tools import script

pytestmark = pytest.mark.core

FINGER = ":".join(["3a"] * 32)
WISH = drop_in.wanted(["10.0.0.1", "10.0.0.2"], finger=FINGER)
TEXT = drop_in.text(drop_in.options(WISH))


@pytest.fixture
def opts(tmp_path: Path, root: Path) -> dict[str, Any]:
    """A minion's configuration."""
    conf_file = tmp_path / "minion"
    conf_file.write_text(f"id: web1\nmaster: 10.0.0.1\npki_dir: {tmp_path}/pki\n")
    (tmp_path / "minion.d").mkdir()
    names = {"cachedir": "cache", "pki_dir": "pki", "pidfile": "minion.pid"}
    folders = {name: str(tmp_path / path) for name, path in names.items()}
    opts = {"conf_file": str(conf_file), "id": "web1", "caller": True, **folders}
    return {**opts, "sock_dir": str(root)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The one that the state writes."""
    return tmp_path / "minion.d" / drop_in.NAME


def test_the_file_and_its_name_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "minion.d.conf"
    record.replace(path, "one")
    record.replace(path, "two")
    assert synced == [False, True] * 2
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o644)
    assert list(tmp_path.iterdir()) == [path]


def make(opts: dict[str, Any], minion: int | None = None, again: bool = False) -> plan.RolloutPlan:
    return plan.make(opts, WISH, minion, again)


def run(opts: dict[str, Any], **wish: Any) -> dict[str, Any]:
    state.__opts__ = opts
    return state.multi_master("x", **{"masters": "10.0.0.1,10.0.0.2", "finger": FINGER, **wish})


def refused(opts: dict[str, Any], words: str = "", **wish: Any) -> None:
    """Nothing is changed, and *words* say why."""
    ret = run(opts, **wish)
    assert (ret["result"], ret["changes"]) == (False, {})
    assert words in ret["comment"]


# -- the file


def test_without_a_running_minion_the_file_is_written(opts: dict[str, Any], file: Path) -> None:
    planned = run({**opts, "test": True})
    assert (planned["result"], file.exists()) == (None, False)
    assert '+  - "10.0.0.2"' in planned["changes"]["diff"]
    done = run(opts)
    assert (done["result"], done["changes"]) == (True, planned["changes"])
    assert file.read_text() == TEXT
    again = run(opts)
    assert (again["result"], again["changes"]) == (True, {})
    tested = run({**opts, "test": True})
    assert (tested["result"], tested["changes"]) == (True, {})
    changed = run(opts, alive=15)
    assert "-master_alive_interval: 30\n+master_alive_interval: 15" in changed["changes"]["diff"]


def test_a_minion_without_a_configuration_file(opts: dict[str, Any], file: Path) -> None:
    """As where Salt came by pip."""
    Path(opts["conf_file"]).unlink()
    done = run(opts)
    assert done["result"] is True, done["comment"]
    assert file.read_text() == TEXT
    assert run({**opts, "test": True})["changes"] == {}


def test_by_salt_ssh_no_minion_would_have_it(opts: dict[str, Any], file: Path) -> None:
    """It has a folder of its own on the host, with a configuration in it."""
    opts["root_dir"] = str(Path(opts["conf_file"]).parent / "running_data")
    refused(opts, "salt-ssh has a configuration of its own")
    assert not file.exists()


def test_switches_that_are_texts(opts: dict[str, Any], file: Path) -> None:
    for name in ("again", "watchdog", "failback", "signed"):
        refused(opts, f"{name}: 'false': takes True or False", **{name: "false"})
    assert not file.exists()


def test_no_argument_is_a_word_of_salt() -> None:
    """``names`` and ``retry`` never reach a state, or as something else, when a file sets them."""
    arguments = set(inspect.signature(state.multi_master).parameters) - {"name"}
    assert not arguments & {*STATE_INTERNAL_KEYWORDS, "names"}


def test_masters_that_tell_their_publish_ports_themselves(opts: dict[str, Any], file: Path) -> None:
    done = run(opts, type="hot", publish_port=None)
    assert done["result"] is True, done
    assert "publish_port" not in file.read_text()
    refused(opts, "Salt's check for a lost master looks at one port", publish_port=None)


def test_the_transport_and_what_is_the_watchdogs(opts: dict[str, Any], file: Path) -> None:
    done = run(opts, transport="tcp", watchdog=True, jitter=30)
    assert done["result"] is True, done
    assert "HA203" in done["comment"], "and it says what that transport does to failover"
    found = yaml.safe_load(file.read_text())
    assert (found["transport"], found["ha"]) == ("tcp", {"watchdog": {"jitter": 30}})


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("minion.d/other.conf", "master: [old]\n", "other.conf:1 master"),
        ("minion.d/ha-masters.conf", "master: mine\n", "written by somebody else"),
        ("pki/minion_master.pub", "", "HA304"),
    ],
)
def test_what_is_refused(
    opts: dict[str, Any], file: str, text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".pub":
        text = f"-----BEGIN PUBLIC KEY-----\n{'QUJD' * 16}\n-----END PUBLIC KEY-----\n"
    path.write_text(text)
    refused(opts, words)
    assert path.read_text() == text


def test_a_file_with_a_tab_in_it_is_read_as_salt_reads_it(opts: dict[str, Any], file: Path) -> None:
    other = file.with_name("zz-site.conf")
    other.write_text("master: old.example.com\t# the old one\n")
    with pytest.raises(HaError, match=r"other files set the same options.*zz-site\.conf:1 master"):
        plan.make(opts, WISH, None, False)


def test_a_file_that_cannot_be_read_may_set_anything(opts: dict[str, Any], file: Path) -> None:
    other = file.with_name("zz-site.conf")
    other.write_text("timeout: 5\nmaster: [old.example.com\n")
    with pytest.raises(HaError, match=r"cannot be read.*mend them first.*zz-site\.conf:3"):
        plan.make(opts, WISH, None, False)
    folder = other.with_name("folder.conf")
    folder.mkdir()
    with pytest.raises(HaError, match=r"mend them first: \S*folder\.conf Is a directory; \S*:3 "):
        plan.make(opts, WISH, None, False)
    folder.rmdir()
    other.write_text("timeout: 5\n")
    # What stands in our own file does not matter: it is written anew.
    other.with_name(drop_in.NAME).write_text(f"{drop_in.MARK}\nmaster: [\n")
    assert plan.make(opts, WISH, None, False).changes


def test_a_rule_that_fails_is_a_remark(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(facts: object) -> Any:
        raise TypeError("hunter2")

    rules = [dataclasses.replace(r, check=fails) if r.code == "HA301" else r for r in check.RULES]
    monkeypatch.setattr(check, "RULES", rules)
    (remark,) = plan.make(opts, WISH, None, False).remarks
    assert remark.startswith("HA301 could not be looked at: this rule failed (TypeError")


def test_options_that_it_would_replace_as_a_whole(opts: dict[str, Any]) -> None:
    with open(opts["conf_file"], "a") as file:
        file.write("engines: [logstash: {}]\n")
    assert run(opts)["result"] is True, "without the watchdog it has no engines"
    refused(opts, "minion:4 engines", watchdog=True)


def test_a_folder_that_would_not_be_read(opts: dict[str, Any]) -> None:
    refused({**opts, "default_include": "other.d/*.conf"}, "would not be read")


def test_the_signing_key_must_be_there(opts: dict[str, Any]) -> None:
    refused(opts, "HA301", finger="", signed=True)


@pytest.mark.parametrize("name", ["minion", "minion.d/pin.conf"])
def test_a_fingerprint_beside_the_signature_ends_the_minion_at_other_masters(
    opts: dict[str, Any], file: Path, name: str
) -> None:
    """At the first failover, when nobody looks any more."""
    pki = Path(opts["pki_dir"])
    pki.mkdir()
    (pki / "master_sign.pub").write_text("some\n")
    other = Path(opts["conf_file"]).parent / name
    text = other.read_text() if other.exists() else ""
    other.write_text(f"{text}master_finger: '{FINGER}'\n")
    refused(opts, f"{other}:", finger="", signed=True)
    refused(opts, "masters of that one key only", finger="", signed=True)
    assert not file.exists()
    other.write_text(f"{text}master_finger: ''\n")
    assert run(opts, finger="", signed=True)["result"] is True


def test_masters_that_tell_their_publish_ports_are_not_overruled(
    opts: dict[str, Any], file: Path
) -> None:
    """The minion would be deaf to those that publish at another one, and connected to the rest."""
    conf = Path(opts["conf_file"])
    text = conf.read_text()
    conf.write_text(f"{text}publish_port: 4505\n")
    refused(opts, f"{conf}:4 publish_port holds for all masters", type="hot", publish_port=None)
    assert not file.exists()
    assert run(opts, type="hot")["result"] is True
    assert run(opts)["result"] is True
    conf.write_text(f"{text}publish_port: 4506\n")  # to Salt the same as none
    assert run(opts, type="hot", publish_port=None)["result"] is True


@pytest.mark.parametrize("wish", [{"masters": []}, {"timeout": 0}, {"finger": "3a"}])
def test_what_makes_no_sense(opts: dict[str, Any], file: Path, wish: dict[str, Any]) -> None:
    refused(opts, **wish)
    assert not file.exists()


def test_a_full_disk_is_an_answer(
    opts: dict[str, Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(record, "replace", full)
    refused(opts, f"{file}: cannot be written: No space left on device")


@pytest.mark.parametrize(
    ("running", "lost"),
    [
        ({"master": "10.0.0.9"}, {"master": "10.0.0.9"}),
        (
            {"master": "10.0.0.8", "master_list": ["10.0.0.9", "10.0.0.8"], "master_finger": "1:2",
             "master_type": "failover", "master_port": 4516, "retry_dns": 0,
             "transport": "tcp"},
            {"master": ["10.0.0.9", "10.0.0.8"], "master_finger": "1:2",
             "master_type": "failover", "master_port": 4516, "retry_dns": 0,
             "transport": "tcp"},
        ),
        ({"master": "salt"}, None),
    ],
)  # fmt: skip
def test_the_way_back_where_no_file_names_the_master_any_more(
    opts: dict[str, Any], running: dict[str, Any], lost: dict[str, Any] | None
) -> None:
    """As where the same states remove the file that did: the minion would look for "salt"."""
    usual = salt.config.DEFAULT_MINION_OPTS
    minion = {**usual, **opts, **running}
    assert make(minion).back is None, "its configuration names one"
    Path(opts["conf_file"]).write_text("id: web1\n")
    made = make(minion)
    back = made.order(minion, 1, restart.Way(("true",)), 1.0).old
    assert (back and yaml.safe_load(back)) == lost
    assert back is None or back.startswith(drop_in.MARK), "the next one may replace it"
    assert made.old is None


NOBODY = processes.KnownProcess(0, 0.0)


def noted(
    opts: dict[str, Any],
    state: str,
    at: float,
    helper: processes.KnownProcess = NOBODY,
    text: str = TEXT,
) -> None:
    record.write(opts["cachedir"], RolloutRecord(state, record.digest(text), at, "why", *helper))


@pytest.mark.parametrize("state", [PUT_BACK, FAILED])
def test_a_file_that_was_put_back_is_not_tried_again_at_once(
    opts: dict[str, Any], state: str
) -> None:
    """Also where the minion could not be restarted: each run promised it, and none did it."""
    noted(opts, state, time.time() - 600)
    with pytest.raises(HaError, match=rf"10 minutes ago, and {state}: why\..*again: True"):
        make(opts)
    assert make(opts, again=True).changes
    noted(opts, state, time.time() - 3700)
    assert make(opts).changes
    noted(opts, state, time.time() + 86400)  # the clock was set back by a day since
    assert make(opts).changes
    noted(opts, PUT_BACK, time.time(), text="another")
    assert make(opts).changes
    noted(opts, KEPT, time.time())
    assert make(opts).changes


def test_one_file_at_a_time(opts: dict[str, Any], file: Path) -> None:
    me = processes.know(psutil.Process())
    noted(opts, TRYING, time.time(), helper=me, text="another")
    for test in (False, True):
        refused({**opts, "test": test}, "run this again later")
    assert not file.exists()


def test_while_it_is_tried_it_is_not_written_again(opts: dict[str, Any], file: Path) -> None:
    """Least of all when the old one was just put back, and the minion is on its way there."""
    noted(opts, TRYING, time.time(), helper=processes.know(psutil.Process()))
    refused(opts, "run this again later")
    assert not file.exists()
    file.write_text(TEXT)
    answer = run(opts)
    assert (answer["result"], "just being tried" in answer["comment"]) == (True, True)


def test_who_has_the_number_of_a_dead_helper_tries_nothing(
    opts: dict[str, Any], file: Path
) -> None:
    me = processes.know(psutil.Process())
    for helper in (me._replace(started=me.started - 100), processes.KnownProcess(me.pid, 0.0)):
        noted(opts, TRYING, time.time(), helper=helper, text="another")
        assert not make(opts).trying
    assert run(opts)["result"] is True
    assert file.read_text() == TEXT


def test_a_minion_that_runs_with_what_was_there_before(opts: dict[str, Any], file: Path) -> None:
    file.write_text(TEXT)
    me, started = os.getpid(), psutil.Process().create_time()
    os.utime(file, (time.time(), time.time()))
    assert make(opts, me).stale
    noted(opts, FAILED, time.time() - 600)
    with pytest.raises(HaError, match=r"was not restarted 10 minutes ago: why\..*again: True"):
        make(opts, me)
    assert make(opts, me, again=True).stale
    # The clock was set back since: a restart would not mend that.
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    assert not make(opts, me).stale
    os.utime(file, (started - 5, started - 5))
    assert not make(opts, me).stale
    assert not make(opts, None).stale


def test_a_torn_record_is_none(opts: dict[str, Any]) -> None:
    assert record.read(opts["cachedir"]) is None
    noted(opts, KEPT, 1.5)
    assert record.read(opts["cachedir"]) == RolloutRecord(KEPT, record.digest(TEXT), 1.5, "why")
    record.path(opts["cachedir"]).write_text('{"state": "ke')
    assert record.read(opts["cachedir"]) is None


# -- the minion


def ordered(opts: dict[str, Any], file: Path, **order: Any) -> trial.Order:
    """What the state would have tried, as it arrives."""
    names = ("conf_file", "id", "pidfile", "cachedir")
    same = {**{name: opts[name] for name in names}, "bus": options.bus(opts)}
    sent = trial.Order(path=str(file), new=TEXT, **same, **order)
    return trial.Order(**json.loads(json.dumps(asdict(sent))))


@pytest.mark.parametrize("old", [TEXT.replace("10.0.0.2", "10.0.0.3"), None], ids=["old", "none"])
def test_where_nobody_can_try_it_the_old_file_stays(
    opts: dict[str, Any],
    file: Path,
    minion: Sleeper,
    monkeypatch: pytest.MonkeyPatch,
    old: str | None,
) -> None:
    """It would be in force at the next restart, and nobody would take it back."""
    Path(opts["pidfile"]).write_text(str(minion.process.pid))
    if old:
        file.write_text(old)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    refused(opts, "the minion not restarted: saltext_ha.rollout.trial cannot be started")
    assert (file.read_text() if file.exists() else None) == old
    assert minion.starts == 1


@pytest.mark.parametrize("mode", ["control-group", "mixed", "process", "none", ""])
def test_where_a_service_ends_as_a_whole_the_trial_is_outside(
    minion: Sleeper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    opts: dict[str, Any],
    file: Path,
) -> None:
    """The packages of Salt 3006.29, 3007.16 and 3008.4 have mixed."""
    Path(opts["pidfile"]).write_text(str(minion.process.pid))
    script(tmp_path / "systemctl", f"[ $2 = --property=KillMode ] && echo '{mode}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(restart, "_unit", lambda pid: "salt-minion.service")
    before: list[tuple[str, ...]] = []

    def start(module: str, order: Any, words: Any = ()) -> processes.KnownProcess:
        before.append(tuple(words))
        return processes.KnownProcess(0, 0.0)

    monkeypatch.setattr(detached, "start", start)
    assert run(opts)["result"] is True
    assert file.read_text() == TEXT
    whole = mode in ("control-group", "mixed")
    assert before == [("systemd-run", "--scope") if whole else ()]


@pytest.mark.parametrize("dies", [False, True])
def test_what_has_the_number_of_the_minion_by_now_is_left_alone(
    opts: dict[str, Any],
    file: Path,
    tmp_path: Path,
    minion: Sleeper,
    gone: int,
    dies: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the minion is started with the old file, though the new one is not there to be asked."""
    if dies:
        # It is seen, and is over when somebody looks closer.
        monkeypatch.setattr(tcp_links, "minion_pid", lambda *_, **__: gone)
    stranger, ran = minion.process, tmp_path / "ran"
    known = processes.know(stranger)
    way = restart.Way(
        ("sh", "-c", 'cat "$0" >> "$1"', str(file), str(ran)),
        (known._replace(started=known.started - 100),) * 2,
    )
    file.write_text(TEXT)
    old = "# before\n"
    order = ordered(
        opts, file, old=old, minion=stranger.pid, job=gone, timeout=0.1, way=asdict(way)
    )
    assert trial.carry_out(order) == (
        PUT_BACK,
        "no master was reached within 0.1 s; nor with the old",
    )
    assert ran.read_text() == TEXT + old
    assert minion.lives


def test_when_the_job_does_not_end_the_old_file_is_back(
    opts: dict[str, Any], file: Path, monkeypatch: pytest.MonkeyPatch, minion: Sleeper
) -> None:
    monkeypatch.setattr(trial, "JOB", 0.2)
    pid = minion.process.pid
    for old in ("before\n", None):
        file.write_text(TEXT)
        order = ordered(opts, file, old=old, minion=pid, job=pid, timeout=1, way={})
        assert trial.carry_out(order)[0] == PUT_BACK
        assert (file.read_text() if old else file.exists()) == (old or False)
    assert minion.starts == 1, "nobody was restarted"
    assert minion.lives


def test_a_minion_that_salt_starts_late_is_waited_for(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt sleeps for up to ``random_startup_delay`` before it looks for a master."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(trial, "time", clock)
    conf = {**opts, "master": "10.0.0.1", "random_startup_delay": 600}
    assert trial.watch(conf, lambda: None, 180) == ""
    assert clock.now == 780
