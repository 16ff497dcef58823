"""A group by ``deploy/compose.yaml``, on a Docker Engine of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import requests

from lab.network import Network
from lab.wait import wait_for
from proving.containers.docker import Docker, program, run
from proving.containers.image import BASE_IMAGE, IMAGE, ROOT

M1, M2 = MASTERS = ("salt-master-1", "salt-master-2")
NETWORK = "deploy_salt"
HOST_OF = {M1: 11, M2: 12}  # the last number of their addresses, as compose.yaml gives them
SECRET, PASSWORD = secrets.token_hex(32), secrets.token_hex(16)
# Seconds for a start with its join, two masters at a time on two busy cores.
START = 240.0
SOON = 90.0
SITE = f"""\
worker_threads: 2
sharedsecret: {PASSWORD}
external_auth:
  sharedsecret:
    operator: ['.*', '@runner', '@wheel', '@jobs']
netapi_enable_clients: [local, runner, wheel]
"""
MINION = """\
id: {id}
master: [salt-master-1:4506, salt-master-2:4508]
acceptance_wait_time: 2
auth_timeout: 10
log_level: info
"""


def free_subnet() -> str:
    """
    The first three numbers of a network that this host has no route to.

    A killed run may leave a bridge behind. If two networks have the same addresses, one of them
    cannot be reached.
    """
    command = [program("ip"), "-json", "-4", "route", "show", "table", "all"]
    routes = json.loads(run(command, dict(os.environ), ROOT))
    taken = [ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    for number in range(45, 255):
        if not any(map(ip_network(f"172.30.{number}.0/24").overlaps, taken)):
            return f"172.30.{number}"
    raise RuntimeError("this host has routes to all of 172.30.45.0 to 172.30.254.0")


class ComposedGroup:
    """
    The group that ``compose.yaml`` makes in *folder*, from a copy of ``deploy/`` as operators have.

    :ivar url: the URL of salt-api behind the balancer.
    """

    def __init__(self, docker: Docker, folder: Path) -> None:
        self.docker, self.folder, self._network = docker, folder / "deploy", Network()
        own = shutil.ignore_patterns("secrets", "site.d", "srv", ".env")
        shutil.copytree(ROOT / "deploy", self.folder, ignore=own)
        for name in ("secrets", "site.d", "srv/salt", "srv/pillar"):
            (self.folder / name).mkdir(parents=True)
        secret = self.folder / "secrets" / "ha.secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        (self.folder / "site.d" / "site.conf").write_text(SITE)
        (self.folder / "srv" / "salt" / "there.sls").write_text("there:\n  test.nop: []\n")
        # Loopback only, with an address of its own for each.
        at = {name: self._network.address() for name in (*MASTERS, "api")}
        self._subnet = free_subnet()
        self._env = {
            **docker.env,
            "SALT_HA_IMAGE": IMAGE,
            "SALT_BALANCER_IMAGE": BASE_IMAGE,
            "SALT_SUBNET": self._subnet,
            "SALT_MASTER_1_BIND": at[M1],
            "SALT_MASTER_2_BIND": at[M2],
            "SALT_API_BIND": at["api"],
            "SALT_START_LOCAL_MINION": "true",
        }
        self.url = f"http://{at['api']}:8080/salt-api/"

    def close(self) -> None:
        """Remove containers, networks and volumes."""
        self.compose("down", "--volumes", "--remove-orphans")
        self._network.close()

    def compose(self, *arguments: str) -> str:
        """``docker-compose --profile ha ARGUMENTS``."""
        command = [program("docker-compose"), "--profile", "ha", *arguments]
        return run(command, self._env, self.folder)

    def compose_one(self, *arguments: str) -> str:
        """``docker-compose ARGUMENTS``, without a profile."""
        return run([program("docker-compose"), *arguments], self._env, self.folder)

    def inside(self, name: str, *command: str) -> str:
        """The output of *command* in a container, as user salt."""
        return self.docker("exec", "--user", "salt", name, *command)

    def salt_ha(self, name: str, *arguments: str) -> dict[str, Any]:
        """The answer of ``salt-ha ARGUMENTS``, whatever its exit status."""
        script = 'salt-ha --out=json "$@"; [ $? -le 2 ]'
        return dict(json.loads(self.inside(name, "sh", "-c", script, "sh", *arguments)))

    def salt(self, master: str, *arguments: str) -> dict[str, Any]:
        """``salt --static --out=json ARGUMENTS`` on that master."""
        script = 'salt --static --out=json "$@"; true'
        said = self.inside(master, "sh", "-c", script, "sh", *arguments)
        return dict(json.loads(said)) if said.strip().startswith("{") else {}

    def keys(self, master: str) -> dict[str, list[str]]:
        """State → ids, in that master's own key store."""
        return dict(json.loads(self.inside(master, "salt-key", "--list=all", "--out=json")))

    def accepted(self, master: str) -> set[str]:
        return {*self.keys(master)["minions"]}

    def health(self, name: str) -> str:
        """The state of a container by its HEALTHCHECK."""
        return str(self.docker.shows(name)["State"]["Health"]["Status"])

    def is_ready(self, *names: str, timeout: float = START) -> None:
        """Wait until all those masters are ready for callers."""
        try:
            wait_for(
                lambda: all(self.health(name) == "healthy" for name in names),
                timeout,
                f"{' and '.join(names)} are ready",
                poll=1,
            )
        except TimeoutError as exc:
            logs = "\n".join(self.docker.logs(name)[-4000:] for name in names)
            raise TimeoutError(f"{exc}\n{logs}") from None

    def is_well(self, *names: str) -> None:
        """Wait until each of those masters says, by a comparison made now, that all is well."""
        for name in names:
            self.salt_ha(name, "check_consistency")
        wait_for(
            lambda: self._well(names),
            START,
            f"{' and '.join(names)} have nothing to complain of",
            poll=2,
        )

    def _well(self, names: tuple[str, ...]) -> bool:
        found = {name: self.complaints(name) for name in names}
        if any(found.values()):
            raise AssertionError(found)  # the reason why the wait goes on
        return True

    def complaints(self, name: str) -> list[str]:
        """Why that master does not say that the group is well; for people."""
        told = self.salt_ha(name, "status")
        reasons = [str(each.get("text")) for each in told["reasons"]]
        return [] if told["state"] == "ok" else [f"{told['state']}: {reasons}"]

    def start_minion(self, name: str) -> None:
        """Start a minion that is connected to both masters, in a container of its own."""
        script = 'printf %s "$0" > /etc/salt/minion; exec salt-minion'
        self.docker(
            *("run", "--detach", "--name", name, "--network", NETWORK, IMAGE),
            *("sh", "-c", script, MINION.format(id=name)),
        )

    def answers(self, master: str, minion: str, timeout: float = SOON) -> None:
        """Wait until *minion* answers a job that *master* publishes."""
        wait_for(
            lambda: self.salt(master, "--timeout=10", minion, "test.ping").get(minion) is True,
            timeout,
            f"{minion} answers to {master}",
            poll=1,
        )

    def call(self, **lowstate: Any) -> Any:
        """The return of salt-api after a login, through the balancer, by plain HTTP."""
        with requests.Session() as session:
            session.trust_env = False
            given = {"username": "operator", "password": PASSWORD, "eauth": "sharedsecret"}
            answer = session.post(f"{self.url}login", json=given, timeout=60)
            answer.raise_for_status()
            token = answer.json()["return"][0]["token"]
            answer = session.post(
                self.url, json=[lowstate], headers={"X-Auth-Token": token}, timeout=90
            )
            answer.raise_for_status()
            return answer.json()["return"][0]

    def api_reaches(self, minion: str, timeout: float = SOON) -> None:
        """Wait until a job by salt-api reaches *minion*."""
        job = {"client": "local", "tgt": minion, "fun": "test.ping", "timeout": 10}
        wait_for(
            lambda: self.call(**job).get(minion) is True,
            timeout,
            f"{minion} answers to salt-api",
            poll=1,
        )

    def disconnect(self, name: str) -> None:
        """Take it out of the network: everything that is sent to it is lost."""
        self.docker("network", "disconnect", NETWORK, name)

    def connect(self, name: str) -> None:
        """Put it back, at the address that compose.yaml gives it."""
        address = f"{self._subnet}.{HOST_OF[name]}"
        self.docker("network", "connect", "--ip", address, NETWORK, name)
