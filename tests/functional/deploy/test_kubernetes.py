"""``deploy/kubernetes/``: by Kubernetes' own schemas, and by what the entrypoint makes of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from saltext_ha.config import mapping
from tests.functional.deploy.test_entrypoint import Container

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "kubernetes"
# The oldest with all that is used, and the newest that the validator knows.
RELEASES = ("1.27", kubernetes_validate.latest_version())
OBJECTS = [
    each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())
]
NAMES = [f"{each['kind']}/{each['metadata']['name']}" for each in OBJECTS]


def the(kind: str, name: str) -> Any:
    return copy.deepcopy(OBJECTS[NAMES.index(f"{kind}/{name}")])


STATEFUL = the("StatefulSet", "salt-master")["spec"]
POD = STATEFUL["template"]["spec"]
(CONTAINER,) = POD["containers"]
APART = (
    POD.get("affinity", {})
    .get("podAntiAffinity", {})
    .get("requiredDuringSchedulingIgnoredDuringExecution", [])
)
ENVIRONMENT = {each["name"]: each.get("value") for each in CONTAINER["env"]}
MASTERS = [f"salt-master-{number}" for number in range(STATEFUL["replicas"])]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("each", OBJECTS, ids=NAMES)
def test_it_is_what_kubernetes_takes(each: Mapping[str, Any], release: str) -> None:
    kubernetes_validate.validate(each, release, strict=True)


def test_what_is_wrong_would_be_found() -> None:
    wrong = the("StatefulSet", "salt-master")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
    with pytest.raises(kubernetes_validate.utils.ValidationError, match="livenessProbes"):
        kubernetes_validate.validate(wrong, RELEASES[-1], strict=True)


def test_objects_name_what_is_there() -> None:
    assert f"Service/{STATEFUL['serviceName']}" in NAMES
    labels = STATEFUL["template"]["metadata"]["labels"].items()
    selectors = [
        STATEFUL["selector"]["matchLabels"],
        the("PodDisruptionBudget", "salt-master")["spec"]["selector"]["matchLabels"],
        the("Service", "salt-masters")["spec"]["selector"],
        *(each["labelSelector"]["matchLabels"] for each in APART),
    ]
    assert all(selector.items() <= labels for selector in selectors)
    claims = {each["metadata"]["name"] for each in STATEFUL["volumeClaimTemplates"]}
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert {each["name"] for each in CONTAINER["volumeMounts"]} == claims | volumes.keys()
    assert f"ConfigMap/{volumes['site']['configMap']['name']}" in NAMES
    assert f"Secret/{volumes['secret']['secret']['secretName']}" in NAMES
    # Readable for its owner alone; the entrypoint copies it for salt.
    assert volumes["secret"]["secret"]["defaultMode"] == 0o400


def test_each_master_has_volumes_of_its_own_for_what_the_image_keeps() -> None:
    (line,) = [
        line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if "VOLUME" in line
    ]
    kept = yaml.safe_load(line.removeprefix("VOLUME "))
    claims = {each["metadata"]["name"] for each in STATEFUL["volumeClaimTemplates"]}
    mounts = {each["mountPath"] for each in CONTAINER["volumeMounts"] if each["name"] in claims}
    assert mounts == {*kept}
    for each in STATEFUL["volumeClaimTemplates"]:
        assert each["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_masters_find_each_other_before_they_are_ready() -> None:
    assert the("Service", "salt-masters")["spec"]["publishNotReadyAddresses"] is True
    assert the("Service", "salt-masters")["spec"]["clusterIP"] == "None"
    domain = STATEFUL["serviceName"]
    assert ENVIRONMENT["SALT_HA_MASTERS"].split() == [f"{name}.{domain}" for name in MASTERS]
    # One after the other, and as many as may be lost.
    assert the("PodDisruptionBudget", "salt-master")["spec"]["maxUnavailable"] == 1


def test_two_masters_never_run_on_one_node() -> None:
    """A spread over nodes does not say so: where there is one node, it lets all run there."""
    assert [each["topologyKey"] for each in APART] == ["kubernetes.io/hostname"]
    assert "topologySpreadConstraints" not in POD


def test_no_variable_of_kubernetes_is_taken_for_one_of_ours() -> None:
    assert POD["enableServiceLinks"] is False


def test_capabilities_are_those_that_make_containers_tries() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-master"]
    capabilities = CONTAINER["securityContext"]["capabilities"]
    assert capabilities == {"drop": compose["cap_drop"], "add": compose["cap_add"]}
    assert CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert "no-new-privileges:true" in compose["security_opt"]


def test_a_first_start_may_wait_for_its_group() -> None:
    probe = CONTAINER["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > int(ENVIRONMENT["SALT_HA_WAIT"])


def test_minions_reach_each_master_by_itself() -> None:
    services = [each for each in OBJECTS if each.get("spec", {}).get("type") == "LoadBalancer"]
    selectors = [each["spec"]["selector"] for each in services]
    assert selectors == [{"statefulset.kubernetes.io/pod-name": name} for name in MASTERS]
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    for each in services:
        # What makes both masters not ready, as held keys do, must not cut minions off.
        assert each["spec"]["publishNotReadyAddresses"] is True
        assert [(port["port"], ports[port["targetPort"]]) for port in each["spec"]["ports"]] == [
            (4505, 4505),
            (4506, 4506),
        ]


@pytest.mark.parametrize("name", MASTERS)
def test_the_entrypoint_makes_a_master_of_it(name: str, tmp_path: Path) -> None:
    """With the variables as Kubernetes expands them, and the files of the ConfigMap."""
    container = Container(tmp_path, ["sh"])
    try:
        files = the("ConfigMap", "salt-master")["data"]
        for file, text in files.items():
            (container.etc / "site.d" / file).write_text(text)
        settings = {
            **{key: str(value) for key, value in ENVIRONMENT.items()},
            "SALT_MASTER_ID": name,
            "SALT_HA_ADDRESS": ENVIRONMENT["SALT_HA_ADDRESS"].replace("$(SALT_MASTER_ID)", name),
            "SALT_HA_SECRET_FILE": str(container.secret),
            "SALT_HA_SETTINGS_FILE": str(container.etc / "site.d" / "ha.yaml"),
        }
        rendered = container.drop_in(settings)
        container.secret.chmod(0o600)
        container.secret.write_text("5e1f" * 16)
        config = mapping.parse({**rendered, "pki_dir": str(tmp_path), "sock_dir": str(tmp_path)})
        assert (config.name, config.address) == (name, f"{name}.salt-masters")
        assert config.url in config.masters
        assert len(config.masters) == len(MASTERS)
        # The settings of Salt's own are linked; those of ha: are no drop-in of Salt.
        links = {path.name for path in (container.etc / "master.d").iterdir() if path.is_symlink()}
        assert links == {"site.conf"}
    finally:
        container.close()


def test_the_secret_that_stands_there_is_refused(tmp_path: Path) -> None:
    (value,) = the("Secret", "salt-ha")["stringData"].values()
    path = tmp_path / "ha.secret"
    path.write_text(value)
    path.chmod(0o600)
    opts = {"pki_dir": str(tmp_path), "sock_dir": str(tmp_path), "id": "m1"}
    ha = {"name": "m1", "address": "m1", "masters": ["https://m1:4530"], "secret_file": str(path)}
    with pytest.raises(mapping.ConfigError, match="secret_file"):
        mapping.parse({**opts, "ha": ha})
