"""``salt-ha completion``: bash itself completes by it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saltext_ha import cli
from saltext_ha.cli import completion, program

pytestmark = pytest.mark.core
BASH = "/bin/bash"
# As bash calls it: the words so far, and which of them is typed.
CALL = """
source "$1"; shift
compopt() { echo "NOSPACE"; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_salt_ha
printf '%s\\n' "${COMPREPLY[@]}"
complete -p salt-ha
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "saltext_ha.cli", "completion", "bash"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    path = tmp_path_factory.mktemp("completion") / "salt-ha"
    path.write_text(done.stdout)
    return path


def completed(script: Path, *words: str, cwd: Path | None = None) -> list[str]:
    done = subprocess.run(
        [BASH, "--norc", "-c", CALL, "bash", str(script), "salt-ha", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        check=True,
    )
    assert done.stderr == ""
    *found, registered = done.stdout.splitlines()
    assert registered == "complete -F _salt_ha salt-ha"
    return [line for line in found if line]


def test_every_option_that_takes_a_value_is_known() -> None:
    """Else what follows it would be taken for the function."""
    taking = {
        name
        for action in program._parser()._actions
        for name in action.option_strings
        if action.nargs != 0
    }
    assert taking == completion.VALUES.keys()


def test_functions(script: Path) -> None:
    assert completed(script, "failo") == ["failover_safe"]
    assert completed(script, "re") == [
        *("reachability", "rebalance", "refill", "release", "remove_peer", "renew", "report"),
        *("resolve", "restart_masters", "restore", "resume", "rewrite"),
    ]
    assert {"status", "keys", "watch", "completion"} <= {*completed(script, "")}
    # After the options that take a value, too.
    assert completed(script, "-c", "/etc/salt", "--out", "json", "stat") == ["status"]


def test_arguments_of_a_function(script: Path) -> None:
    assert completed(script, "drain", "t") == ["test=True", "timeout="]
    assert completed(script, "ha.proxy_config", "tls") == ["tls=False"]
    assert completed(script, "keys", "m") == ["NOSPACE", "match="]
    assert completed(script, "completion", "") == ["bash", "zsh"]
    assert completed(script, "leader", "") == []


def test_arguments_without_a_name_are_not_completed() -> None:
    def anything(*words: str, of: str = "", **more: str) -> None:
        """Does it."""

    (word,) = completion.words({"anything": anything}, {})
    assert word.arguments == ("of=",)


def test_no_token_is_an_argument(script: Path) -> None:
    assert "token=" not in completed(script, "join", "")
    assert completed(script, "join", "token") == ["NOSPACE", "token_file="]


def test_options_and_their_values(script: Path, tmp_path: Path) -> None:
    assert completed(script, "--") == [
        "--help", "--version", "--config-dir", "--out", "--token-file", "--wait",
    ]  # fmt: skip
    assert completed(script, "status", "--ou") == ["--out"]
    assert completed(script, "--out", "j") == ["json"]
    assert completed(script, "lock", "--wait", "1") == []
    assert completed(script, "--wait", "60", "loc") == ["lock"]
    (tmp_path / "folder with blanks").mkdir()
    (tmp_path / "file").touch()
    assert completed(script, "-c", "fo", cwd=tmp_path) == ["folder with blanks"]
    assert completed(script, "-c", "fi", cwd=tmp_path) == []
    assert completed(script, "--token-file", "fi", cwd=tmp_path) == ["file"]


def test_the_script_is_sound(script: Path) -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert shellcheck
    subprocess.run([shellcheck, "--shell=bash", str(script)], timeout=60, check=True)


@pytest.mark.parametrize("shell", [[], ["fish"], ["bash", "zsh"]])
def test_another_shell_is_refused(shell: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", *shell]) == 2
    assert f'takes bash or zsh, not "{" ".join(shell)}"' in capsys.readouterr().err


def test_zsh_gets_each_function_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#compdef salt-ha\n")
    assert "'withdraw:Take back" in text
    assert "leave|ha.leave) arguments=(test=True) ;;" in text
