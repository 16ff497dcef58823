"""
Each option that ``check_consistency`` compares, planted in one of two engines: it is found, and
nothing else; planted where masters may differ, nothing is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.consistency import access, master_key, options, sections
from saltext_ha.consistency.options import TABLE, Level
from saltext_ha.consistency.rules import DRIFT, NOTE, EqualityRule
from tests.engines import met, put, run, same_records
from tests.functional.comparing import SAID, checked, found, place
from tests.loop import in_a_loop

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

COMPARED: dict[str, tuple[str, EqualityRule]] = {
    **{option: ("options", rule) for option, rule in options.RULES.items()},
    **{rule.option: ("access", rule) for rule in access.CONFIG},
    **{rule.option: ("master_key", rule) for rule in master_key.CONFIG},
}
# What may never go missing from it.
MUST = """
    external_auth publisher_acl publisher_acl_blacklist client_acl_verify peer peer_run sudo_acl
    nodegroups auto_accept open_mode token_expire keep_acl_in_token eauth_tokens rest_cherrypy
    rest_tornado hash_type ret_port publish_port transport encryption_algorithm signing_algorithm
    sign_pub_messages require_minion_sign_messages drop_messages_signature_fail master_job_cache
    ext_job_cache event_return minion_data_cache fileserver_backend file_ignore_regex
    file_ignore_glob ext_pillar master_sign_pubkey
"""
SHOULD = "keep_jobs keep_jobs_seconds gitfs_global_lock git_pillar_global_lock timeout"
# Where else it shows: a member of a cluster has another master key, or with another driver another
# place for it.
BESIDE = {"cluster_id": "master_key", "keys.cache_driver": "master_key"}
PLANTED = "planted"
PAGE = Path(__file__).parents[3] / "docs" / "consistency.md"
AT_ONCE = "master_key,access,options,roots"
# Where Salt does not start with anything that is planted, or leaves it out.
VALID = {
    "ssl": {"certfile": "x"},
    "publish_signing_algorithm": "PKCS1v15-SHA224",
    "cluster_encryption_algorithm": "OAEP-SHA224",
    "ha": {"sync_interval": 7},
    "ssh_minion_opts": {"x": "y"},
}
# Their content is compared.
SERVED = {"file_roots", "pillar_roots"}


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, Mapping):
        return {**value, PLANTED: "x"}
    if isinstance(value, (list, tuple)):
        return [*value, PLANTED]
    return f"{value}-{PLANTED}" if isinstance(value, str) else PLANTED


def path_of(option: str, value: Any) -> str:
    section = COMPARED[option][0]
    return f"{section}:{option}:{PLANTED}" if isinstance(value, Mapping) else f"{section}:{option}"


def planted(opts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every option that is compared, and a value that *opts* do not have."""
    for option, (_, rule) in COMPARED.items():
        value = opts.get(option)
        yield option, other(rule.unset.get(option) if value is None else value)


@in_a_loop
async def test_each_option_by_itself(tmp_path: Path) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2")
    wrong = []
    async with met(one, two):
        for option, value in [*planted(two.opts)]:
            section, rule = COMPARED[option]
            with changed(two.opts, option, value):
                answer = await run(one, "check_consistency", only=AT_ONCE)
            if option in BESIDE:
                answer["sections"].pop(BESIDE[option])
            differences = answer["sections"][section]["differences"]
            if not (
                [*found(answer)] == [path_of(option, value)]
                and differences[0]["severity"] == rule.severity
                and differences[0]["fix"]
                and differences[0]["values"]["m1"] != differences[0]["values"]["m2"]
                and (option in BESIDE or answer["retcode"] == (rule.severity == DRIFT))
            ):
                wrong.append((option, value, answer))
        clean = await run(one, "check_consistency")
        assert (found(clean), clean["retcode"]) == ({}, 0)
    assert wrong == []


@contextlib.contextmanager
def changed(opts: dict[str, Any], option: str, value: Any) -> Iterator[None]:
    there, before = option in opts, opts.get(option)
    opts[option] = value
    yield
    del opts[option]
    if there:
        opts[option] = before


def test_what_has_to_be_compared_is() -> None:
    severities = {option: rule.severity for option, (_, rule) in COMPARED.items()}
    wanted = {**dict.fromkeys(MUST.split(), DRIFT), **dict.fromkeys(SHOULD.split(), NOTE)}
    assert {option: severities.get(option) for option in wanted} == wanted


def test_all_that_was_edited_and_not_restarted(tmp_path: Path) -> None:
    """What each of them would be after the next start, and nothing besides."""
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2")
    path = Path(two.opts["conf_file"])
    edited = {option: VALID.get(option, value) for option, value in planted(two.opts)}
    # Elsewhere their content is compared; the running master still reads what it was started with.
    sources = {"file_roots", "pillar_roots", "autosign_file", "autoreject_file"}
    sources |= {"autosign_grains_dir", "gitfs_remotes"}
    edited.update({option: other(two.opts.get(option)) for option in sources})
    path.write_text(json.dumps({**json.loads(path.read_text()), **edited}))
    answer = checked(one, two, only="running")
    differences = answer["sections"]["running"]["differences"]
    told = {difference["path"].split(":")[0] for difference in differences}
    assert told == edited.keys()
    for difference in differences:
        assert difference["values"].keys() == {"m2"}
        assert difference["fix"] == "restart salt-master on m2"


def test_what_may_differ_does(tmp_path: Path) -> None:
    """Every option of that table at once, in a master that runs with it."""
    may = [o for topic in TABLE if topic.level is Level.MAY for o in topic.options]
    one = place(tmp_path, "m1")
    options = {o: other(one.opts.get(o)) for o in may if o not in SAID and o not in SERVED}
    two = place(tmp_path, "m2", **options)
    two.opts.update(options)
    assert len(options) > 100
    answer = checked(one, two, only=",".join(n for n in sections.NAMES if n != "running"))
    assert (found(answer), answer["retcode"]) == ({}, 0)


def test_the_json_is_what_is_documented(tmp_path: Path) -> None:
    ignore = {"consistency": {"interval": 0, "ignore": ["options:timeout"]}}
    planted: dict[str, Any] = {"timeout": 99, "open_mode": True, "mysql.pass": "x"}
    one, two = place(tmp_path, "m1", ignore), place(tmp_path, "m2", {"mode": "observe"}, **planted)
    (tmp_path / "m2/srv/extra.sls").write_text("x")
    put(one, "db1")
    put(two, "db1", 1)

    async def act() -> tuple[Any, Any]:
        async with met(one, two) as (m1, m2):
            await same_records(m1, m2)
            return await run(one, "check_consistency"), await run(one, "lint")

    answer, linted = asyncio.run(act())
    page = PAGE.read_text(encoding="utf-8").partition("## JSON")[2]
    assert answer.keys() == {
        *("kind", "outputter", "status", "masters", "unknown", "sections", "retcode")
    }
    parts = answer["sections"].values()
    differences = [difference for part in parts for difference in part["differences"]]
    for level in (answer, *parts, *differences):
        assert {key for key in level if f'"{key}"' not in page and f"`{key}`" not in page} == set()
    for part in parts:
        assert part.keys() >= {"status", "unknown", "differences"}
    for difference in differences:
        assert difference.keys() >= {"path", "values", "severity", "fix"}
        assert difference["values"].keys() <= {"m1", "m2"}
    assert answer["sections"]["options"]["ignored"] == 1
    assert {"keys", "roots"} == {n for n, p in answer["sections"].items() if "counts" in p}
    page = (PAGE.parent / "lint.md").read_text(encoding="utf-8")
    for level in (linted, *linted["findings"]):
        assert {key for key in level if f'"{key}"' not in page} == set()
    assert linted["findings"]
