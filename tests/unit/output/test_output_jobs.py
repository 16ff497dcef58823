"""What ``ha.jobs`` and ``ha.lookup_jid`` show, as whole tables."""

from __future__ import annotations

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
