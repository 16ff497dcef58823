"""May the file be written, does it change anything, and is a restart needed?"""

from __future__ import annotations

import difflib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import salt.config

from saltext_ha.common.errors import HaError
from saltext_ha.lint import check, collect, sources
from saltext_ha.lint.model import ERROR, INFO, Place, Setting
from saltext_ha.minion import options, tcp_links
from saltext_ha.minion.restarting.processes import job_of
from saltext_ha.minion.restarting.restart import Way
from saltext_ha.rollout import drop_in, record
from saltext_ha.rollout.record import FAILED, PUT_BACK
from saltext_ha.rollout.trial import Order

#: Options that must not be replaced as a whole: other engines, other keys of ha:.
SHARED = ("engines", "ha")
FINGER, VERIFIES = "master_finger", "verify_master_pubkey_sign"
PUBLISH = "publish_port"
#: How a minion knows its masters, and speaks with them: not every file of ours says it.
KNOWN_BY = (FINGER, VERIFIES, "transport")
REMEMBERED = 3600.0  # seconds in which the same file is not tried again


@dataclass(frozen=True)
class RolloutPlan:
    """
    The plan for a minion.

    ``old`` is the present content of the file, None without one; ``back`` is what is put back if
    the new one fails. ``stale``: the minion was started before the file was written. ``trying``:
    the file is in place, and the result is not known yet. ``remarks`` are warnings of ``ha.lint``.
    """

    path: Path
    old: str | None
    back: str | None
    new: str
    stale: bool
    trying: bool
    remarks: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether the file is to be written."""
        return self.old != self.new

    @property
    def diff(self) -> str:
        """The change, in the form of ``diff -u``."""
        old = (self.old or "").splitlines(keepends=True)
        new = self.new.splitlines(keepends=True)
        names = (str(self.path), f"{self.path} (new)")
        return "".join(difflib.unified_diff(old, new, *names))

    def order(self, opts: Mapping[str, Any], minion: int, way: Way, timeout: float) -> Order:
        """The order to try the file, which is in place, when the job that runs here has ended."""
        return Order(
            conf_file=str(opts["conf_file"]),
            id=str(opts["id"]),
            pidfile=str(opts.get("pidfile") or ""),
            bus=options.bus(opts),
            cachedir=str(opts["cachedir"]),
            path=str(self.path),
            new=self.new,
            old=self.back,
            minion=minion,
            job=job_of(os.getpid(), minion),
            timeout=timeout,
            way=asdict(way),
            revert=self.changes,
        )


def make(
    opts: Mapping[str, Any], wish: drop_in.Wanted, minion: int | None, again: bool
) -> RolloutPlan:
    """
    The plan for the minion with *opts*.

    :param minion: the process of the minion, None when none runs.
    :param again: try a file again that was put back within the last hour.
    :raises HaError: it must not be written; says why.
    """
    conf_file = str(opts.get("conf_file") or "")
    path = Path(conf_file).parent / "minion.d" / drop_in.NAME
    found = drop_in.options(wish)
    new = drop_in.text(found)
    old = _read(path)
    said = _check_other_files(opts, path, found)
    last = record.read(str(opts["cachedir"]))
    same = last is not None and last.digest == record.digest(new)
    stale = minion is not None and old == new and _is_newer(path, minion)
    age = abs(time.time() - last.at) if last and same and not again else REMEMBERED
    if last and age < REMEMBERED:
        ago, mended = f"{age / 60:.0f} minutes ago", "When the cause is mended, set again: True"
        if old != new and last.state in (PUT_BACK, FAILED):
            raise HaError(f"this file was tried {ago}, and {last.state}: {last.why}. {mended}")
        if stale and last.state == FAILED:
            raise HaError(f"the minion was not restarted {ago}: {last.why}. {mended}")
    trying = last is not None and last.trying
    if trying and not same:
        raise HaError("another file is being tried on this minion; run this again later")
    if trying and old != new:
        # It was put back, and the minion is restarting; or another user changed it meanwhile.
        raise HaError("this file is being tried on this minion; run this again later")
    return RolloutPlan(
        path,
        old,
        _way_back(opts, found, said) if old is None else old,
        new,
        stale,
        trying,
        _remarks(opts, path, found),
    )


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise HaError(f"{path}: cannot be read: {exc}") from None
    if not text.startswith(drop_in.MARK):
        raise HaError(
            f"{path} is there and was written by somebody else; it is left as it is: move it away"
        )
    return text


def _check_other_files(opts: Mapping[str, Any], path: Path, found: Mapping[str, Any]) -> set[str]:
    """
    The options that other files set.

    :raises HaError: some of them are those of the file, or do not go with it; or Salt would not
        read exactly this folder.
    """
    include = str(opts.get("default_include") or "minion.d/*.conf")
    conf_file = str(opts["conf_file"])
    if Path(conf_file).parent / include != path.parent / "*.conf":
        raise HaError(f"default_include is {include}: {path} would not be read, or not only it")
    others, lost = [], []
    read = sources.read(conf_file, include)
    unread = [
        f"{p.file}{f':{p.line}' if p.line else ''} {p.reason}"
        for p in read.problems
        if p.file != str(path)
    ]
    if unread:
        raise HaError(
            "files of the minion's configuration cannot be read, and may set the same options; "
            f"mend them first: {'; '.join(unread)}"
        )
    foreign = [each for each in read.settings if each.place.file != str(path)]
    for setting in foreign:
        where = f"{setting.place.file}:{setting.place.line} {setting.option}"
        if setting.option in found:
            if setting.layer == sources.INCLUDED:
                others.append(where)
            elif setting.option in SHARED:
                lost.append(where)
        elif why := _contradicts(setting, found):
            raise HaError(f"{where} {why}")
    if others:
        raise HaError(
            "other files set the same options; Salt puts lists of several files together, and of "
            "single values the last file wins. Take these options out of them: "
            f"{', '.join(others)}"
        )
    if lost:
        raise HaError(
            "the file would replace these as a whole: move them into a file of minion.d and add "
            f"what is needed there: {', '.join(lost)}"
        )
    return {each.option for each in foreign}


def _contradicts(setting: Setting, found: Mapping[str, Any]) -> str:
    """Why a *setting* that stays beside the file does not go with it; empty if it does."""
    if setting.option == FINGER and setting.value and found.get(VERIFIES):
        return (
            "lets the minion be with masters of that one key only: it ends when it comes to "
            "another one. Take it out: the signature says more"
        )
    # Salt takes 4506 for unset (salt/channel/client.py).
    if setting.option == PUBLISH and setting.value not in (None, 4506) and PUBLISH not in found:
        return "holds for all masters, and each is to tell its own: take it out"
    return ""


def _way_back(opts: Mapping[str, Any], found: Mapping[str, Any], said: set[str]) -> str | None:
    """
    A file with what *opts* were made of and no other file says any more, as where states remove the
    one that named the master before this one is written; None if the master is still named.
    """
    running = {name: opts.get(name) for name in (*found, *KNOWN_BY)}
    running["master"] = opts.get("master_list") or opts.get("master")
    usual = salt.config.DEFAULT_MINION_OPTS
    lost = {n: v for n, v in running.items() if n not in said and v not in (None, [], usual.get(n))}
    if "master" not in lost:
        return None
    return "\n".join([drop_in.MARK, *(f"{n}: {json.dumps(v)}" for n, v in lost.items()), ""])


def _remarks(opts: Mapping[str, Any], path: Path, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The warnings of ``ha.lint`` that are new with the file; refuse the file for a new error."""
    now = collect.of_minion(opts, empty=True)
    places = {**now.places, **dict.fromkeys(found, Place(str(path), 1))}
    then = replace(now, options={**now.options, **found}, places=places)
    then = replace(then, merged={**now.merged, **found})
    then = replace(then, addresses=collect.addresses(then.masters))
    failed: dict[str, str] = {}
    before = {(f["code"], f["detail"]) for f in check.inspect("", now, failed)}
    fresh = [f for f in check.inspect("", then, failed) if (f["code"], f["detail"]) not in before]
    texts = {
        level: [
            f"{f['code']} {f['title']} ({f['detail']}): {f['fix']}"
            for f in fresh
            if f["severity"] == level
        ]
        for level in {f["severity"] for f in fresh}
    }
    if texts.get(ERROR):
        raise HaError("with it the minion would not work: " + "; ".join(texts[ERROR]))
    unsure = [f"{code} could not be looked at: {why}" for code, why in failed.items()]
    return (*(text for level, some in texts.items() if level != INFO for text in some), *unsure)


def _is_newer(path: Path, minion: int) -> bool:
    """Whether *path* was written since the *minion* was started."""
    written = path.stat().st_mtime
    # A time in the future, after the clock was set back, would restart the minion at every run.
    return (tcp_links.started_at(minion) or 0.0) < written <= time.time()
