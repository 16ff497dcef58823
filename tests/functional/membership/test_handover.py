"""Putting the group's master key in place: whole, checked, of Salt's user, never by surprise."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Any

import pytest
import salt.config
import salt.crypt

from lab.keys import KeyPairs
from saltext_ha.common import master_key
from saltext_ha.common.errors import TrustError
from saltext_ha.membership import handover

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def pairs() -> KeyPairs:
    return KeyPairs()


def opts_of(root: Path, **more: Any) -> dict[str, Any]:
    """The configuration of a master that was never started."""
    return dict(
        salt.config.apply_master_config(
            {
                "root_dir": str(root),
                "pki_dir": str(root / "pki"),
                "cachedir": str(root / "cache"),
                "id": "m1_master",
                "user": pwd.getpwuid(os.getuid()).pw_name,
                "keysize": 2048,
                **more,
            }
        )
    )


def shared(pairs: KeyPairs) -> dict[str, str]:
    private, public = pairs.next()
    return {"master.pem": private, "master.pub": public}


def there(opts: dict[str, Any]) -> dict[str, str]:
    files = [path for path in Path(opts["pki_dir"]).glob("m*") if path.is_file()]
    return {path.name: path.read_text() for path in files}


def presented(opts: dict[str, Any]) -> str:
    """The public key that salt-master, started with *opts*, shows to its minions."""
    for name in ("minions", "minions_pre"):
        (Path(opts["pki_dir"]) / name).mkdir(exist_ok=True)
    return str(salt.crypt.MasterKeys(opts).get_pub_str()).strip()


def test_a_master_never_started_presents_what_was_put_in_place(
    tmp_path: Path, pairs: KeyPairs
) -> None:
    opts, key = opts_of(tmp_path), shared(pairs)
    (note,) = handover.place(opts, key)
    assert "start or restart salt-master" in note
    assert there(opts) == key
    assert presented(opts).split() == key["master.pub"].split()
    # And again, under whatever name Salt keeps it now.
    assert handover.place(opts, key) == []
    assert handover.take(opts)["master.pem"].split() == key["master.pem"].split()
    assert handover.has_key(opts)


def test_owner_and_mode(tmp_path: Path, pairs: KeyPairs) -> None:
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    opts = opts_of(tmp_path, user=user)
    handover.place(opts, shared(pairs))
    pki = Path(opts["pki_dir"])
    uid = pwd.getpwnam(user).pw_uid
    modes = {"master.pem": 0o400, "master.pub": 0o644}
    for name, mode in modes.items():
        found = (pki / name).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (uid, mode)
    assert (pki.stat().st_uid, stat.S_IMODE(pki.stat().st_mode)) == (uid, 0o700)
    handover.place(opts, shared(pairs), force=True)
    for kept in pki.glob("*.before-*"):
        assert kept.stat().st_uid == uid
        assert stat.S_IMODE(kept.stat().st_mode) == modes[kept.name.partition(".before")[0]]


def test_another_pair_is_replaced_only_by_force_and_kept(tmp_path: Path, pairs: KeyPairs) -> None:
    opts, old, new = opts_of(tmp_path), shared(pairs), shared(pairs)
    handover.place(opts, old)
    presented(opts)  # Salt was started: since 3008 the pair has another name now
    before = there(opts)
    with pytest.raises(TrustError, match=r"another master key is here.*TYPE THIS"):
        handover.place(opts, new, again="TYPE THIS")
    assert there(opts) == before
    handover.place(opts, new, force=True)
    assert presented(opts).split() == new["master.pub"].split()
    kept = {
        path.name.partition(".before-")[0].partition(".")[2]: path.read_text().split()
        for path in Path(opts["pki_dir"]).glob("*.before-*")
    }
    assert kept == {"pem": old["master.pem"].split(), "pub": old["master.pub"].split()}


@pytest.mark.parametrize("lost", ["master.pem", "master.pub"])
def test_half_of_the_same_pair_is_completed(tmp_path: Path, pairs: KeyPairs, lost: str) -> None:
    """What a crash between the two files leaves."""
    opts, key = opts_of(tmp_path), shared(pairs)
    handover.place(opts, key)
    (Path(opts["pki_dir"]) / lost).unlink()
    assert len(handover.place(opts, key)) == 1
    assert there(opts) == key


@pytest.mark.parametrize("left", ["master.pem", "master.pub"])
def test_half_of_another_pair_is_another_key(tmp_path: Path, pairs: KeyPairs, left: str) -> None:
    opts, old = opts_of(tmp_path), shared(pairs)
    handover.place(opts, old)
    (lost,) = {"master.pem", "master.pub"} - {left}
    (Path(opts["pki_dir"]) / lost).unlink()
    with pytest.raises(TrustError, match="another master key is here"):
        handover.place(opts, shared(pairs))
    assert there(opts) == {left: old[left]}


def test_a_new_private_half_beside_an_old_public_one_is_not_the_same(
    tmp_path: Path, pairs: KeyPairs
) -> None:
    """What a crash leaves when one pair replaces another: repeating the command mends it."""
    opts, old, new = opts_of(tmp_path), shared(pairs), shared(pairs)
    handover.place(opts, new)
    (Path(opts["pki_dir"]) / "master.pub").write_text(old["master.pub"])
    handover.place(opts, new, force=True)
    assert {name: text for name, text in there(opts).items() if "before" not in name} == new


def test_halves_that_do_not_fit_are_refused(tmp_path: Path, pairs: KeyPairs) -> None:
    opts = opts_of(tmp_path)
    mixed = {**shared(pairs), "master.pub": pairs.next()[1]}
    with pytest.raises(TrustError, match=r"two halves .* do not fit"):
        handover.place(opts, mixed)
    for damaged in ({**mixed, "master.pem": "x"}, {**mixed, "master.pub": "x"}):
        with pytest.raises(TrustError, match="cannot be read"):
            handover.place(opts, damaged)
    assert not Path(opts["pki_dir"]).exists()


@pytest.mark.parametrize("role", master_key.ROLES)
def test_half_a_pair_is_refused(tmp_path: Path, pairs: KeyPairs, role: str) -> None:
    opts, key = opts_of(tmp_path), shared(pairs)
    with pytest.raises(TrustError, match=f"only half of the {role} key pair"):
        handover.place(opts, {**key, f"{role}.pem": key["master.pem"], f"{role}.pub": None})
    assert not Path(opts["pki_dir"]).exists()


def test_a_signing_pair_alone_leaves_the_master_key_as_it_is(
    tmp_path: Path, pairs: KeyPairs
) -> None:
    giver, taker = opts_of(tmp_path / "1"), opts_of(tmp_path / "2", master_sign_key_name="ours")
    with pytest.raises(TrustError, match="no signing pair to share"):
        handover.take(giver, (master_key.SIGN,))
    private, public = pairs.next()
    signing = {"sign.pem": private, "sign.pub": public}
    handover.place(giver, {**shared(pairs), **signing})
    given = handover.take(giver, (master_key.SIGN,))
    assert given == signing
    own = shared(pairs)
    handover.place(taker, own)
    notes = "\n".join(handover.place(taker, given))
    assert "minions need ours.pub as /etc/salt/pki/minion/ours.pub" in notes
    assert handover.take(taker) == {**own, **signing}
    foretold, _ = handover.foretell(taker, handover.show(giver), (master_key.SIGN,))
    assert "this master's differs from the group's, and stays" in foretold[0]
    # Nothing is said of that any more: they are meant to differ.
    assert handover.compare(taker, given) == []


def test_what_is_foretold_is_what_is_done(tmp_path: Path, pairs: KeyPairs) -> None:
    giver, taker = opts_of(tmp_path / "1"), opts_of(tmp_path / "2")
    handover.place(giver, shared(pairs))

    def foretold(force: bool = False) -> str:
        notes, problems = handover.foretell(taker, handover.show(giver), ("master",), force)
        return "\n".join([*notes, *(f"problem: {text}" for text in problems)])

    assert "would be put in place" in foretold()
    handover.place(taker, shared(pairs))
    assert "problem" in foretold()
    assert "another master key is here" in foretold()
    assert "would be replaced" in foretold(force=True)
    handover.place(taker, handover.take(giver), force=True)
    assert foretold() == ""
    (Path(taker["pki_dir"]) / "master.pem").unlink()
    assert "would be put in place" in foretold()


def test_a_key_store_that_is_not_files_gets_the_pair_too(tmp_path: Path, pairs: KeyPairs) -> None:
    if "keys.cache_driver" not in opts_of(tmp_path):
        return  # Salt before 3008 keeps its keys in files only
    opts = opts_of(tmp_path, **{"keys.cache_driver": "mmap_key"})
    Path(opts["pki_dir"]).mkdir()
    old, new = shared(pairs), shared(pairs)
    handover.place(opts, old)
    assert presented(opts).split() == old["master.pub"].split()
    with pytest.raises(TrustError, match=r"m1\.pem in mmap_key: another master key is here"):
        handover.place(opts, new)
    handover.place(opts, new, force=True)
    assert presented(opts).split() == new["master.pub"].split()


def test_a_link_that_3008_leaves_is_no_key(tmp_path: Path, pairs: KeyPairs) -> None:
    """A master that was given another id: 3008 ignores the link, so what is put there must not."""
    opts, key = opts_of(tmp_path), shared(pairs)
    handover.place(opts, key)
    presented(opts)
    renamed = opts_of(tmp_path, id="m9_master")
    handover.place(renamed, key)
    assert presented(renamed).split() == key["master.pub"].split()
    assert master_key.describe(renamed)["pair"] == master_key.FITS


def test_no_key_is_told_apart_from_another(tmp_path: Path, pairs: KeyPairs) -> None:
    opts, key = opts_of(tmp_path), shared(pairs)
    public = {"master.pub": key["master.pub"]}
    assert "no master key was handed over" in handover.compare(opts, public)[0]
    handover.place(opts, shared(pairs))
    assert "different master keys" in handover.compare(opts, public)[0]
    handover.place(opts, key, force=True)
    assert handover.compare(opts, public) == []
    assert handover.compare(opts, key) == []
    assert handover.show(opts)["master.pub"].split() == key["master.pub"].split()
