"""What Salt passes on to the functions of the runner; 3006 drops arguments by keyword only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from salt.utils.args import yamlify_arg

from saltext_ha.commands import engine_client, runner_arguments
from saltext_ha.commands.arguments import left_out
from saltext_ha.commands.trees import deploy_runner
from saltext_ha.common.errors import HaError
from saltext_ha.runners import ha

FUNCTIONS = [
    function
    for name, function in vars(ha).items()
    if inspect.isfunction(function) and function.__module__ == ha.__name__ and name[0] != "_"
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_no_argument_is_by_keyword_only(function: object) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    assert not [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"pki_dir": "/tmp/pki", "sock_dir": "/tmp/run", "cachedir": "/tmp/c"}
    opts = {**folders, "id": "m1", "interface": "127.0.0.1", "ha": {"name": "m1"}}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)
    monkeypatch.setattr(ha, "__context__", {}, raising=False)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_a_mistyped_switch_is_refused(function: Callable[..., Any]) -> None:
    """``force=flase`` and ``share_master_key=n`` are texts for Salt, and counted as on."""
    takes = {
        name: each
        for name, each in inspect.signature(function).parameters.items()
        if name not in ("kwargs", "options")
    }
    switches = [name for name, each in takes.items() if isinstance(each.default, bool)]
    if function in (ha.deploy, ha.cmd):
        switches = {ha.deploy: ["test", "adopt"], ha.cmd: ["test", "progress"]}[function]
    words = ["web*"] * sum(
        each.default is each.empty and each.kind is not each.VAR_POSITIONAL
        for each in takes.values()
    )
    for name in switches:
        for wrong in ("flase", "n", "", None, 2, [True]):
            answer = function(*words, **{name: wrong})
            assert answer["retcode"] == 2
            assert name in answer["error"], (name, wrong, answer)
            assert "takes true or false" in answer["error"].lower(), (name, wrong, answer)


def test_a_switch_of_a_form_is_text() -> None:
    for text, value in (("True", True), ("false", False), (1, True), (0, False)):
        assert runner_arguments.switch("test", text) is value


@pytest.mark.parametrize("wrong", [83, 1.1, False])
def test_an_id_that_is_no_text_any_more_is_refused(wrong: object) -> None:
    """0123 came as 83, and 1.10 as 1.1: the key of another minion would be restored."""
    for answer in (
        ha.restore(wrong), ha.resolve(wrong, "61"), ha.rewrite(wrong), ha.keys_(wrong),
        ha.history(wrong), ha.minions(wrong), ha.failover_safe("m1", wrong),
    ):  # fmt: skip
        assert (answer["kind"], answer["retcode"]) == ("error", 2)
        assert f"Salt has made {wrong} of a minion id" in answer["error"]


@pytest.mark.parametrize("wrong", [7, 45296])
def test_a_fingerprint_that_is_no_text_any_more_is_refused(wrong: object) -> None:
    """07 came as 7, and 12:34:56 as 45296: a key that begins with 7a would be kept or accepted."""
    for answer in (ha.resolve("web1", wrong), ha.restore("web1", wrong)):  # type: ignore[arg-type]
        assert (answer["kind"], answer["retcode"]) == ("error", 2)
        assert f"Salt has made {wrong} of a fingerprint" in answer["error"]


def test_one_id_is_no_list() -> None:
    """Its text is a glob that matches nothing, and nothing is no trouble."""
    wrong: Any = ["web1", "web2"]
    for answer in (
        ha.keys_(wrong), ha.history(wrong), ha.rewrite(wrong), ha.resolve(wrong, "61"),
        ha.restore(wrong, since="1h"), ha.minions(wrong), ha.failover_safe("m1", wrong),
    ):  # fmt: skip
        assert (answer["kind"], answer["retcode"]) == ("error", 2)
        assert answer["error"] == "takes a minion id, not a list: ['web1', 'web2']"
    refused = ha.resolve("web1", wrong)
    assert refused["error"] == "takes a fingerprint, not a list: ['web1', 'web2']"
    # Where a list is meant, the engine is asked.
    assert "is not running" in ha.where(wrong)["error"]


@pytest.mark.parametrize("typed", ["14:00", "14:00:30", "2", "1.5", "no"])
def test_how_far_back_is_no_number(typed: str) -> None:
    """A time of day would count as seconds: 14:00 is 840, and so little would be undone."""
    since = yamlify_arg(typed)
    assert not isinstance(since, str)
    for answer in (
        ha.history(since=since), ha.restore("web*", since=since),
        ha.remove_peer("m3", since=since, undo=True),
    ):  # fmt: skip
        assert (answer["kind"], answer["retcode"]) == ("error", 2)
        assert f"since={since}: takes a span of time with its unit" in answer["error"]


def test_a_number_in_quotes_is_no_span_either() -> None:
    answer = ha.history(since="840")
    assert "since='840': takes a span of time with its unit" in answer["error"]


def test_a_timeout_that_an_application_leaves_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job would be published, and its returns not waited for."""
    sent: list[dict[str, Any]] = []

    def engine(settings: Any, command: str, payload: dict[str, Any], *rest: Any) -> dict[str, Any]:
        sent.append(payload)
        raise HaError("that will do")

    monkeypatch.setattr(engine_client, "engine", engine)
    assert ha.cmd("*", "test.ping", timeout=None)["error"] == "that will do"
    assert sent[0]["timeout"] == 60.0


def test_trees_to_roll_back_are_a_text_or_a_list() -> None:
    for trees in ("states, pillar", ["states", "pillar"], [5], 5):
        assert "is not running" in ha.rollback(tree=trees)["error"]  # type: ignore[arg-type]


@pytest.mark.parametrize("tree", ["", " ", ",", []])
def test_an_empty_tree_is_not_all_trees(tree: Any) -> None:
    """``tree=$TREE`` in a script whose variable is not set."""
    for answer in (ha.rollback(tree=tree), ha.deploy(tree=tree), ha.deploy("states", tree=tree)):
        assert answer["error"].startswith("tree= is empty: name a tree")
        assert answer["retcode"] == 2


@pytest.mark.parametrize("typed", ["0", "no"])
def test_what_salt_makes_nothing_of_is_not_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str
) -> None:
    """All trees would be rolled back, all invitations withdrawn, and everybody's writes shown."""
    sent: list[dict[str, Any]] = []

    def engine(settings: Any, command: str, payload: dict[str, Any], *rest: Any) -> dict[str, Any]:
        sent.append(payload)
        raise HaError("that will do")

    monkeypatch.setattr(engine_client, "engine", engine)
    monkeypatch.setattr(deploy_runner, "engine", engine)
    wrong = yamlify_arg(typed)
    assert not wrong
    ha.rollback(tree=wrong)
    ha.history(by=wrong)
    ha.failover_safe(wrong)
    assert [sent[0]["trees"], sent[1]["by_whom"], sent[2]["master"]] == [
        [str(wrong)], str(wrong), str(wrong)
    ]  # fmt: skip
    monkeypatch.setitem(ha.__opts__, "pki_dir", str(tmp_path))
    assert str(wrong) in ha.withdraw(wrong)["notes"][0]
    with pytest.raises(HaError, match=f"no master '{wrong}' in this group"):
        left_out(wrong, "m1", ["m1", "m2"])


@pytest.mark.parametrize("batch", [0, False, ""])
def test_a_batch_of_nobody_is_not_all_at_once(batch: Any) -> None:
    answer = ha.cmd("*", "test.ping", batch=batch)
    assert answer["error"] == f"batch={batch!r}: takes a number from 1, or a share such as 10%"


def test_how_far_back_may_be_left_out() -> None:
    for since in ("", None, "2h"):
        answer = ha.history(since=since)  # type: ignore[arg-type]
        assert "is not running" in answer["error"]


@pytest.mark.parametrize("wrong", ["5m", 0, True])
def test_a_wrong_timeout_restarts_no_master(wrong: object) -> None:
    answer = ha.restart_masters(timeout=wrong)
    assert answer["error"] == f"timeout={wrong!r}: takes seconds, more than 0"


def test_what_deploy_does_not_take_is_named() -> None:
    answer = ha.deploy("states", tets=True, __pub_user="root")
    assert answer["retcode"] == 2
    assert "tets: takes tree, test, without, message, adopt" in answer["error"]


@pytest.mark.parametrize("wrong", ["text", 5, [1], {1: 2}])
def test_more_arguments_that_are_no_mapping_are_an_error(
    wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha, "__salt__", {"test.arg": print}, raising=False)
    for answer in (ha.cmd("*", "test.arg", kwarg=wrong), ha.once("test.arg", kwarg=wrong)):
        assert (answer["kind"], answer["retcode"]) == ("error", 2)
        assert answer["error"] == "kwarg: takes a mapping of arguments: kwarg='{name: web1}'"
