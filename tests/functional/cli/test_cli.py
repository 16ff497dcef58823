"""
``salt-ha``: what it prepares before it calls a function of the runner, and where it takes a token
from.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import os
import pty
import pwd
import re
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import salt.config
import yaml

from lab.network import free_port
from saltext_ha import cli
from saltext_ha.cli import folders, own_functions, program
from saltext_ha.common import version
from saltext_ha.membership.invites import make_token, name_of
from saltext_ha.membership.token import decode
from saltext_ha.runners import ha as runner
from saltext_ha.transport.identity import load_or_create

pytestmark = pytest.mark.core


def test_missing_folders_are_made_for_the_user_of_salt_master(tmp_path: Path) -> None:
    """As root for another user, where this runs as root; otherwise for who runs it."""
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    uid = pwd.getpwnam(user).pw_uid
    opts = salt.config.apply_master_config(
        {"root_dir": str(tmp_path), "user": user, "id": "m1", "conf_file": str(tmp_path / "master")}
    )
    folders.make(opts)
    pki, cache = Path(opts["pki_dir"]), Path(opts["cachedir"])
    for folder in (pki, pki / "minions", cache, cache / "proc", Path(opts["sock_dir"])):
        assert folder.stat().st_uid == uid, folder
    assert stat.S_IMODE(pki.stat().st_mode) == 0o700


def test_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    opts = salt.config.apply_master_config(
        {
            "root_dir": str(tmp_path),
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "id": "m1",
            "conf_file": str(tmp_path / "master"),
        }
    )
    pki = Path(opts["pki_dir"])
    pki.mkdir(parents=True)
    pki.chmod(0o750)
    folders.make(opts)
    assert stat.S_IMODE(pki.stat().st_mode) == 0o750
    assert (pki / "minions").is_dir()


def test_a_folder_without_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nowhere"
    assert cli.main(["-c", str(missing), "join"]) == 2
    assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize("words", [["lint"], ["lock", "x", "--", "true"]])
def test_a_value_that_salt_fails_on_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the restart that would end salt-master; it was a traceback."""
    (tmp_path / "master").write_text("id: m1\nhash_type:\n")
    assert cli.main(["-c", str(tmp_path), *words]) == 2
    told = f"salt-ha: {tmp_path}/master:2: Salt fails with AttributeError: "
    assert capsys.readouterr().err.startswith(told)


def test_a_driver_that_salt_fails_in_has_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise ValueError("no such secret")

    monkeypatch.setattr("salt.config.apply_sdb", denied)
    (tmp_path / "master").write_text("id: m1\n")
    assert cli.main(["-c", str(tmp_path), "lint"]) == 2
    told = f"salt-ha: {tmp_path}/master: Salt fails with ValueError, in "
    assert capsys.readouterr().err.startswith(told)


CALLS = [["status"], ["report"], ["lock", "--wait", "0", "x", "--", "true"]]


@pytest.mark.parametrize("words", CALLS)
@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_is_mistyped_is_nobodys(
    tmp_path: Path, words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With Salt's defaults it would be another master, or one that is not there."""
    (tmp_path / "empty").mkdir()
    assert cli.main(["-c", str(tmp_path / name), *words]) == 2
    said = capsys.readouterr().err
    assert "give the right one by -c" in said
    assert str(tmp_path / name) in said


@pytest.mark.parametrize("words", CALLS)
def test_what_ends_the_program_in_salt_is_no_drift(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "master").write_text("ha: [\n")
    assert cli.main(["-c", str(tmp_path), *words]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["stat"],
            "there is no function ha.stat; did you mean status?; salt-ha --help  lists them",
        ),
        (["xyzzy"], "there is no function ha.xyzzy; salt-ha --help  lists them"),
        (
            ["current_master"],
            "ha.current_master is a function of minions: salt '*' ha.current_mast",
        ),
        (["drain", "m1", "tset=True"], "not valid: tset=True; salt-ha drain --help  shows all it"),
        (["drain"], "missing a required argument: 'master'; salt-ha drain --help  shows all it"),
    ],
)
def test_a_word_that_is_mistyped(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert cli.main(["-c", str(folder), *words]) == 2
    assert said in capsys.readouterr().err


def test_the_help_lists_every_function(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its whole first sentence, in lines that fit the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "  status             How the group is: every master" in text
    assert "  watch              How the group is, redrawn until Ctrl-C" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(word.help in " ".join(text.split()) for word in own_functions.words())


NAMES = [row.name for row in own_functions.words()]


@pytest.mark.parametrize("name", NAMES)
def test_each_function_has_a_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that the runner does not have, of which ``salt-run -d`` says nothing."""
    assert cli.main([name, "--help"]) == 0
    head, _, text = capsys.readouterr().out.partition("\n\n")
    assert head.startswith(f"usage: salt-ha {name}")
    (word,) = (row for row in own_functions.words() if row.name == name)
    assert word.help.split()[:4] == text.replace("`", "").split()[:4]
    assert "code-block" not in text
    assert re.search(rf"^    salt-(run ha\.|ha ){name}", text, re.M), "an example"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("drain", "MASTER [test=False] [batch=50] [timeout=60] [force=False]"),
        ("keys", "[match=*]"),
        ("restore", "MINION [fingerprint=FINGERPRINT] [since=SINCE] [test=False]"),
        ("cmd", "TGT FUN [ARGS ...] [name=value ...]"),
        ("deploy", "[TREES ...] [name=value ...]"),
        ("status", ""),
        ("join", "[wait=0] [force=False] [test=False] [token_file=TOKEN_FILE] [probe=True]"),
        ("watch", "[SECONDS]"),
        ("lock", "[--wait SECONDS] NAME -- COMMAND [ARGUMENT ...]"),
    ],
)
def test_the_help_of_a_function_says_what_it_takes(
    name: str, taken: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs, what may be left out, and what holds then; in lines that fit the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main([name, "--help"]) == 0
    head, _, _ = capsys.readouterr().out.partition("\n\n")
    assert " ".join(head.split()) == f"usage: salt-ha {name} {taken}".rstrip()
    assert all(len(line) <= 60 for line in head.splitlines())


def test_the_help_of_a_function_needs_neither_its_arguments_nor_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["-c", str(tmp_path / "nowhere"), "ha.drain", "-h"]) == 0
    assert capsys.readouterr().out.startswith("usage: salt-ha drain MASTER ")
    assert cli.main(["dran", "--help"]) == 2
    assert "there is no function ha.dran; did you mean drain?" in capsys.readouterr().err


def test_without_a_function_it_says_what_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 2
    assert "error: which function? salt-ha --help  lists them" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["drain", "m1", "--test"], ["cmd", "-L", "web1", "test.ping"]])
def test_an_option_that_it_does_not_have(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Salt's own programs have such options; here they are arguments of the function."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "unrecognized arguments: -" in said
    assert f"takes name=value, as test=True: salt-ha {words[0]} --help" in said


def test_its_version_needs_no_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"salt-ha {version.ours()} (Salt {version.salt()})\n"


def test_the_reason_with_which_it_is_ended_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert program._guarded(lambda: sys.exit("no such thing")) == 2
    assert capsys.readouterr().err == "salt-ha: no such thing\n"


def test_a_terminal_of_another_encoding_is_told_what_it_can_show(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "saltext_ha.cli", "--help"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"--out" in done.stdout


SHOWN = [["--help"], ["--version"], ["drain", "--help"], ["completion", "bash"]]


def shown_at(out: int, words: list[str], unbuffered: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "saltext_ha.cli", *words]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=env, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])  # images of containers often set it
@pytest.mark.parametrize("words", SHOWN)
def test_who_reads_no_further_is_no_error(words: list[str], unbuffered: str) -> None:
    """As ``head`` does: the exit status stays that of the function."""
    read, write = os.pipe()
    os.close(read)
    done = shown_at(write, words, unbuffered)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", SHOWN)
def test_what_cannot_be_written_is_an_error(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = shown_at(full.fileno(), words, unbuffered)
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"salt-ha: ")
    assert line.endswith(b"No space left on device")
    assert done.returncode == 2


WRONG = [[], ["--nope"], ["nofun"], ["--token-file", "x", "status"], ["watch", "never"]]


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>/dev/full >&2", "2>&1 | true"])
@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_of_which_nobody_can_be_told_has_its_exit_code(
    words: list[str], redirection: str, folder: Path
) -> None:
    """It was 120: Python tries again at its end to write what could not be written."""
    command = shlex.join([sys.executable, "-m", "saltext_ha.cli", "-c", str(folder), *words])
    script = f"set -o pipefail; {command} {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("redirection", [">/dev/full", ">/dev/full 2>&1", "2>/dev/full", "| true"])
def test_a_report_is_in_its_file_whoever_reads_what_is_printed(
    redirection: str, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.md"
    words = [sys.executable, "-m", "saltext_ha.cli", "-c", str(folder), "report", str(file)]
    script = f"set -o pipefail; {shlex.join(words)} {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert done.returncode == (2 if redirection.startswith(">") else 0), done.stderr
    assert "saltext-ha" in file.read_text()


def test_json_is_whole_whatever_the_encoding_of_the_terminal_is(tmp_path: Path) -> None:
    """A script would look for the minion "web-?"."""
    folder = tmp_path / "web-ü"
    folder.mkdir()
    user = pwd.getpwuid(os.getuid()).pw_name
    config = f"id: m1\nuser: {user}\nroot_dir: {tmp_path}\nsock_dir: /nowhere\n"
    (folder / "master").write_text(config)
    done = subprocess.run(
        [sys.executable, "-m", "saltext_ha.cli", "-c", str(folder), "--out=json", "peers"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert str(folder) in json.loads(done.stdout)["error"]


@pytest.fixture
def token(tmp_path: Path) -> str:
    """Of a master at which nobody answers: whoever joins by it is told so."""
    folder = tmp_path / "inviter"
    return make_token(
        folder, load_or_create(folder, "m1"), ("https://127.0.0.1:1",), "default"
    ).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the configuration of a master that was never started."""
    config = {"root_dir": str(tmp_path / "m2"), "user": pwd.getpwuid(os.getuid()).pw_name}
    (tmp_path / "etc").mkdir()
    # Other engines may have the usual port of this machine.
    ha = {"name": "m2", "address": "127.0.0.1", "port": free_port()}
    (tmp_path / "etc/master").write_text(yaml.safe_dump({**config, "id": "m2", "ha": ha}))
    return tmp_path / "etc"


Captured = pytest.CaptureFixture[str]
ASKED = "127.0.0.1:1"
"""In the answer of whoever was given the token."""


def typed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize("words", [["join"], ["join", "--token-file", "-"]])
def test_a_token_on_standard_input(
    words: list[str], token: str, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(f"{token}\n", monkeypatch)
    assert cli.main(["-c", str(folder), *words]) == 2
    assert ASKED in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--token-file", "{}"], ["token_file={}"]])
def test_a_token_in_a_file(
    words: list[str], token: str, folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "token"
    arguments = ["-c", str(folder), "join", *(word.format(path) for word in words), "test=True"]
    path.touch(mode=0o600)
    assert cli.main(arguments) == 2
    assert "is empty" in capsys.readouterr().err
    path.write_text(token)
    assert cli.main(arguments) == 2
    assert ASKED in capsys.readouterr().out
    path.chmod(0o604)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert f"chmod 600 {path}" in said
    assert "ha.withdraw" in said


@pytest.mark.parametrize("way", ["salt-ha", "salt-run"])
def test_what_a_join_waits_for_is_said_meanwhile(
    way: str, token: str, folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(token)
    if way == "salt-ha":
        assert cli.main(["-c", str(folder), "join", "--token-file", str(path), "wait=3"]) == 2
    else:
        folders.make(opts := salt.config.master_config(str(folder / "master")))
        runner.__opts__, runner.__context__ = opts, {}
        assert runner.join(token_file=str(path), wait=3)["retcode"] == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"ha.join: {ASKED} ")
    # Less, if the first try takes long on a busy machine.
    assert re.search("; trying for [0-3] s more$", said)


def test_a_token_at_a_prompt(token: str, folder: Path) -> None:
    """On a real terminal, whose echo shows nothing of it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "saltext_ha.cli", "-c", str(folder), "join"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        while b"Token" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, f"{token}\n".encode())
        answer, _ = process.communicate(timeout=60)
        with contextlib.suppress(OSError):  # what Linux says at the end of a terminal
            while more := os.read(ours, 1000):
                shown += more
    os.close(ours)
    assert process.returncode == 2
    assert ASKED in answer.decode()
    assert token[:40] not in shown.decode()


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_token_at_all(
    text: str, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(text, monkeypatch)
    assert cli.main(["-c", str(folder), "join", "--token-file", "-"]) == 2
    assert "no token on standard input" in capsys.readouterr().err
    typed(text, monkeypatch)
    assert cli.main(["-c", str(folder), "join"]) == 2
    assert "needs ha: masters" in capsys.readouterr().out


def test_who_ends_the_question_is_told_that_there_is_no_token(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", ended)
    assert cli.main(["-c", str(folder), "join", "--token-file", "-"]) == 2
    assert "no token on standard input" in capsys.readouterr().err


class Unread:
    """A standard input that nobody ends."""

    def isatty(self) -> bool:
        raise AssertionError("it was looked at")


def test_who_starts_unattended_is_asked_for_nothing(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "master"
    config = yaml.safe_load(file.read_text())
    config["ha"]["masters"] = ["https://127.0.0.1:1"]
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setattr(sys, "stdin", Unread())
    assert cli.main(["-c", str(folder), "join"]) == 2
    assert "needs ha: masters" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["{}"], ["token={}"], ["--token-file", "{}"], ["ha1.cut"]])
def test_a_token_as_an_argument_is_refused_before_anything_is_done(
    words: list[str], token: str, folder: Path, capsys: Captured
) -> None:
    words = [word.format(token) for word in words]
    assert cli.main(["-c", str(folder), "join", *words, "test=True"]) == 2
    out, err = capsys.readouterr()
    assert "others may know that token" in err
    assert "ha.withdraw" in err
    assert err.endswith("troubleshooting.html#hajoin-takes-no-token-as-an-argument\n")
    assert token[:40] not in out + err
    assert not (folder.parent / "m2").exists()


@pytest.mark.parametrize("words", [["peers"], ["lock", "nightly"]])
def test_nobody_else_takes_a_token(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["-c", str(folder), *words, "--token-file", "-", "--", "true"])
    assert "--token-file is for join" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cmd"], "ha.cmd: missing .* 'tgt'"),
        (["cmd", "*"], "ha.cmd: missing .* 'fun'"),
        (["remove_peer"], "ha.remove_peer: missing .* 'name'"),
        (["status", "m1"], "ha.status: too many"),
        (["invite", "1h", "2", "3", "4", "5"], "ha.invite: too many"),
        (["keys", "*", "name=m1"], "name"),
    ],
)
def test_what_was_not_given_is_named(
    arguments: list[str], said: str, folder: Path, capsys: Captured
) -> None:
    assert cli.main(["-c", str(folder), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.match(f"salt-ha: .*{said}", captured.err), captured.err


def test_an_invitation_without_an_engine(folder: Path, capsys: Captured) -> None:
    assert cli.main(["-c", str(folder), "invite", "expires=30"]) == 0
    out, err = capsys.readouterr()
    assert name_of(decode(out).invite) in err
    assert "nobody answers" in err
    assert out.strip() not in err
    (open_one,) = (folder.parent / "m2").rglob("invites/*")
    assert open_one.name == f"{decode(out).invite}.json"


def test_why_there_is_no_invitation_is_not_piped_into_the_join(
    folder: Path, capsys: Captured
) -> None:
    """As in  salt-ha invite | ssh SECOND salt-ha join."""
    assert cli.main(["-c", str(folder), "invite", "expires=5x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "expires='5x': takes whole seconds" in err


@pytest.mark.parametrize("words", [["invite"], ["join"], ["join", "test=True"]])
def test_with_a_file_that_salt_leaves_out_nobody_joins_or_is_let_in(
    words: list[str], token: str, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the file with the master's name in the group, its address and its mode."""
    broken = folder / "master.d" / "ha.conf"
    broken.parent.mkdir()
    broken.write_text("ha:\n  mode: observe\n\tname: m9\n")
    typed(token, monkeypatch)
    assert cli.main(["-c", str(folder), *words]) == 2
    assert f"{broken}:3: found a tab character" in "".join(capsys.readouterr())
    assert not [*(folder.parent / "m2").rglob("identity*")]


@pytest.mark.parametrize(
    ("hard", "soft"), [("r.getrlimit(r.RLIMIT_CORE)[1]", b"1"), ("0", b"0"), ("1", b"1")]
)
def test_no_core_of_a_process_that_knows_secrets(tmp_path: Path, hard: str, soft: bytes) -> None:
    """Whatever the limit was; 0 is none for a program to which the kernel pipes cores."""
    code = (
        "import os, resource as r; from saltext_ha.config import secret\n"
        f"r.setrlimit(r.RLIMIT_CORE, ({hard},) * 2)\n"
        "secret.keep_from_core_dumps()\n"
        "print(r.getrlimit(r.RLIMIT_CORE)[0], flush=True); os.abort()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    assert child.stdout is not None
    said = child.stdout.read().strip()
    child.stdout.close()
    status = os.waitpid(child.pid, 0)[1]
    child.returncode = os.waitstatus_to_exitcode(status)
    assert (said, os.WTERMSIG(status)) == (soft, signal.SIGABRT)
    assert not os.WCOREDUMP(status)
    assert not any(tmp_path.iterdir())
