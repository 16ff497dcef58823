"""
The jobs in this master's job cache of any kind, read by Salt's own returners.

All methods block; with Salt's default cache they read one file for each job, and of one job each
return.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import HaError, InvalidRecord, reason_of
from saltext_ha.common.printable import is_printable
from saltext_ha.keystore.minion_key import is_id
from saltext_ha.minions.job_specs import LISTENING, plain

JID = re.compile(r"[0-9]{20}(_[^/]{1,100})?")
"""
What Salt takes for a job id (``salt.utils.jid.is_jid``, 3006 to 3008), such as one of ``salt
--jid=…_deploy42``, if it is not too long to show and can be a part of a path.
"""
LOCAL, RETURN, TARGETED = "local_cache", "return.p", ".minions.p"
"""
Salt's default job cache, and its files: of each minion that has returned, and of each job that was
published here, for whom it was.
"""
NO_TARGET = "unknown-target"
"""What Salt lists as the target of a job of which it has only a return."""
MOST = 1000
LONGEST = 200
QUESTIONS = ("saltutil.find_job", "runner.test.arg")
"""What Salt and an engine ask all the time (the second: whether this master starts runners)."""


class JobCache:
    """The job cache of one master, of which *opts* is the configuration."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self._loaded: Any = None

    @property
    def returner(self) -> str:
        """The returner that holds the jobs, chosen as ``salt-run jobs.…`` does."""
        return str(self._opts.get("ext_job_cache") or self._opts.get("master_job_cache"))

    def jobs(self, search: str, limit: int) -> list[dict[str, Any]]:
        """
        The newest jobs that match, newest first.

        :param search: as :func:`matches` takes it; empty: all but :data:`QUESTIONS`.
        :raises HaError: they cannot be read.
        """
        found = self._call("get_jids")
        rows = []
        for jid in sorted((j for j in found or {} if is_jid(str(j))), reverse=True):
            job = _job(str(jid), found[jid])
            if not matches(job, search) or (not search and job["function"] in QUESTIONS):
                continue
            if not job["minions"]:
                with contextlib.suppress(HaError):  # damaged: whom it was for is unknown
                    job = _job(str(jid), self._load(str(jid)) or found[jid])
            rows.append({**job, "returned": self._returned(str(jid))})
            if len(rows) == limit:
                break
        return rows

    def job(self, jid: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """
        A job as known here: how it was published (None: not by this master), and its returns here:
        minion → ``return``, ``retcode``.

        :raises HaError: it cannot be read.
        """
        load = self._load(jid)
        values = {
            str(minion): {"return": plain(each.get("return")), "retcode": _code(each)}
            for minion, each in self._returns(jid).items()
            if isinstance(each, Mapping)
        }
        return (_job(jid, load) if load and load.get("fun") else None), values

    def _load(self, jid: str) -> Mapping[str, Any]:
        """
        How a job was published; empty: not by this master. If a syndic that has several masters
        returns it here all the same, Salt keeps the first return in this place, which its own
        ``get_load`` cannot read (``salt/utils/job.py``, 3006 to 3008).
        """
        self._check()
        targeted = self._folder(jid) / TARGETED
        if self.returner == LOCAL and not os.path.exists(targeted):  # noqa: PTH110 - raises nothing
            return {}
        return self._call("get_load", jid) or {}

    def _returned(self, jid: str) -> list[str]:
        """The minions that have returned; of Salt's default cache no return is read for that."""
        if self.returner != LOCAL:
            return sorted(map(str, self._call("get_jid", jid) or {}))
        folder = self._folder(jid)
        try:
            return sorted(
                each.name
                for each in folder.iterdir()
                # Such as a folder that some other program made: no peer could be told its name.
                if is_id(each.name) and (each / RETURN).is_file()
            )
        except FileNotFoundError:
            return []  # Salt has removed the job just now
        except OSError as exc:
            raise HaError(f"its job cache {self.returner}: {reason_of(exc)}") from None

    def _returns(self, jid: str) -> Mapping[str, Any]:
        """
        What came back: minion → its return. Salt itself would read one that it cannot decode again
        and again, without end (``get_jid`` of ``salt/returners/local_cache.py``, 3006 to 3008).
        """
        if self.returner != LOCAL:
            return self._call("get_jid", jid) or {}
        import salt.payload

        found: dict[str, Any] = {}
        for minion in self._returned(jid):
            try:
                with (self._folder(jid) / minion / RETURN).open("rb") as file:
                    value = salt.payload.load(file)
                if not isinstance(value, Mapping):
                    raise ValueError("the file is damaged")
                found[minion] = value
            except Exception as exc:  # what is damaged may raise anything
                why = f"it cannot be read: {reason_of(exc)[:LONGEST]}"
                found[minion] = {"return": why, "retcode": 1}
        return found

    def _folder(self, jid: str) -> Path:
        """Where Salt's default job cache has that job."""
        import salt.utils.jid

        jobs = f"{self._opts['cachedir']}/jobs"
        return Path(salt.utils.jid.jid_dir(jid, jobs, self._opts["hash_type"]))

    def _check(self) -> None:
        # Minions send their returns to an ext_job_cache themselves.
        if not (self._opts.get("job_cache", True) or self._opts.get("ext_job_cache")):
            raise HaError("it keeps no returns of jobs: job_cache: False")

    def _call(self, function: str, *args: Any) -> Any:
        import salt.loader

        self._check()
        name = f"{self.returner}.{function}"
        try:
            if self._loaded is None:
                opts = dict(self._opts)
                self._loaded = salt.loader.returners(opts, salt.loader.minion_mods(opts))
            if name not in self._loaded:
                raise HaError(f"its job cache {self.returner} cannot be asked for jobs")
            return self._loaded[name](*args)
        except HaError:
            raise
        except Exception as exc:  # a database may raise anything
            raise HaError(f"its job cache {self.returner}: {reason_of(exc)[:LONGEST]}") from None


def is_jid(jid: Any) -> bool:
    return isinstance(jid, str) and is_printable(jid) and JID.fullmatch(jid) is not None


def check_jid(jid: Any) -> str:
    """:raises InvalidRecord: it is no job id."""
    if not is_jid(jid):
        raise InvalidRecord(f"{str(jid)[:40]!a} is no job id; it has 20 digits")
    return str(jid)


def matches(job: Mapping[str, Any], search: str) -> bool:
    """
    Whether *search* is in the function, target, user or id of a job; with ``*``, ``?`` or ``[`` it
    is a glob that one of them must match as a whole.
    """
    texts = [str(job[key]) for key in ("function", "target", "user", "jid")]
    if any(sign in search for sign in "*?["):
        return any(fnmatch.fnmatchcase(text, search) for text in texts)
    return any(search in text for text in texts)


def _job(jid: str, load: Mapping[str, Any]) -> dict[str, Any]:
    """A job, from its entry in a list of jobs or from its own load."""

    def of(*names: str) -> Any:
        return next((load[name] for name in names if name in load), None)

    function, target, kind = (
        of("Function", "fun"),
        of("Target", "tgt"),
        of("Target-type", "tgt_type"),
    )
    if not target or target == NO_TARGET:
        target, kind = "", "glob"
    minions, kwargs = of("Minions", "minions"), of("kwargs")
    kept = of("Metadata") or (kwargs.get("metadata") if isinstance(kwargs, Mapping) else None)
    return {
        "jid": jid,
        "function": ", ".join(map(str, function)) if isinstance(function, list) else str(function),
        "arguments": plain(list(of("Arguments", "arg") or ())),
        "target": ",".join(map(str, target)) if isinstance(target, list) else str(target),
        "target_type": str(kind or "glob"),
        "user": str(of("User", "user") or "root"),
        "minions": sorted(map(str, minions)) if isinstance(minions, (list, set)) else [],
        "listening": kept == LISTENING,
    }


def _code(value: Mapping[str, Any]) -> int | None:
    code = value.get("retcode")
    return code if isinstance(code, int) else None
