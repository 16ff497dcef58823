"""The runner's half of ``ha.install_minions``: sends, installs and restarts by jobs."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from saltext_ha.commands.engine_client import UNKNOWN, Answer, Ask, say
from saltext_ha.commands.minions import cmd_batches
from saltext_ha.commands.rollout import minion_setup
from saltext_ha.commands.rollout.minion_setup import Facts
from saltext_ha.commands.rollout.own_wheel import OwnWheel
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError
from saltext_ha.minion import wheel_setup
from saltext_ha.minion.restarting import after_job

BATCH = 50
TIMEOUT = 60.0
BACK = 180.0
"""Seconds within which a restarted minion must answer again."""
ASKED_AGAIN = 5.0
"""Seconds that it has to answer one question whether it is back."""
TURN = 1.0
"""Least seconds between two such questions: asking an engine that has ended fails at once."""
# A job is also an event. On 3006 one that the bus's socket (208 KiB) does not take at once fails in
# the master, and base64 makes a third more of it.
CHUNK = 96 * 1024
PRESENT, INSTALLED = "already there", "installed"
WOULD, WOULD_RESTART = "would be installed", "would be restarted"
FAILED, SILENT = "failed", "no answer"
STOPPED = "not begun: none of the batch before came back from its restart; look at one of them"
# Where a master runs on the same host, it has the same Python, and so the same saltext-ha.
NEWER = "it has {}, newer than {} of this master: run this on a newer one, or go back by force=True"


@dataclass
class Row:
    """
    What became of one minion. ``before`` and ``now`` are its versions of saltext-ha, None without
    one; ``restarted`` is None if no restart was needed.
    """

    id: str
    result: str = ""
    before: str | None = None
    now: str | None = None
    restarted: bool | None = None
    problem: str = ""


@dataclass
class Returned:
    """What minions returned to one job, why the others did not, and masters that were silent."""

    values: dict[str, Any]
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class Installation:
    """
    One run of the command.

    :param timeout: seconds for each step of a minion.
    """

    def __init__(self, ask: Ask, wheel: OwnWheel, timeout: float) -> None:
        self._ask, self._wheel, self._timeout = ask, wheel, timeout
        self.rows: dict[str, Row] = {}
        self.unknown: dict[str, str] = {}
        self._facts: dict[str, Facts] = {}
        self._folder = f"saltext-ha-{secrets.token_hex(16)}"
        self._sent: set[str] = set()
        """Minions whose cache folder may hold parts of the sent files."""
        self._stopped = False
        """Whether none of a batch came back from its restart: nobody else is restarted."""

    def look(self, tgt: str | list[str], tgt_type: str) -> None:
        """
        Ask all targeted minions what they have.

        :raises HaError: they cannot be asked.
        """
        told = self._job(tgt, tgt_type, minion_setup.RENDER, minion_setup.ASK)
        for minion, value in told.values.items():
            found = minion_setup.read(value)
            row = self.rows[minion] = Row(minion)
            if isinstance(found, str):
                row.result, row.problem = FAILED, found
                continue
            self._facts[minion] = found
            row.before = row.now = found.version
        self._miss(told)

    def judge(self, force: bool) -> list[str]:
        """The minions to install it on; the rows of the others say why not."""
        for minion, facts in self._facts.items():
            row = self.rows[minion]
            if facts.version == self._wheel.version and not force:
                row.result = PRESENT
            elif facts.is_newer(self._wheel.version) and not force:
                row.result = FAILED
                row.problem = NEWER.format(facts.version, self._wheel.version)
            elif problem := facts.obstacle(self._wheel.python):
                row.result, row.problem = FAILED, problem
        wanted = sorted(minion for minion, row in self.rows.items() if not row.result)
        say(
            f"of {len(self.rows)} minions {len(wanted)} are to get {self._wheel.version} "
            f"({len(self._wheel.content) / 1000:,.0f} KB)"
        )
        return wanted

    def send(self, wanted: Sequence[str]) -> None:
        """Send the wheel and the setup script to a new folder in each cache folder."""
        script = Path(wheel_setup.__file__).read_bytes()
        pieces = [("setup.py", script, False)]
        content = self._wheel.content
        for start in range(0, len(content), CHUNK):
            pieces.append((self._wheel.name, content[start : start + CHUNK], start > 0))
        for number, (name, piece, append) in enumerate(pieces, 1):
            text = base64.b64encode(piece).decode()
            for cache, ids in self._by(self._left(wanted), lambda facts: facts.cache):
                self._sent |= set(ids)
                path = f"{cache}/{self._folder}/{name}"
                told = self._work(ids, "cp.recv_chunked", [path, text, append, False])
                for minion, value in told.values.items():
                    if value is not True:
                        self._fail(minion, f"cannot write {path}: {value}")
            say(f"sent part {number} of {len(pieces)}")

    def install(self, wanted: Sequence[str], size: int, restart: bool) -> None:
        """Install it on *size* minions at a time, and have them use it."""
        ready = self._left(wanted)
        for number, some in enumerate(batches(ready, size), 1):
            if self._stopped:
                self._leave(some)
                continue
            new: list[str] = []
            order = {"name": self._wheel.name, "sha256": self._wheel.sha256}
            order["version"] = self._wheel.version
            for (python, cache), ids in self._by(some, lambda facts: (facts.python, facts.cache)):
                folder = f"{cache}/{self._folder}"
                argument = json.dumps({**order, "folder": folder})
                command = [python, "-I", f"{folder}/setup.py", argument]
                for minion, said in self._run(ids, command).items():
                    self._sent.discard(minion)  # the script has removed it
                    if said["problem"]:
                        self._fail(minion, said["problem"])
                        continue
                    new.append(minion)
                    row = self.rows[minion]
                    row.result, row.now = INSTALLED, self._wheel.version
            self._use(new, restart)
            done = sum(row.result == INSTALLED for row in self.rows.values())
            wrong = sum(row.result in (FAILED, SILENT) for row in self.rows.values())
            many = -(-len(ready) // size)
            say(f"batch {number} of {many} done, in all: {done} installed, {wrong} failed")

    def outdated(self) -> list[str]:
        """Minions that have this version already, but a watchdog from before it."""
        present = [i for i, row in self.rows.items() if row.result == PRESENT]
        return sorted(i for i in present if self._facts[i].outdated)

    def renew(self, batch: int | str, restart: bool) -> None:
        """Restart those that are :meth:`outdated`."""
        outdated = self.outdated()
        if outdated:
            say(f"{len(outdated)} have it already, and a watchdog from before")
            for some in batches(outdated, cmd_batches.batch_size(batch, len(outdated))):
                if self._stopped:
                    self._leave(some)
                    continue
                self._use(some, restart)

    def clean(self) -> None:
        """Remove sent files that were not used; the rows of silent minions say what is left."""
        for cache, ids in self._by(sorted(self._sent), lambda facts: facts.cache):
            folder = f"{cache}/{self._folder}"
            try:
                told = self._job(ids, "list", "file.remove", [folder])
            except HaError:
                told = Returned({})
            # False: there is no such folder.
            removed = {i for i, value in told.values.items() if isinstance(value, bool)}
            for minion in set(ids) - removed:
                row = self.rows[minion]
                row.problem = "; ".join(filter(None, (row.problem, f"{folder} is left there")))
        self._sent.clear()

    def _use(self, minions: Sequence[str], restart: bool) -> None:
        """Have running minions use the installed version; restart those that need a restart."""
        fresh = [i for i in minions if self._facts[i].version is None]
        due = [i for i in minions if i not in fresh or self._facts[i].watchdog]
        loads = [i for i in fresh if i not in due]
        if loads:
            self._work(loads, "saltutil.refresh_modules", [], {"async": False})
            due += sorted(set(loads) - self._versions(loads).keys())
        due = self._left(due)
        if not due:
            return
        if not restart:
            for minion in due:
                self.rows[minion].problem = "restart it: it runs without what was installed"
            return
        before: dict[str, Any] = {}
        for (python, conf), ids in self._by(due, lambda facts: (facts.python, facts.conf)):
            command = [python, "-I", "-m", after_job.MODULE, json.dumps({"conf_file": conf})]
            for minion, said in self._run(ids, command).items():
                if said["problem"]:
                    self._fail(minion, f"installed, not restarted: {said['problem']}; restart it")
                else:
                    before[minion] = said["process"]
        self._await(before)
        # A single one may be ill by itself.
        self._stopped = len(before) > 1 and not any(self.rows[i].restarted for i in before)

    def _leave(self, minions: Iterable[str]) -> None:
        for minion in minions:
            self._fail(minion, STOPPED)

    def _await(self, before: Mapping[str, Any]) -> None:
        left, back = dict(before), BACK + max((self._facts[i].delay for i in before), default=0.0)
        end = time.monotonic() + back
        while left and (now := time.monotonic()) < end:
            for minion, told in self._versions(sorted(left)).items():
                # Not by the time of its start: the minion's clock may have been set meanwhile.
                if told.get("process") and told["process"] != left[minion]:
                    del left[minion]
                    self.rows[minion].restarted = True
            if left:
                time.sleep(max(0.0, now + TURN - time.monotonic()))
        for minion in left:
            self.rows[minion].restarted = False
            self._fail(minion, f"installed; the minion is not back {back:g} s after its restart")

    def _versions(self, minions: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Those of *minions* that run the installed version → their answer to ``ha.version``."""
        try:
            told = self._job(list(minions), "list", "ha.version", [], timeout=ASKED_AGAIN)
        except HaError:
            return {}  # asked again
        return {
            minion: value
            for minion, value in told.values.items()
            if isinstance(value, Mapping) and value.get("version") == self._wheel.version
        }

    def _run(self, minions: Sequence[str], command: list[str]) -> dict[str, Mapping[str, Any]]:
        """Run *command* on each minion → the JSON in its last line. Rows note failures."""
        told = self._work(minions, "cmd.run_all", [command], {"python_shell": False})
        found: dict[str, Mapping[str, Any]] = {}
        for minion, value in told.values.items():
            try:
                said = json.loads(value["stdout"].splitlines()[-1])
                said["problem"]  # without it, this is not the script's answer
                found[minion] = said
            except (TypeError, ValueError, KeyError, IndexError):
                said = value.get("stderr") if isinstance(value, Mapping) else value
                lines = str(said or "it said nothing").strip().splitlines()
                self._fail(minion, f"{command[0]}: {lines[-1][:300]}")
        return found

    def _work(
        self, minions: Sequence[str], fun: str, arg: list[Any], kwarg: Answer | None = None
    ) -> Returned:
        """A job for *minions*; the rows of those that do not return say so."""
        try:
            told = self._job(list(minions), "list", fun, arg, kwarg)
        except HaError as exc:
            why = str(exc)
            told = Returned({}, dict.fromkeys(minions, why), {cmd_batches.THIS: why})
        silent = "it no longer answers"
        told.missing = {i: told.missing.get(i, silent) for i in minions if i not in told.values}
        self._miss(told)
        return told

    def _job(
        self,
        tgt: str | list[str],
        tgt_type: str,
        fun: str,
        arg: list[Any],
        kwarg: Answer | None = None,
        timeout: float = 0.0,
    ) -> Returned:
        done = cmd_batches.run(
            self._ask, tgt, fun, arg, kwarg or {}, tgt_type, timeout or self._timeout
        )
        missing = {i: f"did not answer {master}" for i, master in done["missing"].items()}
        missing |= dict.fromkeys(done["unreachable"], "no master reaches it")
        return Returned(done["returned"], missing, done["unknown"])

    def _miss(self, told: Returned) -> None:
        self.unknown |= told.unknown
        for minion, why in told.missing.items():
            row = self.rows.setdefault(minion, Row(minion))
            row.result, row.problem = SILENT, why

    def _fail(self, minion: str, why: str) -> None:
        row = self.rows[minion]
        row.result, row.problem = FAILED, why

    def _left(self, minions: Iterable[str]) -> list[str]:
        return [i for i in minions if self.rows[i].result not in (FAILED, SILENT)]

    def _by(
        self, minions: Iterable[str], key: Callable[[Facts], Any]
    ) -> Iterator[tuple[Any, list[str]]]:
        groups: dict[Any, list[str]] = {}
        for minion in minions:
            groups.setdefault(key(self._facts[minion]), []).append(minion)
        yield from groups.items()


def run(
    ask: Ask,
    wheel: OwnWheel,
    tgt: str | list[str],
    tgt_type: str = "glob",
    batch: int | str = BATCH,
    timeout: float = TIMEOUT,
    force: bool = False,
    restart: bool = True,
    test: bool = False,
) -> Answer:
    """
    What ``ha.install_minions`` answers; see the runner.

    :raises HaError: an argument is wrong, or nothing could be asked.
    """
    cmd_batches.batch_size(batch, 1)
    work = Installation(ask, wheel, timeout)
    work.look(tgt, tgt_type)
    wanted = work.judge(force)
    if test:
        for minion in wanted:
            work.rows[minion].result = WOULD
        for minion in work.outdated() if restart else ():
            work.rows[minion].result = WOULD_RESTART
    elif wanted:
        try:
            work.send(wanted)
            work.install(wanted, cmd_batches.batch_size(batch, len(wanted)), restart)
        finally:
            work.clean()
    if not test:
        work.renew(batch, restart)
    rows = [asdict(row) for _, row in sorted(work.rows.items())]
    results = [row["result"] for row in rows]
    unknown = bool(work.unknown) or SILENT in results
    wrong = not rows or FAILED in results or any(row["problem"] for row in rows)
    return {
        "kind": "install_minions",
        "test": test,
        "version": wheel.version,
        "sha256": wheel.sha256,
        "bytes": len(wheel.content),
        "minions": rows,
        "counts": {each: results.count(each) for each in dict.fromkeys(results)},
        "unknown": work.unknown,
        "retcode": UNKNOWN if unknown else int(wrong),
    }
