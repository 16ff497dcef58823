"""The doors of ``make fuzz``, without atheris: they take proper inputs, notice what is wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from proving.hostile import guided
from proving.hostile.behind import bent

BENT = 300


@pytest.mark.parametrize("name", guided.DOORS)
def test_nothing_comes_out_but_what_is_documented(root: Path, name: str) -> None:
    rng = Random(f"guided {name}")
    with guided.opened(name, root) as door:
        accepted = [door.take(data) for data in door.seeds]
        # Who only ever meets a closed door has tried nothing.
        assert sum(accepted) >= len(accepted) / 4
        taken = [door.take(bent(rng, rng.choice(door.seeds))) for _ in range(BENT)]
        assert not all(taken)
        assert any(taken)


# What is broken on purpose, and behind which doors that is to be noticed.
BROKEN = {
    "records": "saltext_ha.keystore.minion_key.check_id",
    "tokens": "saltext_ha.membership.token.check_url",
    "names": "saltext_ha.keystore.minion_key.load_pem_public_key",
    "peer": "saltext_ha.sync.answers.answer_digest",
    "api": "saltext_ha.api.answer._check_depth",
    "strangers": "saltext_ha.membership.admission.make_peer",
    "control": "saltext_ha.sync.group.table",
    "status": "saltext_ha.web.pages.callers",
    "answers": "saltext_ha.sync.rounds.antientropy.differing_branches",
}


class Wrong(Exception):
    """Nothing that anybody documents."""


class WrongValue(Wrong, ValueError):
    """The same, of the kind by which messages are refused that are none."""


@pytest.mark.parametrize("name", guided.DOORS)
def test_any_other_error_is_a_finding(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*args: Any, **more: Any) -> Any:
        raise WrongValue if name == "answers" else Wrong

    found = []
    with guided.opened(name, root) as door, monkeypatch.context() as patched:
        patched.setattr(BROKEN[name], wrong)
        for data in door.seeds:
            try:
                door.take(data)
            except Wrong as exc:
                found.append(guided.place(exc))
    assert found


def test_the_input_of_a_finding_can_be_repeated(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = root / "names-0123"
    file.write_bytes(b"id\n\nweb1.example.com")
    assert guided.main(["--repeat", str(file)]) == 0
    assert capsys.readouterr().out == "accepted\n"
    file.write_bytes(b"id\n\n../web1")
    assert guided.main(["--repeat", str(file)]) == 0
    assert capsys.readouterr().out == "refused\n"
