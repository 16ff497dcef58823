"""What Salt passes on to the functions of the runner; 3006 drops arguments by keyword only."""

from __future__ import annotations

import inspect

import pytest

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


def test_what_deploy_does_not_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"pki_dir": "/tmp/pki", "sock_dir": "/tmp/run", "cachedir": "/tmp/c"}
    opts = {**folders, "id": "m1", "interface": "127.0.0.1", "ha": {"name": "m1"}}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)
    monkeypatch.setattr(ha, "__context__", {}, raising=False)
    answer = ha.deploy("states", tets=True, __pub_user="root")
    assert answer["retcode"] == 2
    assert "tets: takes test, without, message, adopt" in answer["error"]
