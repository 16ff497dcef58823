"""``salt-ha report``: what it tells, and that no secret is in it, wherever one stands."""

from __future__ import annotations

import contextlib
import os
import pty
import pwd
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from salt.config import master_config

from lab.cli import run
from lab.fork_server import server_of
from saltext_ha.cli import report as report_command

pytestmark = pytest.mark.core

PYTHON = Path(sys.executable)
GROUP = "5e1f" * 16
TOKEN = "ha1." + "Zm9vYmFy" * 10
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAprivate\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "sharedsecret": "hunter2hunter2",
    "mysql.pass": "mysql-s3cret",
    "gitfs_remotes": ["https://robot:git-s3cret@git.example.com/states.git"],
    "ext_pillar": [{"vault": "token=pillar-s3cret"}],
    "our_own_thing": {"anything": "own-s3cret"},
    "etcd.password": "etcd-s3cret",
    "mongo.password": 12345678,
    "schedule": {"dump": {"function": "cmd.run", "args": ["mysqldump -pjob-s3cret db"]}},
    "engines": [{"ha": {}}, {"webhook": {"url": "https://hooks.example.com/T0/hook-s3cret"}}],
    "beacons": {"script": [{"cmd": "feed --password beacon-s3cret"}]},
}
WORDS = (
    *(GROUP, "hunter2hunter2", "mysql-s3cret", "git-s3cret", "pillar-s3cret", "own-s3cret"),
    *("etcd-s3cret", "etcd-ha-s3cret", "Zm9vYmFy", "MIIEowIBAAKCAQEAprivate"),
    *("12345678", "job-s3cret", "hook-s3cret", "beacon-s3cret"),
)
LOG = f"""\
2026-11-25 03:00:00,001 [salt.master      :1   ][INFO    ][1] of Salt's: pillar-of-somebody
2026-11-25 03:00:01,001 [saltext_ha.sync.link:7   ][WARNING ][1] peer=m2 state=away
2026-11-25 03:00:02,001 [saltext_ha.engine.main:9   ][ERROR   ][1] it fails
Traceback (most recent call last):
  ValueError: {GROUP} and hunter2hunter2 and mysql-s3cret and etcd-ha-s3cret and own-s3cret
  KeyError: 12345678 at https://hooks.example.com/T0/hook-s3cret
  OSError: mysqldump -pjob-s3cret db, feed --password beacon-s3cret
2026-11-25 03:00:03,001 [saltext_ha.join:7   ][WARNING ][1] {TOKEN} {KEY}
2026-11-25 03:00:04,001 [saltext_ha.git:7   ][WARNING ][1] https://a:git-s3cret@git.example.com/x
2026-11-25 03:00:05,001 [salt.loaded.int  :1   ][INFO    ][1] of Salt's, again
"""


def make(tmp_path: Path, **more: Any) -> Path:
    """The configuration of a master whose engine does not run, full of secrets."""
    root = tmp_path / "root"
    for path, text in {"ha.secret": GROUP, "etcd.secret": "etcd-ha-s3cret"}.items():
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o600)
    config = {
        "root_dir": str(root),
        "id": "m1",
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "worker_threads": 3,
        "hash_type": "sha512",
        **SECRETS,
        "ha": {
            "name": "m1",
            "address": "10.0.0.1",
            "masters": ["https://10.0.0.1:4530", "https://10.0.0.2:4530"],
            "secret_file": str(tmp_path / "ha.secret"),
            "leader": {
                "store": "etcd",
                "endpoints": ["https://10.0.0.9:2379"],
                "username": "ha",
                "password_file": str(tmp_path / "etcd.secret"),
            },
        },
        **more,
    }
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "master").write_text(yaml.safe_dump(config))
    (root / "var/log/salt").mkdir(parents=True)
    (root / "var/log/salt/master").write_text(LOG)
    return tmp_path / "etc"


def report(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status, and all that was said, by a forked process: it has imported all modules."""
    done = run(
        [str(PYTHON), "-m", "saltext_ha.cli", "-c", str(folder), "report", *arguments],
        env={**os.environ, **(env or {})},
        cwd=folder,
        timeout=60,
        parse=False,
        server=server_of(PYTHON),
    )
    return done.returncode, done.stdout + done.stderr


def test_it_tells_what_a_bug_report_needs_and_no_secret(tmp_path: Path) -> None:
    folder = make(tmp_path)
    status, text = report(folder)
    assert status == 0, text
    assert not [word for word in WORDS if word in text]
    for told in (
        "saltext-ha: ",
        "  Python: ",
        "hash_type: sha512",
        "ha:masters: [https://10.0.0.1:4530, https://10.0.0.2:4530]",
        "ha:leader:endpoints: [https://10.0.0.9:2379]",
        "ha:leader:username: ha",
        "mysql.pass: (not shown)",
        "our_own_thing:anything: (not shown)",
        "schedule:dump:args: (not shown)",
        "engines: [ha, webhook]",
        # An engine that does not run is part of what is reported.
        "## Status\n\n```\nerror: ",
        "peer=m2 state=away",
        "  ValueError: (not shown) and (not shown)",
    ):
        assert told in text, told
    assert "of Salt's" not in text
    assert "also set, and not shown:" in text
    assert "root_dir" in text
    assert "thorium" not in text, "what no file sets"
    assert [*folder.iterdir()] == [folder / "master"], "a file that nobody asked for"


def test_the_secret_of_the_environment_is_not_in_it_either(tmp_path: Path) -> None:
    folder = make(
        tmp_path, ha={"name": "m1", "address": "10.0.0.1", "masters": ["https://10.0.0.1:4530"]}
    )
    status, text = report(folder, env={"SALT_HA_SECRET": GROUP})
    assert (status, GROUP in text) == (0, False)
    assert "ha:masters: [https://10.0.0.1:4530]" in text


def test_what_is_shown_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    folder, path = make(tmp_path), tmp_path / "report.md"
    status, text = report(folder, str(path))
    assert status == 0, text
    assert path.read_text() in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    status, text = report(folder, str(path))
    assert (status, path.read_text()) == (2, before)
    assert text.splitlines()[-1] == (
        f"salt-ha: report: {path} exists already: nothing was written; give another name, or "
        "remove it"
    )
    lacking = tmp_path / "none" / "report.md"
    assert report(folder, str(lacking))[1].splitlines()[-1] == (
        f"salt-ha: report: {lacking} was not written: No such file or directory"
    )


@pytest.mark.parametrize(("key", "written"), [(b"\x04", 0), (b"\n", 0), (b"y\n", 1)])
def test_it_is_written_when_somebody_says_so(tmp_path: Path, key: bytes, written: int) -> None:
    """On a real terminal; Ctrl-D is no answer."""
    folder, (ours, theirs) = make(tmp_path), pty.openpty()
    command = [sys.executable, "-m", "saltext_ha.cli", "-c", str(folder), "report"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, key)
        with contextlib.suppress(OSError):  # what Linux says at the end of a terminal
            while more := os.read(ours, 65536):
                shown += more
        assert process.wait(60) == 0, shown.decode()
    os.close(ours)
    assert len([*folder.glob("salt-ha-report-*.md")]) == written
    assert b"EOFError" not in shown


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_the_report_of_root_is_roots(tmp_path: Path) -> None:
    """Salt's packages have salt-master run as salt, which may write nothing in /root."""
    folder = make(tmp_path, user="nobody")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    status, text = report(folder, str(home / "report.md"))
    assert status == 0, text
    assert (home / "report.md").stat().st_uid == 0


def test_a_configuration_that_the_engine_refuses_is_reported(tmp_path: Path) -> None:
    folder = make(tmp_path)
    text = (folder / "master").read_text()
    (folder / "master").write_text(text.replace("name: m1", "name: m1\n  mode: wild"))
    status, text = report(folder)
    assert status == 0, text
    assert "# the engine refuses it: " in text
    assert "ha:mode: wild" in text
    # The log has them, and nothing of the configuration could be taken.
    assert "  ValueError: (not shown)" in text
    assert not [word for word in WORDS if word in text]


def test_what_stands_in_a_log_does_not_control_the_terminal(tmp_path: Path) -> None:
    folder = make(tmp_path)
    said = "peer said \x1b[2J\x9b1m \x07 and\ttab"
    line = f"2026-11-25 03:00:01,001 [saltext_ha.x:7 ][ERROR ][1] {said}\n"
    (tmp_path / "root/var/log/salt/master").write_text(line, "utf-8")
    status, text = report(folder)
    assert status == 0, text
    assert "peer said ?[2J?1m ? and\ttab" in text


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    status, text = report(make(tmp_path, log_file="/nowhere"))
    assert status == 0
    assert f"{tmp_path / 'root' / 'nowhere'}: cannot be read" in text


def test_one_argument_at_most(tmp_path: Path) -> None:
    status, text = report(make(tmp_path), "a", "b")
    assert (status, "takes one argument at most" in text) == (2, True)


def test_secrets_of_any_form_are_known(tmp_path: Path) -> None:
    """One in 64 that ``openssl rand -base64`` makes begins as a path does."""
    group, own, page = "/9j4AAQSkZJRgABAQ+grp=", "/Zm9v/YmFy+own=", "page-s3cret"
    key = tmp_path / "api.key"
    folder = make(tmp_path, sharedsecret=own, **{"ssl_key": str(key)})
    (tmp_path / "page.token").write_text(page)
    (tmp_path / "page.token").chmod(0o600)
    config = yaml.safe_load((folder / "master").read_text())
    config["ha"]["status"] = {"token_file": str(tmp_path / "page.token")}
    (folder / "master").write_text(yaml.safe_dump(config))
    (tmp_path / "ha.secret").write_text(group)
    log = tmp_path / "root/var/log/salt/master"
    said = f"{group} {own} {page} {key}: no such file"
    log.write_text(f"2026-11-25 03:00:01,001 [saltext_ha.x:7 ][ERROR ][1] {said}\n")
    status, text = report(folder)
    assert status == 0, text
    assert not [word for word in (group, own, page) if word in text]
    assert f"{key}: no such file" in text


HIDDEN = report_command.HIDDEN


def test_secrets_go_wherever_they_stand_and_the_longest_first(tmp_path: Path) -> None:
    more = {
        "a.password": "some-s3cret",
        "b.password": "some-s3cret-and-more",
        "c.password": "12345",
        "f.password": "6chars",
        "d.password": "/etc/no-s3cret",
        "e": [{"passwd": ["listed-s3cret"]}],
        "g.password": "/" + "k" * 199,  # too long for a path
        "h.password": 987654,
        "i.password": 98765,
        "j.password": 98.7654,
        "k.password": True,
    }
    opts = master_config(str(make(tmp_path, **more) / "master"))
    said = (
        "6chars, some-s3cret-and-more, some-s3cret, 12345, /etc/no-s3cret, listed-s3cret, "
        f"etcd-ha-s3cret, {more['g.password']}, 987654, 98765, 98.7654, True"
    )
    text = report_command.text(opts, lambda: said, ["Salt: 3008"])
    left = ", ".join(
        [*[HIDDEN] * 3, "12345", "/etc/no-s3cret", *[HIDDEN] * 4, "98765", HIDDEN, "True"]
    )
    assert f"\n{left}\n" in text
    assert "\nSalt: 3008\n" in text


def test_ordinary_words_stay(tmp_path: Path) -> None:
    """What engines, jobs and beacons are set to are mostly words that occur everywhere."""
    more = {
        "id": "k8s-master1",
        "engines": [
            {"ha": {}},
            {"fluent": {"host": "localhost", "tag": "saltext", "bind": "10.0.0.1"}},
            {"slack": {"role": "master", "from": "k8s-master1", "to": "k8s-master2"}},
        ],
        "schedule": {
            "look": {
                "function": "ha.check_consistency",
                "args": ["master1", "2026-11-25", 604800],
                "kwargs": {"saltenv": "production", "hook": "aZm9v1YmFy", "password": "geheim"},
            }
        },
        "beacons": {"service": [{"services": {"salt-master": {"delay": 600000}}}]},
        "our.host": "10.0.0.2",
    }
    folder = make(tmp_path, **more)
    config = yaml.safe_load((folder / "master").read_text())
    config["ha"]["masters"] = ["https://10.0.0.2:4530", "https://k8s-master2"]
    (folder / "master").write_text(yaml.safe_dump(config))
    said = (
        "localhost, master, production, master1, 604800, 600000, ha.check_consistency, "
        "k8s-master1, k8s-master2, 10.0.0.1, 10.0.0.2, saltext"
    )
    opts = master_config(str(folder / "master"))
    text = report_command.text(opts, lambda: f"{said}\naZm9v1YmFy, geheim", ["Salt: 3008"])
    for told in (
        "It has names and addresses of masters, ",
        "\nsaltext-ha: ",
        "[saltext_ha.sync.link:7   ]",
        "\nengines: [ha, fluent, slack]\n",
        "\nschedule:look:args: (not shown)\n",
        "\nha:masters: [https://10.0.0.2:4530, https://k8s-master2]\n",
        f"\n{said}\n{HIDDEN}, {HIDDEN}\n",
        "\n2026-11-25 03:00:02,001 ",
    ):
        assert told in text, told


@pytest.mark.parametrize(
    ("engines", "shown"),
    [
        (["ha", {"http": {"url": "https://h/geheim-1x"}}], "[ha, http]"),
        ({"ha": {}, "http": {"url": "https://h/geheim-1x"}}, "[ha, http]"),
        # Indented wrongly, as it happens.
        ([{"ha": None, "http": None, "url": "https://h/geheim-1x"}], "[ha, http, url]"),
        ([], "[]"),
        ("ha", "[ha]"),
    ],
)
def test_engines_are_named(tmp_path: Path, engines: Any, shown: str) -> None:
    opts = master_config(str(make(tmp_path, engines=engines) / "master"))
    text = report_command.text(opts, str, ())
    assert f"\nengines: {shown}\n" in text
    assert "engines:" not in text.replace("\nengines: ", "")
    assert "geheim" not in text


@pytest.mark.parametrize(
    ("secret", "goes", "stays"),
    [
        # A number where it stands alone.
        ("604800", ["604800", "-p604800", "604800s", "at 604800."], ["1604800", "604800.5"]),
        ("10.0.0.1", ["10.0.0.1", "10.0.0.1:4530"], ["10.0.0.12", "110.0.0.1", "10.0.0.1.5"]),
        # All else also within a word.
        ("geheim", ["geheim", "-pgeheim", "u:geheim@h"], []),
        ("some-s3cret", ["some-s3cret", "-psome-s3cret", "some-s3cret_x", "a.some-s3cret"], []),
        ("a5e1f5e1f", ["xa5e1f5e1fx"], []),
    ],
)
def test_where_a_secret_is_taken_out(secret: str, goes: list[str], stays: list[str]) -> None:
    for said in goes:
        expected = said.replace(secret, HIDDEN)
        assert report_command.without(f"one {said} two", [secret]) == f"one {expected} two"
    for said in stays:
        assert report_command.without(f"one {said} two", [secret]) == f"one {said} two"


def test_of_a_long_log_the_last_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_command, "READ", 500)
    log = tmp_path / "log"
    log.write_text("".join(f"2026-11-25 03:00:00 [saltext_ha:1] {n}\n" for n in range(300)))
    opts = {**master_config(str(make(tmp_path) / "master")), "log_file": str(log)}
    found = report_command.text(opts, str, ()).rpartition("```\n")[0].splitlines()
    assert found[-1].endswith("] 299")
    assert sum("saltext_ha:1" in line for line in found) == 500 // len(f"{found[-1]}\n")
    monkeypatch.undo()
    found = report_command.text(opts, str, ()).splitlines()
    assert sum("saltext_ha:1" in line for line in found) == report_command.LINES


@pytest.mark.parametrize(
    "text",
    [
        *(TOKEN, KEY, KEY.replace("END", "EN"), "https://a:geheim@b/c"),
        *("https://a:so@geheim@b/c", "https://geheim@b/c.git"),
    ],
)
def test_what_has_the_form_of_a_secret_goes_also_unknown(text: str) -> None:
    shown = report_command.without(f"before {text}", ())
    assert shown.startswith("before ")
    assert report_command.HIDDEN in shown
    assert not [word for word in ("Zm9vYmFy", "MIIEow", "geheim") if word in shown]
    assert "private" not in shown
