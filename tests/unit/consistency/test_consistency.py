"""The consistency check: what a master says of itself, and what is made of several answers."""

import dataclasses
import functools
import json
import logging
import os
from pathlib import Path

import msgpack
import pytest
import salt.config
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from saltext_ha.common import cluster, master_key
from saltext_ha.common.errors import ConfigError
from saltext_ha.config import mapping
from saltext_ha.config.consistency import ConsistencySettings
from saltext_ha.consistency import result as results
from saltext_ha.consistency import roots, section, versions
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.result import exit_code, of_differences
from saltext_ha.consistency.section import Mine
from saltext_ha.consistency.sections import OF_MASTERS
from saltext_ha.consistency.values import is_secret_key, is_secret_value

NONCE = b"n" * 32
ABSENT = {"absent": True}
SECRET = "hunter2-correct-horse"


@functools.cache
def private_key(number: int) -> rsa.RSAPrivateKey:
    """Making one takes a tenth of a second and more."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Fresh:
    """Keys that are different within one test, and the same ones in the next."""

    made = 0

    @classmethod
    def key(cls) -> rsa.RSAPrivateKey:
        cls.made += 1
        return private_key(cls.made)


def write_pair(folder: Path, name: str = "master", passphrase: bytes | None = None) -> None:
    key = Fresh.key()
    how = (
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption()
    )
    (folder / f"{name}.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, how
        )
    )
    write_public(folder, name, key.public_key())


def write_public(folder: Path, name: str, public: rsa.RSAPublicKey) -> None:
    (folder / f"{name}.pub").write_bytes(
        public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


class Master:
    """A master on disk: a configuration file, a pki folder, nothing running."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pki = root / "pki"
        self.pki.mkdir(parents=True)
        self.conf = root / "master"
        self.write()
        write_pair(self.pki)

    def write(self, **options) -> None:
        basic = {
            "id": "one",
            "root_dir": str(self.root),
            "pki_dir": str(self.pki),
            "cachedir": str(self.root / "cache"),
            "sock_dir": str(self.root / "sock"),
            "autosign_file": str(self.root / "autosign.conf"),
            "autoreject_file": str(self.root / "autoreject.conf"),
            "default_include": "none.d/*.conf",
        }
        # JSON is YAML.
        self.conf.write_text(json.dumps({**basic, **options}))

    def opts(self):
        return salt.config.master_config(str(self.conf))

    def facts(self, nonce: bytes = NONCE, running=None):
        return take(running or self.opts(), nonce)


def take(opts, nonce: bytes = NONCE):
    mine = Mine(opts, mapping.parse(opts), nonce)
    return {name: part.take(mine) for name, part in OF_MASTERS.items()}


def compare(masters, errors=None, ignore=()):
    """The answer about masters whose facts are *masters*."""
    unreached = errors or {}
    parts = {
        name: results.of_section(
            part,
            {m: facts[name] for m, facts in masters.items()},
            unreached,
            ConsistencySettings(ignore=ignore),
        )
        for name, part in OF_MASTERS.items()
    }
    return results.answer(parts, [*masters, *unreached], unreached)


def replaced(facts, part, **leaves):
    """*facts* with other leaves in one section; None takes one away."""
    now = {**facts[part].leaves, **leaves}
    now = {path: value for path, value in now.items() if value is not None}
    return {**facts, part: dataclasses.replace(facts[part], leaves=now)}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    Fresh.made = 0
    # Salt keeps records of broken files for a handler that never comes, and spills them at exit.
    monkeypatch.setattr(logging.getLogger("salt.config"), "disabled", True)


@pytest.fixture
def master(tmp_path):
    return Master(tmp_path / "one")


def leaves(taken, part, option):
    found = taken[part].leaves.items()
    return {path: value for path, value in found if path.split(":")[0] == option}


def differing(answer, part):
    return {d["path"]: d["values"] for d in answer["sections"][part]["differences"]}


def pair_of(master, **options):
    """Two snapshots of masters that differ in *options* only."""
    first = master.facts()
    master.write(**options)
    return {"m1": first, "m2": master.facts()}


# What a master says of itself


def test_facts_are_plain_data(master):
    auth = {"pam": {"alice": [".*"], 7: ["@runner", {"web*": ["test.*"]}]}}
    master.write(external_auth=auth, nodegroups={"g": "L@a"}, token_expire=2**70)
    for part in master.facts().values():
        told = dict(part.leaves)
        assert msgpack.unpackb(msgpack.packb(told)) == json.loads(json.dumps(told)) == told
    assert leaves(master.facts(), "access", "external_auth") == {
        "external_auth:pam:alice": [".*"],
        "external_auth:pam:7": ["@runner", {"web*": ["test.*"]}],
    }


def told(facts):
    return json.dumps({name: [*part.leaves.items()] for name, part in facts.items()})


def test_secrets_never_leave_but_can_be_compared(master):
    master.write(
        external_auth={
            "ldap": {"bind_password": SECRET, "alice": [".*"]},
            "rest": {"^url": f"https://user:{SECRET}@host/"},
            "file": {"bob": [{"web*": [{"user.add": {"kwargs": {"password": SECRET}}}]}]},
        },
        ext_pillar=[{"vault": SECRET}],
        gitfs_remotes=[{"https://git.example/x": [{"user": "u"}, {"password": SECRET}]}],
    )
    taken = master.facts()
    assert SECRET not in told(taken)
    assert master.facts() == taken
    # Another check, another nonce: nothing of it can be matched with the first one.
    other = master.facts(nonce=b"m" * 32)
    path = "external_auth:ldap:bind_password"
    mine, theirs = (leaves(s, "access", "external_auth")[path] for s in (taken, other))
    assert mine.keys() == theirs.keys() == {"secret"}
    assert mine != theirs


@pytest.mark.parametrize(
    "name",
    ["password", "bindpw", "auth.ldap.bindpw", "secret_id", "tokenValue", "api_key", "privkey",
     "ssh_private_key", "PASSWORD", "client_secret", "pass", "passphrase", "credentials", "key",
     "accessKey", "SecretAccessKey", "authkey", "authKey", "auth_key", "encryptionKey",
     "integrationKey", "integrationkey", "routingKeys", "bearer", "Bearer", "bearer_auth"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name",
    ["alice", "secretary", "monkey", "Monkey", "turkey", "passenger", "*", "ops%", "L@a", "keyring",
     "publicKey", "publicKeys", "pubKey", "pubkey", "keyName", "forbearers"],
)  # fmt: skip
def test_names_of_people_and_targets(name):
    assert not is_secret_key(name)


def test_values_that_are_secrets():
    assert is_secret_value("-----BEGIN RSA PRIVATE KEY-----\nMII…")
    assert is_secret_value("postgres://salt:pw@db/x")
    assert is_secret_value("https://ghp_token@github.com/o/r.git")
    assert not is_secret_value("ssh://git@github.com/o/r.git")
    assert not is_secret_value("https://host:8000/path@x")


def test_the_fingerprint_is_the_one_of_master_finger(master):
    import salt.utils.crypt

    taken = master.facts()
    expected = salt.utils.crypt.pem_finger(str(master.pki / "master.pub"), sum_type="sha256")
    assert leaves(taken, "master_key", "fingerprint") == {"fingerprint": expected}
    assert leaves(taken, "master_key", "pair") == {"pair": "fits"}


def test_line_endings_do_not_make_another_key(master):
    before = master.facts()
    pub = master.pki / "master.pub"
    pub.write_bytes(pub.read_bytes().replace(b"\n", b"\r\n").rstrip())
    assert leaves(master.facts(), "master_key", "fingerprint") == leaves(
        before, "master_key", "fingerprint"
    )


def test_halves_of_two_pairs(master):
    stranger = Fresh.key()
    write_public(master.pki, "master", stranger.public_key())
    taken = master.facts()
    # The same on both masters is no comfort.
    result = compare({"m1": taken, "m2": taken}, {})
    assert differing(result, "master_key") == {"pair": dict.fromkeys(["m1", "m2"], "does not fit")}
    assert exit_code(result) == 1


def test_an_encrypted_key_opens_with_key_pass(master):
    write_pair(master.pki, passphrase=b"word")
    assert "pair" in master.facts()["master_key"].unknown
    master.write(key_pass="word")
    assert leaves(master.facts(), "master_key", "pair") == {"pair": "fits"}


def test_salt_3008_uses_the_pair_named_like_the_master(master):
    write_pair(master.pki, "one")
    before = leaves(master.facts(), "master_key", "fingerprint")
    write_pair(master.pki, "master")
    after = leaves(master.facts(), "master_key", "fingerprint")
    assert (before == after) is ("keys.cache_driver" in master.opts())


def test_lines_of_autosign_files(master):
    conf = master.root / "autosign.conf"
    conf.write_text("  web*  \n# a comment\n\n#off\ndb01\n")
    conf.chmod(0o644)
    assert leaves(master.facts(), "access", "autosign_file") == {
        "autosign_file:web*": "listed",
        "autosign_file:db01": "listed",
    }


def test_advice_on_an_autosign_file_holds_where_the_option_is_not_set():
    listed = Facts({"autosign_file:web*": "listed"}, {}, ("autosign_file",))
    (found,) = OF_MASTERS["access"].compare({"m1": listed, "m2": Facts({}, {}, ("autosign_file",))})
    assert "where autosign_file is not set, set it, too" in found["fix"]


def test_an_autosign_file_that_salt_ignores(master):
    conf = master.root / "autosign.conf"
    conf.write_text("web*\n")
    conf.chmod(0o666)
    ((path, text),) = leaves(master.facts(), "access", "autosign_file").items()
    assert path == "autosign_file"
    assert "ignored by Salt" in text


def test_an_autosign_file_that_cannot_be_read_is_unknown(master):
    (master.root / "autosign.conf").mkdir(mode=0o755)
    broken = master.facts()
    why = broken["access"].unknown["autosign_file"]
    assert why.startswith(f"{master.root / 'autosign.conf'}: ")
    result = compare({"m1": broken, "m2": broken}, {})
    assert result["sections"]["access"]["status"] == result["status"] == "unknown"
    assert exit_code(result) == 2


def test_grains_that_sign_are_hidden(master):
    folder = master.root / "grains"
    folder.mkdir()
    (folder / "uuid").write_text(f"# c\n{SECRET}\nB\n")
    (folder / "uuid").chmod(0o600)
    master.write(autosign_grains_dir=str(folder))
    first = master.facts()
    assert SECRET not in told(first)
    (folder / "old").mkdir()
    assert master.facts()["access"].unknown == {}
    (folder / "uuid").write_text(f"B\n{SECRET}\n")
    assert leaves(master.facts(), "access", "autosign_grains_dir") == leaves(
        first, "access", "autosign_grains_dir"
    )
    (folder / "uuid").write_text("B\n")
    result = compare({"m1": first, "m2": master.facts()}, {})
    assert differing(result, "access") == {
        "autosign_grains_dir:uuid": {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}}
    }


def test_files_that_changed_under_a_running_master(master):
    master.write(publisher_acl={"ops": ["test.ping"]}, open_mode=False)
    running = master.opts()
    master.write(publisher_acl={"ops": ["test.*"], "night": [".*"]}, autosign_file="/elsewhere")
    taken = take(running)
    assert leaves(taken, "access", "publisher_acl") == {"publisher_acl:ops": ["test.ping"]}
    assert taken["running"].leaves.keys() == {
        "publisher_acl:ops", "publisher_acl:night", "autosign_file",
    }  # fmt: skip
    result = compare({"m1": {**taken, "running": Facts()}, "m2": taken}, {})
    assert differing(result, "running")["publisher_acl:night"] == {
        "m2": {"file": [".*"], "running": ABSENT}
    }
    fixes = {d["fix"] for d in result["sections"]["running"]["differences"]}
    assert fixes == {"restart salt-master on m2"}
    assert exit_code(result) == 1
    # Each is held against itself: one that is away has no part in it.
    result = compare({"m1": {**taken, "running": Facts()}, "m2": taken}, {"m3": "refused"})
    assert {tuple(d["values"]) for d in result["sections"]["running"]["differences"]} == {("m2",)}


def test_nobody_is_told_to_restart_for_what_means_the_same(master):
    master.write(event_return="mysql")
    running = master.opts()
    master.write(event_return=["mysql"], presence_events=False, rest_cherrypy={"debug": False})
    assert take(running)["running"].leaves == {}
    master.write(event_return=["mysql"], presence_events=True)
    assert take(running)["running"].leaves.keys() == {"presence_events"}


@pytest.mark.parametrize("engines", [[{"ha": {}}], ["ha"], {"ha": {}}])
def test_the_engine_that_salt_adds_for_a_reactor_is_no_difference(master, engines):
    """salt-master adds it to its running configuration (``Master.start``)."""
    react = [{"site/*": ["/srv/react.sls"]}]
    master.write(engines=engines, reactor=react)
    added = {"reactor": {}}
    whole = {**engines, **added} if isinstance(engines, dict) else [*engines, added]
    running = {**master.opts(), "engines": whole}
    assert take(running)["running"].leaves == {}
    master.write(engines=["ha", {"libvirt_events": {}}], reactor=react)
    assert "engines" in take(running)["running"].leaves
    master.write(engines=whole, reactor=react)
    assert take(running)["running"].leaves == {}


@pytest.mark.parametrize("engines", [[{"ha": {}}, None], "ha", 5])
def test_engines_with_which_salt_does_not_start_are_a_difference(master, engines):
    """As of a dash too many. The section is not unknown, with a traceback in the log."""
    running = {**master.opts(), "engines": [{"ha": {}}]}
    master.write(engines=engines, reactor=[{"site/*": ["/srv/react.sls"]}])
    assert "engines" in take(running)["running"].leaves


@pytest.mark.parametrize("option", roots.LOADED)
def test_a_folder_of_modules_that_was_added_under_a_running_master(master, option):
    running = master.opts()
    added = master.root / "added"
    master.write(**{option: str(added) if option == "extension_modules" else [str(added)]})
    found = take(running)["running"].leaves
    assert option in found
    assert str(added) in found[option]["file"]


@pytest.mark.parametrize("text", ["a: [", "just words"])
def test_files_that_do_not_parse_do_not_take_the_engine_along(master, text):
    running = master.opts()
    master.conf.write_text(text)
    taken = take(running)
    assert str(master.conf) in taken["running"].unknown[""]
    assert exit_code(compare({"m1": taken, "m2": taken}, {})) == 2


def test_a_master_key_that_was_replaced_under_a_running_master(master):
    opts = master.opts()
    before = master_key.at_start(opts)
    mine = Mine(opts, mapping.parse(opts), NONCE, before)
    assert OF_MASTERS["running"].take(mine).leaves == {}
    write_pair(master.pki)
    after = {"file": master_key.public_fingerprint(opts), "running": before}
    assert OF_MASTERS["running"].take(mine).leaves == {"master_key": after}


def test_the_key_of_a_member_of_salts_cluster_may_change_under_it(master):
    """Salt 3008 puts the key of the cluster in place, and uses it from then on."""
    master.write(cluster_id="c", cluster_pki_dir=str(master.pki))
    write_pair(master.pki, "cluster")
    opts = master.opts()
    assert not cluster.of(opts) or master_key.at_start(opts) == ""


def test_nobody_is_told_to_restart_with_settings_that_the_engine_refuses(master):
    running = master.opts()
    master.write(open_mode=True, ha={"mdoe": "observe"})
    taken = take(running)
    assert "did you mean 'mode'?" in taken["running"].unknown[""]
    assert "the engine does not start with it" in taken["running"].unknown[""]
    result = compare({"m1": {**taken, "running": Facts()}, "m2": taken}, {})
    assert (result["sections"]["running"]["differences"], exit_code(result)) == ([], 2)


def test_an_include_that_does_not_parse(master):
    master.write(include="extra.conf")
    running = master.opts()
    (master.root / "extra.conf").write_text("a: [")
    # salt-master would start, without that file.
    assert "not start" not in take(running)["running"].unknown[""]


@pytest.mark.parametrize("closed", ["master", "master.d", "master.d/site.conf"])
def test_a_file_that_only_root_may_read_is_unknown_and_no_difference(tmp_path, monkeypatch, closed):
    """salt-master reads it as root; its engine asks again as the user that it became."""
    master = Master(tmp_path)
    (tmp_path / "master.d").mkdir()
    (tmp_path / "master.d/site.conf").write_text("open_mode: true\n")
    master.write(publisher_acl={"ops": [".*"]}, default_include="master.d/*.conf")
    running = master.opts()
    at = str(tmp_path / closed)

    def denying(function):
        def as_another_user(path=".", *args, **more):
            if str(path) == at:
                raise PermissionError(13, "Permission denied", at)
            return function(path, *args, **more)

        return as_another_user

    for module in ("builtins", "io"):
        monkeypatch.setattr(f"{module}.open", denying(open))
    for name in ("open", "scandir", "listdir"):
        monkeypatch.setattr(os, name, denying(getattr(os, name)))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != at and access(path, mode))
    taken = take(running)["running"]
    assert taken.leaves == {}
    assert taken.unknown[""].startswith(f"{at}: permission denied; ")
    assert "start" not in taken.unknown[""]


def test_a_configuration_that_is_gone(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        section.read_files(str(tmp_path / "gone"))


def test_only_what_is_included_is_there(tmp_path):
    """As where Salt came by pip, which brings no configuration file."""
    (tmp_path / "master.d").mkdir()
    (tmp_path / "master.d" / "ha.conf").write_text("timeout: 7\n")
    assert section.read_files(str(tmp_path / "master"))["timeout"] == 7


# What is made of several answers


def test_the_same(master):
    result = compare(pair_of(master), {})
    assert result["status"] == "same"
    assert result["masters"] == ["m1", "m2"]
    assert all(part["status"] == "same" for part in result["sections"].values())
    assert exit_code(result) == 0


def test_order_and_repetition_in_permissions_mean_nothing(master):
    perms = [".*", "@runner", {"web*": ["test.ping", "grains.items"]}]
    master.write(external_auth={"pam": {"alice": perms}}, peer={".*": ["a", "b"]})
    snapshots = pair_of(
        master,
        external_auth={
            "pam": {"alice": ["@runner", {"web*": ["grains.items", "test.ping"]}, ".*", ".*"]}
        },
        peer={".*": ["b", "a"]},
    )
    assert compare(snapshots, {})["status"] == "same"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        # Arguments are matched by position; nodegroups are read from left to right.
        (
            {"peer": {".*": [{"f": {"args": ["a", "b"]}}]}},
            {"peer": {".*": [{"f": {"args": ["b", "a"]}}]}},
        ),
        ({"nodegroups": {"g": "L@a,b"}}, {"nodegroups": {"g": "L@b,a"}}),
        ({"nodegroups": {"g": ["a", "or", "b"]}}, {"nodegroups": {"g": ["b", "or", "a"]}}),
        ({"auto_accept": True}, {"auto_accept": False}),
        ({"publisher_acl_blacklist": {"users": ["root"]}}, {}),
        ({"peer_run": {".*": ["x"]}}, {}),
        ({"open_mode": True}, {}),
    ],
)  # fmt: skip
def test_what_does_differ(master, one, two):
    master.write(**one)
    result = compare(pair_of(master, **two), {})
    assert len(result["sections"]["access"]["differences"]) == 1
    assert exit_code(result) == 1


def test_a_missing_user_is_named_with_path_values_and_fix(master):
    master.write(external_auth={"pam": {"alice": ["@runner", ".*"], "bob": [".*"]}})
    result = compare(pair_of(master, external_auth={"pam": {"bob": [".*"]}}), {})
    assert result["sections"]["access"]["differences"] == [
        {
            "path": "external_auth:pam:alice",
            "values": {"m1": [".*", "@runner"], "m2": ABSENT},
            "severity": "drift",
            "fix": "make external_auth the same in the master configuration of m1 or m2, "
            "restart salt-master there",
        }
    ]
    assert json.loads(json.dumps(result)) == result


def test_an_empty_mapping_grants_what_a_missing_one_grants(master):
    master.write(external_auth={"pam": {}})
    assert compare(pair_of(master, external_auth={}), {})["status"] == "same"


def test_the_minority_is_told_to_change(master):
    snapshots = pair_of(master, token_expire=1)
    snapshots["m3"] = snapshots["m1"]
    (difference,) = compare(snapshots, {})["sections"]["access"]["differences"]
    assert difference["fix"].startswith("make token_expire the same in the master configuration")
    assert "of m2, restart" in difference["fix"]


def test_secrets_are_numbered_not_shown(master):
    auth = {"ldap": {"bind_password": SECRET}}
    master.write(external_auth=auth)
    snapshots = pair_of(master, external_auth={"ldap": {"bind_password": "other"}})
    snapshots["m3"] = snapshots["m1"]
    result = compare(snapshots, {})
    assert differing(result, "access") == {
        "external_auth:ldap:bind_password": {
            "m1": {"secret": "#1"}, "m2": {"secret": "#2"}, "m3": {"secret": "#1"},
        }
    }  # fmt: skip


def test_different_master_keys(master):
    first = master.facts()
    write_pair(master.pki)
    result = compare({"m1": first, "m2": master.facts()}, {})
    (difference,) = result["sections"]["master_key"]["differences"]
    assert difference["path"] == "fingerprint"
    assert "share_master_key" in difference["fix"]
    assert "force=True" in difference["fix"]
    assert "restart salt-master" in difference["fix"]
    assert exit_code(result) == 1


def test_different_master_keys_under_one_signing_key_are_a_note(master):
    write_pair(master.pki, "master_sign")
    master.write(master_sign_pubkey=True)
    first = master.facts()
    write_pair(master.pki)
    second = master.facts()
    result = compare({"m1": first, "m2": second}, {})
    assert [d["severity"] for d in result["sections"]["master_key"]["differences"]] == ["note"]
    assert exit_code(result) == 0
    write_pair(master.pki, "master_sign")
    result = compare({"m1": first, "m2": master.facts()}, {})
    assert {d["path"]: d["severity"] for d in result["sections"]["master_key"]["differences"]} == {
        "fingerprint": "drift",
        "sign_fingerprint": "drift",
    }
    assert exit_code(result) == 1


def test_halves_of_two_signing_pairs(master):
    write_pair(master.pki, "master_sign")
    master.write(master_sign_pubkey=True)
    first = master.facts()
    assert differing(compare({"m1": first, "m2": first}), "master_key") == {}
    stranger = Fresh.key()
    write_public(master.pki, "master_sign", stranger.public_key())
    second = master.facts()
    assert differing(compare({"m1": second, "m2": second}), "master_key") == {
        "sign_pair": dict.fromkeys(["m1", "m2"], "does not fit")
    }


def test_different_master_keys_of_which_only_some_are_signed(master):
    first = master.facts()
    write_pair(master.pki, "master_sign")
    write_pair(master.pki)
    master.write(master_sign_pubkey=True)
    answer = compare({"m1": first, "m2": master.facts()})
    fixes = {d["path"]: d["fix"] for d in answer["sections"]["master_key"]["differences"]}
    assert fixes.keys() == {"fingerprint", "sign_fingerprint", "master_sign_pubkey"}
    assert "master_sign_pubkey: True on m1" in fixes["fingerprint"]
    assert exit_code(answer) == 1


def test_what_a_salt_api_may_have_of_its_own(master):
    master.write(rest_cherrypy={"port": 8000, "ssl_key": "/a", "api_acl": {"users": {"*": ["a"]}}})
    masters = pair_of(master, rest_cherrypy={"port": 9000, "api_acl": {"users": {"*": ["b"]}}})
    assert differing(compare(masters), "access") == {
        "rest_cherrypy:api_acl:users:*": {"m1": ["a"], "m2": ["b"]}
    }


@pytest.mark.parametrize(
    ("option", "same", "other"),
    [
        ("rest_cherrypy", {"port": 8000, "debug": False, "webhook_url": "/hook"}, {"debug": True}),
        ("rest_tornado", {"port": 8000, "websockets": False}, {"websockets": True}),
        ("presence_events", False, True),
        ("fileserver_list_cache_time", 20, 30),
        ("roster", ["flat"], "cache"),
    ],
)
def test_a_default_that_is_written_down_is_none_of_the_differences(master, option, same, other):
    """Salt does not merge these defaults into the configuration."""
    master.write()
    masters = pair_of(master, **{option: same})
    assert not any(section["differences"] for section in compare(masters)["sections"].values())
    masters = pair_of(master, **{option: other})
    found = compare(masters)["sections"]
    assert [d for section in found.values() for d in section["differences"]]


def test_a_certificate_may_have_another_name_on_each_master_and_must_be_there(master):
    ssl = {"certfile": "/etc/pki/m1.crt", "keyfile": "/etc/pki/m1.key", "cert_reqs": "CERT_NONE"}
    master.write(ssl=ssl)
    first = master.facts()
    master.write(ssl={**ssl, "certfile": "/etc/pki/m2.crt", "keyfile": "/etc/pki/m2.key"})
    assert compare({"m1": first, "m2": master.facts()})["sections"]["options"]["status"] == "same"
    for other in ({"certfile": ssl["certfile"]}, None):
        master.write(ssl=other)
        found = differing(compare({"m1": first, "m2": master.facts()}), "options")
        assert found["ssl:keyfile"] == {"m1": "a file", "m2": ABSENT}
    # Here each is held against itself: another file counts after a restart.
    master.write(ssl=ssl)
    running = master.opts()
    master.write(ssl={**ssl, "certfile": "/etc/pki/new.crt"})
    assert take(running)["running"].leaves.keys() == {"ssl:certfile"}


def test_settings_of_the_site_are_notes_and_never_shown(master):
    master.write(**{"redis.host": "a", "timeout": 5})
    answer = compare(pair_of(master, **{"redis.host": SECRET, "mysite": 1, "timeout": 6}))
    assert differing(answer, "options") == {
        "redis.host": {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}},
        "mysite": {"m1": ABSENT, "m2": {"secret": "#1"}},
        "timeout": {"m1": 5, "m2": 6},
    }
    assert answer["status"] == "same"
    assert exit_code(answer) == 0
    # None here, and an empty one there.
    master.write(timeout=5)
    assert differing(compare(pair_of(master, **{"redis.pass": "", "timeout": 5})), "options") == {}


def test_how_to_access_a_remote_of_git_pillar_may_differ(master):
    def pillar(url="https://git.example/x", **settings):
        remote = {f"main {url}": [{key: value} for key, value in settings.items()]}
        return [
            {"cmd_yaml": "true"},
            {"git": [remote if settings else next(iter(remote)), "dev y"]},
        ]

    master.write(ext_pillar=pillar(root="a", privkey="/etc/keys/m1"))
    for other, differs in (
        (pillar("https://m2:pw@git.example/x", root="a", user="m2"), False),
        (pillar(root="b", privkey="/etc/keys/m1"), True),
        (pillar("https://git.example/z", root="a"), True),
        (pillar(root="a")[1:], True),
        (None, True),
    ):
        answer = compare(pair_of(master, ext_pillar=other))
        assert ("ext_pillar" in differing(answer, "options")) is differs, other
        master.write(ext_pillar=pillar(root="a", privkey="/etc/keys/m1"))
    # Here each is held against itself: another key counts after a restart.
    running = master.opts()
    master.write(ext_pillar=pillar(root="a", privkey="/etc/keys/new"))
    assert "ext_pillar" in take(running)["running"].leaves


@pytest.mark.parametrize("name", ["webhook_tokens", "site"])
def test_keys_below_a_name_of_secrets_are_not_shown(master, name):
    """``webhook_tokens: {hunter2: alice}``: the key is the secret."""

    def option(value):
        return {name: value if name == "webhook_tokens" else {"api_keys": value}}

    master.write(**option({SECRET: "alice"}))
    path = name if name == "webhook_tokens" else f"{name}:api_keys"
    others = {"changed": {SECRET: "bob"}, "more": {SECRET: "alice", "other": "bob"}, "none": None}
    for other in others.values():
        taken = pair_of(master, **option(other) if other else {})
        answer = compare(taken)
        assert SECRET not in json.dumps(answer) + told(taken["m1"]) + told(taken["m2"])
        assert differing(answer, "options").keys() == {path}
        master.write(**option({SECRET: "alice"}))
    assert differing(compare({"m1": master.facts(), "m2": master.facts()}), "options") == {}
    master.write()
    assert differing(compare(pair_of(master, **option({}))), "options") == {}


def test_what_masters_do_by_themselves_is_compared_and_not_shown(master):
    """Arguments of a job and the settings of an engine may hold anything."""

    def own(secret):
        return {
            "schedule": {"dump": {"function": "cmd.run", "args": [f"mysqldump -p{secret} db"]}},
            "engines": [{"http_logstash": {"url": f"https://logs.example/inputs/{secret}"}}],
            "beacons": {"http_status": [{"sites": {"a": {"url": f"https://a/?t={secret}"}}}]},
        }

    master.write(**own(SECRET))
    answer = compare(pair_of(master, **own("other")))
    hidden = {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}}
    assert SECRET not in json.dumps(answer)
    assert SECRET not in told(master.facts())
    found = differing(answer, "options")
    assert found.keys() == {"schedule:dump:args", "engines", "beacons:http_status"}
    assert found["schedule:dump:args"] == hidden


def test_options_that_each_master_has_of_its_own(master):
    own = {"interface": "127.0.0.2", "worker_threads": 9, "log_level": "info", "user": "salt"}
    ha = {"name": "m2", "address": "10.0.0.2", "port": 4531, "peers": []}
    assert compare(pair_of(master, **own, ha=ha))["status"] == "same"
    answer = compare(pair_of(master, ha={"hold_minimum": 3}))
    assert differing(answer, "options").keys() == {"ha:hold_minimum"}


def test_what_each_master_has_of_its_own_of_a_tree(master):
    """Where nobody deploys there need be no source."""
    tree = {"live": "/srv/salt", "ignore": ["*.swp"]}
    own = {"source": "/srv/git/salt", "check": "/opt/check", "check_timeout": 5}
    master.write(ha={"trees": {"states": {**tree, **own}}})
    assert compare(pair_of(master, ha={"trees": {"states": tree}}))["status"] == "same"
    answer = compare(pair_of(master, ha={"trees": {"states": {**own, "live": "/srv/salt"}}}))
    assert differing(answer, "options").keys() == {"ha:trees:states:ignore"}


def test_versions_differ_but_another_python_is_only_a_note(master):
    snapshots = {"m1": master.facts(), "m2": master.facts()}
    snapshots["m2"] = replaced(snapshots["m2"], "versions", python="3.10.0")
    result = compare(snapshots, {})
    assert result["sections"]["versions"]["status"] == "same"
    assert differing(result, "versions").keys() == {"python"}
    assert exit_code(result) == 0
    snapshots["m2"] = replaced(snapshots["m2"], "versions", salt="3006.1")
    assert exit_code(compare(snapshots, {})) == 1


def test_another_extension(master):
    path = "extension:saltext-vault"
    with_it = replaced(master.facts(), "versions", **{path: "1.2"})
    answer = compare({"m1": with_it, "m2": master.facts()})
    assert differing(answer, "versions") == {path: {"m1": "1.2", "m2": ABSENT}}
    assert exit_code(answer) == 1
    # This one is a line of its own.
    installed = master.facts()["versions"].leaves
    assert "saltext-ha" in installed
    assert "extension:saltext-ha" not in installed


def test_an_extension_whose_older_metadata_an_upgrade_has_left(tmp_path, monkeypatch):
    """As ``salt-pip`` does, which installs with ``--target``; 1.9 is the later text."""
    for number, release in enumerate(("1.9", "1.10")):
        info = tmp_path / f"saltext_planted-{release}.dist-info"
        info.mkdir()
        about = f"Metadata-Version: 2.1\nName: saltext.planted\nVersion: {release}\n"
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text("[salt.loader]\nplanted = planted\n")
        os.utime(info / "METADATA", (number, number))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert dict(versions.extensions.__wrapped__())["saltext.planted"] == "1.10"


# Unknown is never OK


def test_a_master_that_could_not_be_asked_is_unknown_everywhere(master):
    result = compare({"m1": master.facts()}, {"m2": "timed out"})
    assert result["status"] == "unknown"
    assert result["unknown"] == {"m2": "timed out"}
    assert {part["status"] for part in result["sections"].values()} == {"unknown"}
    assert exit_code(result) == 2


def test_what_differs_is_told_beside_what_is_unknown(master):
    snapshots = pair_of(master, auto_accept=True)
    result = compare(snapshots, {"m3": "refused"})
    assert result["status"] == result["sections"]["access"]["status"] == "differ"
    assert differing(result, "access") == {
        "auto_accept": {"m1": False, "m2": True, "m3": {"unknown": "refused"}}
    }
    assert result["sections"]["versions"]["status"] == "unknown"
    # Both: a check that is not complete must say so first.
    assert exit_code(result) == 2


def test_an_option_that_another_version_does_not_report_is_unknown_not_absent(master):
    master.write(peer={".*": ["test.ping"]})
    snapshots = {name: master.facts() for name in ("m1", "m2")}
    there = snapshots["m2"]["access"]
    without = {path: value for path, value in there.leaves.items() if path[:5] != "peer:"}
    covers = tuple(option for option in there.covers if option != "peer")
    snapshots["m2"] = {**snapshots["m2"], "access": Facts(without, {}, covers)}
    result = compare(snapshots, {})
    assert differing(result, "access") == {}
    assert result["sections"]["access"]["status"] == "unknown"
    assert result["sections"]["access"]["unknown"]["m2"].startswith("peer: not reported")
    assert result["sections"]["versions"]["status"] == "same"
    assert exit_code(result) == 2


@pytest.mark.parametrize(
    ("status", "unknown", "code"),
    [("same", {}, 0), ("differ", {}, 1), ("unknown", {}, 2), ("differ", {"m3": "gone"}, 2)],
)
def test_the_exit_code(status, unknown, code):
    part = {"status": status, "differences": [], "unknown": unknown}
    answer = results.answer({"keys": part}, ["m1"], {})
    assert answer["status"] == status
    assert exit_code(answer) == code


def test_nothing_compared_is_not_the_same():
    assert exit_code(results.answer({}, ["m1"], {})) == 2


def test_the_status_of_a_section_follows_from_its_content():
    def status(found, unknown=()):
        return of_differences("keys", found, dict(unknown))["status"]

    drift, note = {"path": "a", "severity": "drift"}, {"path": "a", "severity": "note"}
    assert status([]) == status([note]) == "same"
    assert status([note], {"m2": "x"}) == "unknown"
    assert status([note, drift], {"m2": "x"}) == "differ"
    assert status([{"path": "web07"}]) == "differ"


def test_what_is_ignored_is_counted_and_nothing_else(master):
    master.write(nodegroups={"a": "x", "b": "x"}, timeout=5)
    snapshots = pair_of(master, nodegroups={"a": "y", "b": "y"}, token_expire=7)
    answer = compare(snapshots, ignore=["nodegroups:a", "access:token_*"])
    assert differing(answer, "access").keys() == {"nodegroups:b"}
    assert answer["sections"]["access"]["ignored"] == 2
    answer = compare(snapshots, ignore=["nodegroups", "token_expire"])
    assert answer["sections"]["access"]["status"] == answer["status"] == "same"
    assert exit_code(answer) == 0


def test_more_than_can_be_listed_is_counted():
    many = [{"path": str(number)} for number in range(results.LISTED + 5)]
    made = of_differences("roots", many, {}, None, 9000)
    assert (len(made["differences"]), made["left_out"]) == (results.LISTED, 5)
    assert made["counts"] == {"differ": results.LISTED + 5, "of": 9000}


def test_nothing_is_changed_but_what_is_remembered_of_files(master):
    before = {path: path.stat().st_mtime_ns for path in master.root.rglob("*")}
    environment = dict(os.environ)
    master.facts()
    assert {path: path.stat().st_mtime_ns for path in master.root.rglob("*")} == before
    assert dict(os.environ) == environment
