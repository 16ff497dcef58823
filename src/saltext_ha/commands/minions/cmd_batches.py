"""The runner's half of ``ha.cmd``: gives batch after batch to the engine of this master."""

from __future__ import annotations

import functools
import re
import secrets
import threading
import time
from collections.abc import Collection
from typing import Any

from saltext_ha.commands.engine_client import UNKNOWN, Answer, Ask, patient, say
from saltext_ha.commands.runner_arguments import switch
from saltext_ha.common.errors import EngineBrokeOff, HaError

Target = tuple[str | list[str], str]
"""``tgt`` and ``tgt_type``."""
LISTABLE = ("glob", "list")
"""Targets of which each master knows whom they mean on all masters, as ``ha.where`` lists them."""
TIMEOUT = 60.0
EACH = 1.0
"""Seconds between two questions for progress."""
OPTIONS = ("tgt_type", "timeout", "batch", "progress", "test")
"""Arguments of ``ha.cmd`` itself, not of the function."""
LONGEST = 3600.0
"""Seconds to wait, beyond the timeout, for minions that say that they still run the job."""
AGAIN = 5.0
"""Least seconds between two questions whether minions still run it: each is a job of its own."""
BESIDE = 90.0
"""Seconds beside the timeout to find the minions, publish, and ask which still run the job."""
MAY_HAVE_RUN = "the job may have run: salt-run ha.jobs shows it once the engine runs again"
INTERRUPTED = "interrupted; minions go on with what was published: salt-run ha.jobs shows it"
_PING: Answer = {"fun": "test.ping", "arg": [], "kwarg": {}, "timeout": 15.0, "test": False}
"""Asks whom a target means that only masters can resolve, and who answers, as ``salt --batch``."""
THIS = "this master"
"""The key in ``unknown`` when the engine of this master no longer answers."""


def run(
    ask: Ask,
    tgt: str | list[str],
    fun: str,
    arg: list[Any],
    kwarg: Answer,
    tgt_type: str = "glob",
    timeout: float = TIMEOUT,
    batch: int | str | None = None,
    progress: bool = False,
    test: bool = False,
) -> Answer:
    """
    The answer of ``ha.cmd``; see the runner.

    :param ask: sends a command to the engine; called from two threads with *progress*.
    :raises HaError: an argument is wrong, or the engine refused the first batch.
    """
    ask = patient(ask)  # it may refuse one question of many
    if tgt_type == "glob" and isinstance(tgt, list):
        tgt_type = "list"
    test, progress = switch("test", test), switch("progress", progress)
    job: Answer = {"fun": fun, "arg": arg, "kwarg": kwarg, "timeout": timeout, "test": test}
    targets, others = [(tgt, tgt_type)], dict[str, Any]()
    if batch is not None:  # neither 0 nor an empty text means all at once
        job["batch"] = True
        targets, others = _divided(ask, job, tgt, tgt_type, batch)
    try:
        whole = _in_turn(ask, job, targets, bool(others), progress)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C; SIGTERM, of which Salt makes an exit
        if not test:
            say(INTERRUPTED)
        raise
    if not targets:
        # Those are of the ping.
        nothing: Answer = {"targets": [], "jobs": [], "running": {}, "unsure": []}
        whole = {**_together({}, others), "fun": fun, "test": test, **nothing}
    if others:
        for name in ("missing", "unknown"):
            whole[name] = {**others[name], **whole[name]}
        whole["unreachable"] = sorted({*whole["unreachable"], *others["unreachable"]})
        whole["not_begun"] = [*whole["not_begun"], *others.get("unsure", ())]
        whole["retcode"] = max(whole["retcode"], others["retcode"])
    return whole


def _divided(
    ask: Ask, job: Answer, tgt: str | list[str], tgt_type: str, batch: int | str
) -> tuple[list[Target], Answer]:
    """
    The target of each batch, and an answer that tells of the minions that are in none of them.

    :raises HaError: *batch* is wrong.
    """
    size = functools.partial(batch_size, batch)
    size(1)  # a wrong one is refused before minions are pinged
    if tgt_type in LISTABLE:
        listed = tgt_type == "list"
        if listed and isinstance(tgt, str):
            tgt = [each for each in tgt.split(",") if each]
        told = ask("where", {"ids" if listed else "glob": tgt, "all": True})
        found, absent = told["ids"], told.get("absent", []) if listed else []
        others: Answer = {"missing": {}, "unknown": {}, "unreachable": absent}
        others["retcode"] = int(bool(absent) and not job["test"])
        targets = _lists(found, size(len(found)))
        return targets or [(tgt, tgt_type)], others
    pinged = ask("cmd", {**job, **_PING, "tgt": tgt, "tgt_type": tgt_type})
    answered = sorted(pinged["returned"])
    return _lists(answered, size(len(answered))), pinged


def _lists(ids: list[str], size: int) -> list[Target]:
    return [(ids[i : i + size], "list") for i in range(0, len(ids), size)]


def _in_turn(ask: Ask, job: Answer, targets: list[Target], batch: bool, progress: bool) -> Answer:
    """Run *job* for one target after the other; with *batch* these are batches of one."""
    timeout, test = job["timeout"], job["test"]
    whole: Answer = {}
    for number, (part, kind) in enumerate(targets, 1):
        wanted = {**job, "tgt": part, "tgt_type": kind}
        name = f"batch {number} of {len(targets)}"
        try:
            if not progress or test:
                whole = _together(whole, _waited_on(ask, ask("cmd", wanted), timeout))
                continue
            front = f"{name}: " if batch else ""
            with _Watching(ask, front) as watching:
                now = ask("cmd", {**wanted, "operation": watching.operation})
            whole = _together(whole, _waited_on(ask, now, timeout, front))
        except HaError as exc:
            if not whole:
                if isinstance(exc, EngineBrokeOff) and not test:
                    raise EngineBrokeOff(f"{exc}; {MAY_HAVE_RUN}") from None
                raise
            # Minions of earlier batches have done their work: keep their returns.
            later = [each for ids, _ in targets[number:] for each in ids]
            whole["unknown"] = {**whole["unknown"], THIS: str(exc)}
            unsure = [*whole["unsure"], *part]
            return {**whole, "unsure": unsure, "not_begun": later, "retcode": UNKNOWN}
        counts = (f"{len(whole[each])} {each}" for each in ("returned", "failed", "missing"))
        # What came of a part is not known where its master was restarted, or cannot be asked.
        over = "ended" if whole["unknown"] else "done"
        unknown = f"; unknown: {', '.join(sorted(whole['unknown']))}" if whole["unknown"] else ""
        say(f"{f'{name} {over}, in all' if batch else over}: {', '.join(counts)}{unknown}")
    return whole


def _waited_on(ask: Ask, found: Answer, timeout: float, front: str | None = None) -> Answer:
    """
    Wait, as ``salt`` does, until no minion says that it still runs the job; returns the result.

    It asks the engine short questions, not a long one: after Ctrl-C nothing waits in the engine.

    :param found: the result at the end of the timeout.
    :param front: print on standard error, after this text, how many minions are waited for; None:
        print nothing.
    """
    end, said = time.monotonic() + LONGEST, ""
    jids = {found["missing"][i]: jid for i, jid in found["running"].items()}
    while jids and (left := end - time.monotonic()) > 0:
        line = f"waiting: {len(found['running'])} still run it"
        if front is not None and line != said:
            say(f"{front}{line}")
            said = line
        seconds = min(max(timeout, AGAIN), max(left, 0.1))
        try:
            now = ask("cmd_more", {"jids": jids, "timeout": seconds})
        except HaError as exc:
            found["unknown"] = {**found["unknown"], THIS: str(exc)}
            _lose(found, jids)
            now = {"masters": {}, "unknown": {}}
        told = now["masters"]
        for name, why in now["unknown"].items():
            lost = f"{why}; what came of job {jids[name]} there is not known"
            found["unknown"] = {**found["unknown"], name: lost}
        _lose(found, now["unknown"])
        jids = {name: jid for name, jid in jids.items() if told.get(name, {}).get("running")}
        for name, each in told.items():
            others = {i: j for i, j in found["running"].items() if found["missing"][i] != name}
            mine = {i: jid for i in each["running"] if (jid := jids.get(name))}
            found["returned"] = dict(sorted({**found["returned"], **each["returned"]}.items()))
            found["failed"] = {**found["failed"], **each["failed"]}
            found["running"] = dict(sorted({**others, **mine}.items()))
        for each_of in ("missing", "running"):
            left_out = {i: v for i, v in found[each_of].items() if i not in found["returned"]}
            found[each_of] = left_out
        found["unreachable"] = [i for i in found["unreachable"] if i not in found["returned"]]
        trouble = any(found[name] for name in ("failed", "missing", "unreachable"))
        found["retcode"] = UNKNOWN if found["unknown"] else int(trouble)
    return found


def _lose(found: Answer, masters: Collection[str]) -> None:
    """What came of the minions that *masters* published for, and that are missing, is not known."""
    lost = {i for i, master in found["missing"].items() if master in masters}
    found["unsure"] = sorted({*found.get("unsure", ()), *lost})
    for name in ("missing", "running"):
        found[name] = {i: value for i, value in found[name].items() if i not in lost}


class _Watching:
    """
    Prints the progress of an operation on standard error, whenever it has changed.

    It asks in its own thread, for which nothing waits: a master that does not answer delays neither
    the end of the operation nor Ctrl-C.

    :ivar operation: the name under which the engine knows it.
    :param front: what every line begins with.
    """

    def __init__(self, ask: Ask, front: str) -> None:
        self.operation = secrets.token_hex(16)
        self._ask, self._front = ask, front
        self._over = threading.Event()
        self._saying = threading.Lock()

    def __enter__(self) -> _Watching:
        threading.Thread(target=self._watch, name="ha.cmd progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._saying:
            self._over.set()

    def _watch(self) -> None:
        said = ""
        while not self._over.wait(EACH):
            try:
                line = how_far(self._ask("cmd_progress", {"operation": self.operation}))
            except HaError as exc:
                line = f"progress is not known: {exc}"
            with self._saying:
                if line and line != said and not self._over.is_set():
                    say(f"{self._front}{line}")
                    said = line


def how_far(told: Answer) -> str:
    """
    One line for the engine's answer to ``cmd_progress``; empty before anything was published.

    It has the total only once every master has told how many minions its part targets.
    """
    counts, unknown = list(told["masters"].values()), sorted(told["unknown"])
    targeted = [each["targeted"] for each in counts]
    if not unknown and targeted.count(None) == len(targeted):
        return ""
    returned, failed = (sum(each[name] for each in counts) for name in ("returned", "failed"))
    of = "" if unknown or None in targeted else f" of {sum(targeted)}"
    nothing = f"; nothing is known of {', '.join(unknown)}" if unknown else ""
    return f"{returned}{of} returned, {failed} failed{nothing}"


def batch_size(batch: int | str, count: int) -> int:
    """
    How many minions at a time.

    :param batch: a number, or a share such as ``10%``.
    :raises HaError: it is neither.
    """
    match = re.fullmatch(r"(\d{1,6})(%?)", str(batch))
    number = int(match[1]) if match and not isinstance(batch, bool) else 0
    if not match or not number:
        raise HaError(f"batch={batch!r}: takes a number from 1, or a share such as 10%")
    return max(1, count * number // 100) if match[2] else number


def _together(before: Answer, now: Answer) -> Answer:
    """The answer of all batches *before* (empty: none), merged with that of the batch *now*."""
    found = {**now, "not_begun": []}
    for name in ("returned", "failed", "missing", "running", "unknown"):
        found[name] = {**before.get(name, {}), **now[name]}
    for name in ("jobs", "targets"):
        found[name] = [*before.get(name, ()), now[name]]
    found["unreachable"] = sorted({*before.get("unreachable", ()), *now["unreachable"]})
    found["unsure"] = [*before.get("unsure", ()), *now.get("unsure", ())]
    found["retcode"] = max(before.get("retcode", 0), now["retcode"])
    return found
