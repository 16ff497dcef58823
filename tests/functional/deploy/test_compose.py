"""``deploy/compose.yaml`` and what it mounts, as far as that needs no Docker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.balancer.render import render, wishes
from saltext_ha.balancer.servers import Address, Server
from saltext_ha.config import trees as config_trees
from saltext_ha.config.mapping import parse

pytestmark = pytest.mark.core

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = {".yaml", ".conf"}
MASTERS = ("salt-master-1", "salt-master-2")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def filled(env: dict[str, str]) -> dict[str, Any]:
    """``compose.yaml`` as Compose reads it with the variables *env*."""
    text = (DEPLOY / "compose.yaml").read_text()
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda one: env.get(one[1], one[2]), text)
    return dict(yaml.safe_load(text))


def mounts(service: dict[str, Any]) -> list[list[str]]:
    return [each.split(":") for each in service["volumes"]]


def test_without_a_profile_there_is_one_master(compose: dict[str, Any]) -> None:
    always = [name for name, service in compose["services"].items() if "profiles" not in service]
    assert always == ["salt-master-1"]
    assert {*compose["services"]} == {*MASTERS, "salt-api"}


def test_no_master_has_a_volume_of_another(compose: dict[str, Any]) -> None:
    volumes = {}
    for name in MASTERS:
        own = {source for source, *_ in mounts(compose["services"][name]) if source[0] != "."}
        volumes[name] = own
        targets = {target for source, target, *_ in mounts(compose["services"][name])}
        assert {"/etc/salt/pki", "/var/cache/salt"} <= targets
    assert not volumes[MASTERS[0]] & volumes[MASTERS[1]]
    assert volumes[MASTERS[0]] | volumes[MASTERS[1]] == {*compose["volumes"]}


def test_what_is_mounted_of_the_host_is_there_and_read_only(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for mount in mounts(service):
            if mount[0].startswith("."):
                assert mount[2:] == ["ro"], (name, mount)
                # Files; folders are the operator's.
                assert (DEPLOY / mount[0]).is_file() == (Path(mount[0]).suffix in FILES), mount


def test_both_masters_have_one_list_and_one_secret() -> None:
    compose = filled({})
    one, two = (compose["services"][name] for name in MASTERS)
    for key in ("SALT_HA_MASTERS", "SALT_HA_SECRET_FILE", "SALT_HA_SETTINGS_FILE"):
        assert one["environment"][key] == two["environment"][key]
    assert one["environment"]["SALT_HA_MASTERS"].split() == [*MASTERS]
    for service, name in ((one, MASTERS[0]), (two, MASTERS[1])):
        assert service["environment"]["SALT_MASTER_ID"] == service["hostname"] == name
        assert service["secrets"] == ["ha_secret"]
    assert compose["secrets"]["ha_secret"]["file"] == "./secrets/ha.secret"


def test_one_master_alone_misses_no_other() -> None:
    """One that is listed and not there makes its group degraded for ever."""
    found = filled({"SALT_HA_MASTERS": MASTERS[0]})["services"][MASTERS[0]]
    assert found["environment"]["SALT_HA_MASTERS"] == MASTERS[0]


ON_TWO_ADDRESSES = {
    "SALT_MASTER_1_BIND": "10.0.0.1",
    "SALT_MASTER_2_BIND": "10.0.0.2",
    "SALT_MASTER_2_PUBLISH_PORT": "4505",
    "SALT_MASTER_2_RET_PORT": "4506",
}


@pytest.mark.parametrize(
    ("env", "published"),
    [
        ({}, ("0.0.0.0:4505 0.0.0.0:4506", "0.0.0.0:4507 0.0.0.0:4508")),
        # Failover minions need the same ports on both.
        (ON_TWO_ADDRESSES, ("10.0.0.1:4505 10.0.0.1:4506", "10.0.0.2:4505 10.0.0.2:4506")),
    ],
)
def test_a_port_has_one_number_inside_and_outside(
    env: dict[str, str], published: tuple[str, str]
) -> None:
    found = filled(env)
    for name, ports in zip(MASTERS, published, strict=True):
        service = found["services"][name]
        inside = [
            service["environment"].get(key, usual)
            for key, usual in (("SALT_PUBLISH_PORT", "4505"), ("SALT_RET_PORT", "4506"))
        ]
        outside = [each.rpartition(":") for each in service["ports"]]
        assert " ".join(host for host, _, _ in outside) == ports
        assert [port for *_, port in outside] == inside
        assert [host.rpartition(":")[2] for host, _, _ in outside] == inside


def test_the_status_page_is_for_this_host_alone_unless_asked_otherwise(
    compose: dict[str, Any],
) -> None:
    added = yaml.safe_load((DEPLOY / "compose.status.yaml").read_text())
    assert {*added["services"]} == {*MASTERS}
    script = (DEPLOY / "entrypoint").read_text()
    for name, port in zip(MASTERS, (4531, 4532), strict=True):
        service = added["services"][name]
        assert service["ports"] == [f"${{SALT_STATUS_BIND:-127.0.0.1}}:{port}:4531"]
        assert all(f" {variable}" in script for variable in service["environment"])
        files = {f"/run/secrets/{secret}" for secret in added["secrets"]}
        assert {*service["environment"].values()} == files
        assert {*service["secrets"]} == {*added["secrets"]}
    assert not {*added["secrets"]} & {*compose["secrets"]}
    assert all(each["file"].startswith("./secrets/") for each in added["secrets"].values())


def test_the_page_names_each_variable() -> None:
    page = (DEPLOY.parent / "docs" / "containers.md").read_text()
    for file in DEPLOY.glob("compose*.yaml"):
        for name in re.findall(r"\$\{(\w+):-", file.read_text()):
            assert f"`{name}`" in page, name


def test_salt_api_is_for_this_host_alone_unless_asked_otherwise(compose: dict[str, Any]) -> None:
    (port,) = compose["services"]["salt-api"]["ports"]
    assert port == "${SALT_API_BIND:-127.0.0.1}:8080:8080"
    assert not any(
        "8002" in port for name in MASTERS for port in compose["services"][name]["ports"]
    )


def test_the_more_of_ha_is_what_the_engine_takes() -> None:
    more = yaml.safe_load((DEPLOY / "ha.yaml").read_text())
    assert more
    config = parse(
        {
            "id": "m1",
            "pki_dir": "/pki",
            "sock_dir": "/run",
            "ha": {"name": "m1", "address": "m1", **more},
        }
    )
    assert config.name == "m1"


def test_the_trees_that_may_be_uncommented_can_be_deployed(compose: dict[str, Any]) -> None:
    lines = (DEPLOY / "ha.yaml").read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("# trees:"))
    text = "\n".join(line.removeprefix("# ") for line in lines[start:])
    trees = config_trees.parse(yaml.safe_load(text)["trees"])
    assert trees
    image = (DEPLOY / "Dockerfile").read_text()
    of_salt = re.findall(r"install -d -o salt -g salt ([^&]+)", image)
    for name in MASTERS:
        mounted = {target: source for source, target, *_ in mounts(compose["services"][name])}
        for tree in trees:
            # There are the versions, too, and salt exchanges the live folder in it.
            folder = str(tree.live.parent)
            assert folder in " ".join(of_salt).split()
            assert mounted.get(folder, ".")[0] != ".", f"{folder} goes with the container"
            assert str(tree.source) in mounted


def test_the_balancer_has_what_the_command_prints(compose: dict[str, Any]) -> None:
    port = int(compose["x-environment"]["SALT_API_PORT"])
    masters = [Server(name, Address(name, port, False)) for name in MASTERS]
    wanted = wishes(kind="nginx", listen=8080, tls=False, prefix="/salt-api/")
    text = render(wanted, "default", MASTERS[0], masters)
    kept = DEPLOY / "nginx" / "salt-api.conf"
    assert kept.read_text() == text + "\n", f"print it anew: {wanted.command} > {kept}"
