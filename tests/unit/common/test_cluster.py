"""Salt's own cluster: who distributes keys, and what may be configured beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import salt.config

from saltext_ha.commands.masters import status
from saltext_ha.common import cluster, master_key
from saltext_ha.common.errors import ConfigError, TrustError
from saltext_ha.config.mapping import HaConfig, parse
from saltext_ha.consistency import master_key as section
from saltext_ha.consistency.facts import Facts
from saltext_ha.keystore import open_store
from saltext_ha.membership import handover
from saltext_ha.reconciler.hints import Hint, read_hint
from saltext_ha.reconciler.wheel_calls import WheelCalls
from tests.keys import public_key
from tests.unit.config import options

pytestmark = pytest.mark.core

SALT_3006: set[str] = set()
SALT_3007 = {"cluster_id"}
SALT_3008 = {"cluster_id", "cluster_isolated_filesystem"}
HAS_CLUSTERS = "cluster_id" in salt.config.DEFAULT_MASTER_OPTS
MAY_BE_ISOLATED = "cluster_isolated_filesystem" in salt.config.DEFAULT_MASTER_OPTS

OPTS = {**options.OPTS, "cluster_id": "prod", "cluster_pki_dir": "/srv/cluster"}
ISOLATED = {**OPTS, "cluster_isolated_filesystem": True}


def of(opts: dict[str, Any], known: set[str]) -> cluster.Cluster:
    found = cluster.of(opts, known)
    assert found
    return found


def read(opts: dict[str, Any], **ha: Any) -> HaConfig:
    return parse({**opts, "ha": ha})


def test_what_a_release_of_salt_does_not_know_it_ignores() -> None:
    assert cluster.of(ISOLATED, SALT_3006) is None
    assert not of(ISOLATED, SALT_3007).isolated
    assert of(ISOLATED, SALT_3008).isolated
    assert not of(OPTS, SALT_3008).isolated


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_master_without_cluster_id_is_in_no_cluster(nothing: str | None) -> None:
    assert cluster.of({**ISOLATED, "cluster_id": nothing}, SALT_3008) is None


def test_a_member_without_cluster_pki_dir_keeps_keys_in_its_pki_dir() -> None:
    member = of({**OPTS, "cluster_pki_dir": None}, SALT_3007)
    assert member.key_dir == Path("/etc/salt/pki/master")


def test_only_an_isolated_member_that_is_to_be_repaired_is_written() -> None:
    for repair in (False, True):
        assert "share /srv/cluster" in of(OPTS, SALT_3008).why_only_reported(repair)
    assert "ha: repair: true" in of(ISOLATED, SALT_3008).why_only_reported(False)
    assert of(ISOLATED, SALT_3008).why_only_reported(True) == ""


def test_why_a_shared_folder_cannot_be_repaired_depends_on_the_release() -> None:
    assert "need cluster_isolated_filesystem: True" in of(OPTS, SALT_3008).why_no_repair()
    assert "came with 3008" in of(ISOLATED, SALT_3007).why_no_repair()
    assert of(ISOLATED, SALT_3008).why_no_repair() == ""


def test_repair_of_a_shared_folder_is_a_configuration_error() -> None:
    if not HAS_CLUSTERS:
        assert read(OPTS, repair=True).repair
        return
    with pytest.raises(ConfigError) as caught:
        read(OPTS, repair=True)
    for words in ("/etc/salt/master", "repair", "/srv/cluster", "never writes", "remove it"):
        assert words in str(caught.value)
    assert not read(OPTS, repair=False).repair


@pytest.mark.skipif(not MAY_BE_ISOLATED, reason="this release of Salt has no isolated clusters")
def test_an_isolated_member_may_be_repaired() -> None:
    assert read(ISOLATED, repair=True).repair
    assert not read(ISOLATED).repair


def test_the_state_folder_is_never_in_a_shared_folder(tmp_path: Path) -> None:
    inside = {**OPTS, "cluster_pki_dir": None}
    if not HAS_CLUSTERS:
        assert read(inside).state_dir == Path("/etc/salt/pki/master/ha")
        return
    with pytest.raises(ConfigError, match=r"state_dir.*/etc/salt/pki/master/ha lies in"):
        read(inside)
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    linked = {**OPTS, "cluster_pki_dir": str(tmp_path / "link")}
    with pytest.raises(ConfigError, match="lies in the folder that all masters"):
        read(linked, state_dir=str(tmp_path / "shared" / "ha"))
    assert read(linked, state_dir=str(tmp_path / "own")).state_dir == tmp_path / "own"


@pytest.mark.skipif(not MAY_BE_ISOLATED, reason="this release of Salt has no isolated clusters")
def test_an_isolated_member_has_its_folder_for_itself() -> None:
    inside = {**ISOLATED, "cluster_pki_dir": None}
    assert read(inside).state_dir == Path("/etc/salt/pki/master/ha")


def test_the_store_is_where_this_release_of_salt_keeps_the_keys(tmp_path: Path) -> None:
    cluster_dir, own = tmp_path / "cluster", tmp_path / "own"
    here = cluster_dir if HAS_CLUSTERS else own
    (here / "minions").mkdir(parents=True)
    (here / "minions" / "web1").write_text(public_key(0))
    store = open_store({"pki_dir": str(own), "cluster_pki_dir": str(cluster_dir), "cluster_id": 1})
    assert list(store.changed()) == ["web1"]


def test_the_key_that_minions_know_is_the_clusters() -> None:
    assert master_key.name_of(OPTS) == ("cluster" if HAS_CLUSTERS else "master")


@pytest.mark.skipif(not HAS_CLUSTERS, reason="this release of Salt has no clusters")
def test_a_master_key_is_neither_handed_to_nor_by_a_member(tmp_path: Path) -> None:
    member = {**OPTS, "pki_dir": str(tmp_path)}
    with pytest.raises(TrustError, match=r"cluster prod.*invite without share_master_key"):
        handover.take(member)
    with pytest.raises(TrustError, match=r"cluster\.pem"):
        handover.place(member, {"master.pem": "…", "master.pub": "…"})
    # What everybody is shown, and the signing pair, which Salt does not exchange, are no matter.
    assert handover.place(member, {"master.pub": "…"}) == []
    with pytest.raises(TrustError, match="no signing pair"):
        handover.take(member, (master_key.SIGN,))
    _, problems = handover.foretell(member, {"master.pub": "…"}, master_key.ROLES)
    assert "cluster.pem" in problems[0]
    assert list(tmp_path.iterdir()) == []


def test_how_masters_come_to_one_key() -> None:
    """Nobody is told of a command that is refused here."""
    said = status.one_master_key(parse(OPTS), OPTS)
    assert ("cluster.pem" in said) == HAS_CLUSTERS
    assert ("share_master_key" in said) != HAS_CLUSTERS
    assert "salt-ha join --token-file - force=True" in status.one_master_key(parse(OPTS), {})


def test_members_are_told_so_though_another_one_cannot_be_asked() -> None:
    def member(fingerprint: str) -> Facts:
        leaves = {"fingerprint": fingerprint, section.IN_CLUSTER: True}
        return Facts(leaves, covers=tuple(section.RULES))

    found = section.compare({"m1": member("a"), "m2": member("b"), "m3": Facts({}, {"": "down"})})
    (difference,) = [each for each in found if each["path"] == "fingerprint"]
    assert "cluster.pem" in difference["fix"]


def test_an_event_that_the_cluster_relays_is_nobodys_deletion_here() -> None:
    told = {"id": "web1", "act": "delete", "result": True}
    assert read_hint("salt/key", told, WheelCalls()) == Hint("web1", "operator", True)
    relayed = {**told, "__peer_id": "10.0.0.2"}
    assert read_hint("salt/key", relayed, WheelCalls()) == Hint("web1", "cluster", False)
