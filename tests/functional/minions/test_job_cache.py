"""Jobs as Salt's own job cache has them on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import salt.loader
import salt.utils.jid
import salt.utils.job

from lab.engines import Place
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.minions.job_cache import JobCache, check_jid, matches
from saltext_ha.minions.job_specs import LISTENING

JIDS = [f"2026112400000000000{number}" for number in range(4)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "m1")


def cached(place: Place, jid: str, returned: dict[str, Any], **load: Any) -> None:
    """What salt-master writes of a job that it published, and of what came back."""
    returners = salt.loader.returners(dict(place.opts), {})
    job = {"fun": "test.ping", "arg": [], "tgt": "*", "tgt_type": "glob", "user": "root", **load}
    returners["local_cache.save_load"](jid, {"jid": jid, **job}, list(load.get("minions", ())))
    arrived(place, jid, returned)


def arrived(place: Place, jid: str, returned: dict[str, Any]) -> None:
    """What came back to a master."""
    returners = salt.loader.returners(dict(place.opts), {})
    for minion, value in returned.items():
        answer = {"jid": jid, "id": minion, "return": value, "fun": "test.ping", "retcode": 0}
        returners["local_cache.returner"](answer)


def folder_of(place: Place, jid: str) -> Path:
    """Where Salt's default job cache keeps a job."""
    jobs = f"{place.opts['cachedir']}/jobs"
    return Path(salt.utils.jid.jid_dir(jid, jobs, place.opts["hash_type"]))


def test_jobs_newest_first(place: Place) -> None:
    cached(place, JIDS[0], {"w1": True}, minions=["w1", "w2"])
    cached(place, JIDS[1], {}, fun="state.apply", arg=["nginx"], tgt=["w1"], tgt_type="list")
    cached(place, JIDS[2], {"w1": True}, user="alice")
    cache = JobCache(place.opts)
    rows = cache.jobs("", 10)
    assert [row["jid"] for row in rows] == [JIDS[2], JIDS[1], JIDS[0]]
    assert (rows[2]["minions"], rows[2]["returned"]) == (["w1", "w2"], ["w1"])
    assert (rows[1]["function"], rows[1]["arguments"]) == ("state.apply", ["nginx"])
    assert rows[1]["target"] == "w1"
    assert [row["jid"] for row in cache.jobs("", 1)] == [JIDS[2]]
    assert [row["jid"] for row in cache.jobs("state.", 5)] == [JIDS[1]]
    assert [row["jid"] for row in cache.jobs("ali*", 5)] == [JIDS[2]]
    assert cache.jobs("nothing", 5) == []


def test_a_return_of_a_job_that_another_master_published(place: Place) -> None:
    """
    A syndic that has several masters may return it here. Salt keeps the first return in the place
    of the job, and then cannot read it.
    """
    cached(place, JIDS[0], {"w1": True}, minions=["w1"])
    answer = {"jid": JIDS[1], "id": "w2", "return": True, "fun": "test.ping", "retcode": 0}
    salt.utils.job.store_job(dict(place.opts), answer)
    cache = JobCache(place.opts)
    assert cache.job(JIDS[1]) == (None, {"w2": {"return": True, "retcode": 0}})
    moved, own = cache.jobs("", 10)
    assert (own["jid"], own["target"], own["minions"]) == (JIDS[0], "*", ["w1"])
    assert (moved["jid"], moved["function"], moved["returned"]) == (JIDS[1], "test.ping", ["w2"])
    assert (moved["target"], moved["target_type"], moved["minions"]) == ("", "glob", [])


def test_a_job_cache_that_the_system_does_not_let_us_read(place: Place) -> None:
    """As those of root, where salt-master runs as another user. Other masters still answer."""
    with pytest.raises(HaError, match="File name too long"):
        JobCache({**place.opts, "cachedir": f"/{'x' * 300}"}).job(JIDS[0])


def test_a_job_that_cannot_be_read_hides_no_other(place: Place) -> None:
    cached(place, JIDS[0], {"w1": True}, minions=["w1"])
    cached(place, JIDS[1], {"w1": True}, tgt="w*", minions=["w1"])
    (folder_of(place, JIDS[1]) / ".minions.p").write_bytes(b"\xc1")
    rows = JobCache(place.opts).jobs("", 10)
    assert [(row["target"], row["minions"]) for row in rows] == [("w*", []), ("*", ["w1"])]


@pytest.mark.timeout(60)
def test_a_damaged_return_holds_nothing_up(place: Place, tmp_path: Path) -> None:
    """Salt reads one that it cannot decode again without end. For a list of jobs none is read."""
    cached(place, JIDS[0], {"w1": True, "w2": True}, minions=["w1", "w2", "w3"])
    (damaged,) = tmp_path.rglob("w1/return.p")
    damaged.write_bytes(b"\xc1")
    (row,) = JobCache(place.opts).jobs("", 10)
    assert row["returned"] == ["w1", "w2"]
    _, returned = JobCache(place.opts).job(JIDS[0])
    assert returned["w1"]["return"].startswith("it cannot be read: ")
    assert returned["w1"]["retcode"] == 1
    assert returned["w2"] == {"return": True, "retcode": 0}
    damaged.write_bytes(b"")
    assert JobCache(place.opts).job(JIDS[0])[1]["w1"]["retcode"] == 1


def test_a_folder_whose_name_is_no_id_is_passed_over(place: Place, tmp_path: Path) -> None:
    """Its name may be no text that a peer could be told."""
    cached(place, JIDS[0], {"w1": True}, minions=["w1"])
    (there,) = tmp_path.rglob("w1")
    (there.parent / os.fsdecode(b"\xff")).symlink_to(there)
    cache = JobCache(place.opts)
    assert [row["returned"] for row in cache.jobs("", 10)] == [["w1"]]
    assert cache.job(JIDS[0])[1].keys() == {"w1"}


def test_a_question_to_whoever_listens_is_known(place: Place) -> None:
    kept = {"metadata": dict(LISTENING)}
    cached(place, JIDS[0], {"w1": True}, minions=["w1", "w2"], kwargs=kept)
    cached(place, JIDS[1], {}, kwargs={"metadata": {"ticket": 7}})
    cache = JobCache(place.opts)
    assert [row["listening"] for row in cache.jobs("", 10)] == [False, True]
    for jid, listening in (JIDS[0], True), (JIDS[1], False):
        job, _ = cache.job(jid)
        assert job
        assert job["listening"] is listening


def test_what_is_asked_all_the_time_is_listed_if_wanted(place: Place) -> None:
    cached(place, JIDS[0], {"w1": True})
    cached(place, JIDS[1], {}, fun="saltutil.find_job", arg=[JIDS[0]])
    cached(place, JIDS[2], {}, fun="runner.test.arg", tgt="m1")
    cache = JobCache(place.opts)
    assert [row["jid"] for row in cache.jobs("", 1)] == [JIDS[0]]
    assert [row["jid"] for row in cache.jobs("find_job", 5)] == [JIDS[1]]
    assert [row["jid"] for row in cache.jobs("*", 5)] == [JIDS[2], JIDS[1], JIDS[0]]


def test_one_job(place: Place) -> None:
    cached(place, JIDS[0], {"w1": {"a": b"bytes"}}, minions=["w1", "w2"])
    arrived(place, JIDS[1], {"w3": 1})
    cache = JobCache(place.opts)
    job, returned = cache.job(JIDS[0])
    assert job
    assert (job["function"], job["minions"]) == ("test.ping", ["w1", "w2"])
    assert returned["w1"] == {"return": {"a": "bytes"}, "retcode": 0}
    assert cache.job(JIDS[1]) == (None, {"w3": {"return": 1, "retcode": 0}})
    assert cache.job(JIDS[3]) == (None, {})


def test_a_cache_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1", options={"master_job_cache": "nosuch"})
    with pytest.raises(HaError, match="its job cache nosuch cannot be asked"):
        JobCache(place.opts).jobs("", 5)


def test_a_cache_that_keeps_no_returns_is_told(tmp_path: Path) -> None:
    """Salt writes down there what it published all the same; all minions would count as missing."""
    place = Place(tmp_path, "m1", options={"job_cache": False})
    cached(place, JIDS[0], {}, minions=["w1"])
    cache = JobCache(place.opts)
    for ask in (lambda: cache.jobs("", 5), lambda: cache.job(JIDS[0])):
        with pytest.raises(HaError, match="it keeps no returns of jobs: job_cache: False"):
            ask()
    elsewhere = {**place.opts, "ext_job_cache": "local_cache"}
    assert [row["jid"] for row in JobCache(elsewhere).jobs("", 5)] == [JIDS[0]]


@pytest.mark.parametrize(
    "jid",
    [
        "",
        "1",
        "../../etc/passwd",
        JIDS[0] + "/x",
        JIDS[0] + "x",
        JIDS[0] + "_",
        JIDS[0] + "_/x",
        JIDS[0] + "_a\n",
        JIDS[0] + "_\udcff",
        JIDS[0] + "_" + "x" * 101,
        None,
        5,
    ],
)
def test_no_job_ids(jid: Any) -> None:
    with pytest.raises(InvalidRecord):
        check_jid(jid)


@pytest.mark.parametrize("more", ["", "_4711", "_deploy42", "_a.b-c:d e", "_é"])
def test_jids_of_salt_are_taken(more: str) -> None:
    jid = JIDS[0] + more
    assert salt.utils.jid.is_jid(jid)
    assert check_jid(jid) == jid


def test_what_is_no_job_id_for_salt_either_is_left_out(place: Place) -> None:
    for jid in (JIDS[0], f"{JIDS[1]}_deploy42", "nightly"):
        cached(place, jid, {"w1": True}, minions=["w1"])
    rows = JobCache(place.opts).jobs("", 10)
    assert [row["jid"] for row in rows] == [f"{JIDS[1]}_deploy42", JIDS[0]]


def test_a_search_is_a_part_or_a_glob() -> None:
    job = {"function": "state.apply", "target": "web*", "user": "root", "jid": JIDS[0]}
    assert matches(job, "apply")
    assert matches(job, "state.*")
    assert not matches(job, "apply*")
    assert matches(job, "")
