"""What documentation recommends, our own and that of others, and what ``ha.lint`` says of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.lint import check, collect, page
from saltext_ha.lint.model import INFO, MASTER, MINION
from saltext_ha.lint.rules.files import RIGHT
from tests.unit.lint.linting import LAST, facts_of_text, hits, minion

pytestmark = pytest.mark.core

REPOSITORY = Path(__file__).parents[3]


def test_what_guides_on_the_web_recommend(tmp_path: Path) -> None:
    """Two masters in containers on one host, failover by publish ports."""
    facts = minion(
        tmp_path,
        "master:\n  - 192.168.1.81:4505\n  - 192.168.1.81:4507\nmaster_type: failover\n"
        "master_alive_interval: 30\nrandom_master: true\n",
    )
    found = {(f["code"], f["line"]) for f in check.inspect("x", facts)}
    serious = {("HA101", 2), ("HA101", 3), ("HA104", 3), ("HA213", 5)}
    assert found == {*serious, ("HA204", 4), ("HA209", 6), ("HA218", 4)}
    # Mended in its first line only: the second entry is dead all the same.
    for first in ("192.168.1.81", "192.168.1.81:4506"):
        facts = minion(tmp_path, f"master:\n  - {first}\n  - 192.168.1.81:4507\n")
        (found_there,) = hits(facts, "HA101")
        assert found_there["line"] == 3
        assert "its request port is 4508" in found_there["detail"]
    facts = minion(tmp_path, "master: ['192.168.1.81:4505', '192.168.1.81:4506']\n")
    named = [finding["detail"] for finding in hits(facts, "HA101")]
    assert named == ["192.168.1.81:4505: 4505 is the publish port"]
    facts = minion(tmp_path, "master: 192.168.1.81,192.168.1.81:4507\n")  # bootstrap-salt -A
    assert [f["code"] for f in check.inspect("x", facts)] == ["HA106"]


def documented() -> Iterator[tuple[str, str, str]]:
    """(page, role, text) of every configuration in the documentation; each YAML there is one."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    for source in pages:
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", source.read_text(), re.S | re.M):
            lines = block.splitlines()
            indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
            text = "\n".join(line[indent:] for line in lines) + "\n"
            document = yaml.safe_load(text)
            options = set(document)
            if options & {"services", "scrape_configs"} or is_sls(document):
                continue  # of docker compose, of Prometheus, states
            unknown = options - collect.KNOWN - RIGHT - {"ha", "ha_masters"}
            # Older releases do not know those of a cluster.
            assert all(o.startswith("cluster_") for o in unknown), f"{source.name}: what is this?"
            yield source.name, MINION if "master" in options else MASTER, text


def is_sls(document: dict[str, Any]) -> bool:
    """Whether *document* declares states."""
    return any(
        "." in str(key) for value in document.values() if type(value) is dict for key in value
    )


@pytest.mark.parametrize(("source", "role", "text"), list(documented()))
def test_no_alarm_on_what_the_documentation_recommends(
    source: str, role: str, text: str, tmp_path: Path
) -> None:
    facts = facts_of_text(text, role, tmp_path)
    # That page is about what only 3008 has.
    for release in (3008,) if "cluster_id" in text else (3006, 3007, 3008):
        there = dataclasses.replace(facts, version=(release, LAST))
        # The watchdog is said to be better, and to be left out as well. Files that are named are
        # not here.
        found = [f for f in check.inspect("x", there) if f["code"] != "HA218"]
        assert [f for f in found if "cannot be read (No such file" not in f["detail"]] == []
    if role == MASTER and "cluster_id" not in text:  # whose members do not have the same
        both = [collect.member(n, facts_of_text(text, role, tmp_path, n)) for n in ("m1", "m2")]
        alarms = [f for f in check.compare(both) if f["severity"] != INFO]
        assert alarms == []


def test_the_documentation_has_such_configurations() -> None:
    found = list(documented())
    assert {name for name, *_ in found} >= {"README.md", "minions.md", "new-group.md"}
    roles = [role for _, role, _ in found]
    assert (roles.count(MASTER), roles.count(MINION)) >= (8, 3)


def test_the_page_is_current() -> None:
    written = (REPOSITORY / "docs/lint.md").read_text(encoding="utf-8")
    assert written == page.page(), "python -m saltext_ha.lint.page > docs/lint.md"
