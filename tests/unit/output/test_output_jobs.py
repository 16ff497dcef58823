"""What ``ha.jobs`` and ``ha.lookup_jid`` show, as whole tables."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from saltext_ha.output import _text, ha
from tests.unit.output.conftest import shows

JID = "20261124000000000001"
JOB = {
    "jid": JID,
    "function": "state.apply",
    "arguments": ["nginx", {"__kwarg__": True, "test": True, "exclude": ["web"]}],
    "target": "web*",
    "user": "root",
}


def test_jobs() -> None:
    row = {**JOB, "arguments": [], "targeted": 3, "returned": 2, "state": "running"}
    shows(
        {"kind": "jobs", "jobs": [{**row, "masters": ["m1", "m2"]}], "unknown": {"m3": "down"}},
        """
        Job                   Function     Target  User  Returned  State    On
        20261124000000000001  state.apply  web*    root  2 of 3    running  m1, m2
        m3 could not be asked: down
        """,
    )
    shows({"kind": "jobs", "jobs": []}, "no jobs")
    row |= {"targeted": None, "state": "unknown", "masters": ["m1"]}
    shows(
        {"kind": "jobs", "jobs": [row]},
        """
        Job                   Function     Target  User  Returned  State    On
        20261124000000000001  state.apply  web*    root  2 of ?    unknown  m1
        """,
    )


def test_a_job() -> None:
    shows(
        {
            "kind": "lookup_jid",
            "jid": JID,
            "job": JOB,
            "published": ["m1"],
            "returned": {},
            "running": ["web1"],
            "missing": ["web2", "web3"],
        },
        """
        job 20261124000000000001: state.apply nginx test=true exclude=[web] for web*, by root on m1
        1 minion still at work on it: web1
        2 minions did not return: web2, web3
        """,
    )


def test_a_job_of_which_the_cache_keeps_no_minions() -> None:
    shows(
        {"kind": "lookup_jid", "jid": JID, "job": JOB, "published": ["m1"], "targeted": None},
        """
        job 20261124000000000001: state.apply nginx test=true exclude=[web] for web*, by root on m1
        who has not returned is unknown: the job cache does not keep which minions it was for
        """,
    )


def test_a_question_to_whoever_listened() -> None:
    job = {**JOB, "arguments": [], "function": "test.ping", "listening": True}
    shows(
        {"kind": "lookup_jid", "jid": JID, "job": job, "published": ["m1"], "targeted": None},
        """
        job 20261124000000000001: test.ping for web*, by root on m1
        who has not returned is unknown: every master asked the minions that listened to it
        """,
    )


def test_a_job_that_nobody_knows() -> None:
    shows({"kind": "lookup_jid", "jid": JID, "job": None}, f"job {JID}: no master knows it")


def test_what_a_master_that_was_not_asked_may_know_is_not_denied() -> None:
    shows(
        {"kind": "jobs", "jobs": [], "unknown": {"m2": "timed out"}},
        """
        no jobs on the masters that could be asked
        m2 could not be asked: timed out
        """,
    )
    shows(
        {"kind": "lookup_jid", "jid": JID, "job": None, "unknown": {"m2": "timed out"}},
        f"""
        job {JID}: no master that could be asked knows it
        m2 could not be asked: timed out
        """,
    )


IDS = [f"web{number}" for number in range(300)]
REASON = {"about": "HA201", "text": "in its list", "fix": "mend it", "minions": IDS, "count": 1300}


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ({"kind": "lookup_jid", "jid": JID, "job": JOB, "published": ["m1"], "failed": IDS}, 300),
        ({"kind": "where", "minions": {}, "absent": IDS, "count": 0, "masters": ["m1"]}, 300),
        ({"kind": "failover_safe", "masters": [{"name": "m1", "reasons": [REASON]}]}, 1300),
    ],
)
def test_a_pipe_gets_the_ids_of_all_minions(
    data: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``| grep web17`` must find it; a terminal gets so many that they can be read."""
    piped = ha.output(data)
    assert set(re.findall(r"web\d+", piped)) == set(IDS)
    assert (" and 1 000 more" in piped) == (count == 1300)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    read = ha.output(data)
    few = len(set(re.findall(r"web\d+", read)))
    assert 0 < few < 300
    assert f" and {_text.number(count - few)} more" in read
