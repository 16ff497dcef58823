"""The lines of Salt's code that the rules rest on."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The release that they were read in, unless another one is named.
READ_ON = "3008.3"


@dataclass(frozen=True)
class CitedLine:
    """
    One line of Salt.

    :param place: its file and number, and the function or class that it is in, if it is in one:
        ``salt/crypt.py:131 dropfile``.
    :param text: part of the line. All other releases that the rule holds for have the same text in
        that function, on another line.
    :param release: the release it was read in, if not all of them have it.
    """

    place: str
    text: str
    release: str = ""

    @property
    def major(self) -> int:
        """The first number of the release that it was read in."""
        return int((self.release or READ_ON).partition(".")[0])

    def markdown(self) -> str:
        """As docs/lint.md shows it."""
        line, *where = self.place.split(" ")
        return " ".join([f"`{line}` ({self.release or READ_ON})", *where]) + f": `{self.text}`"


# Lines that several rules rest on.
PORT_OF_ENTRY = CitedLine("salt/minion.py:364 prep_ip_port", 'ret.update({"master_port": port})')
PORT_TOLD = CitedLine(
    "salt/channel/client.py:540 AsyncPubChannel.connect",
    'publish_port = self.auth.creds["publish_port"]',
)
PORT_SET = CitedLine(
    "salt/channel/client.py:536 AsyncPubChannel.connect",
    'if int(self.opts.get("publish_port", 4506)) != 4506:',
)
ALIVE_CHECK = CitedLine(
    "salt/modules/status.py:1712 master",
    'port = __salt__["config.get"]("publish_port", default=4505)',
)
ALIVE_LOOK = CitedLine(
    "salt/modules/status.py:1713 master", "connected_ips = salt.utils.network.remote_port_tcp(port)"
)
ALIVE_JOB = CitedLine(
    "salt/minion.py:2147 Minion._post_master_init", 'and self.opts["master_alive_interval"] > 0'
)
SIGNED_UNVERIFIED = CitedLine(
    "salt/crypt.py:1764 AsyncAuth.check_auth_deps",
    'elif "pub_sig" in payload and not self.opts["verify_master_pubkey_sign"]:',
)
FINGER = CitedLine(
    "salt/crypt.py:1534 AsyncAuth.handle_signin_response", '!= self.opts["master_finger"]'
)
MASTER_INCLUDES = CitedLine("salt/config/__init__.py:4376 master_config", "overrides.update(")
MASTER_PEM = CitedLine("salt/crypt.py:719 MasterKeys", 'self.opts["pki_dir"], "master.pem")')
SIGNS = CitedLine("salt/crypt.py:774 MasterKeys", 'opts["master_sign_pubkey"]:')
ROTATION_ASKED = CitedLine(
    "salt/crypt.py:131 dropfile", 'log.info("AES key rotation already requested")'
)
ROOT_KEY = CitedLine(
    "salt/daemons/masterapi.py:235 mk_key", "os.unlink(keyfile)", release="3006.29"
)
SHARED_CACHEDIR = (ROTATION_ASKED, ROOT_KEY, "saltstack/salt issues 42377, 56000")
WHY_NO_SHARED_CACHEDIR = (
    "Masters that share it ask for a new AES key by one file in it (.dfn): when a key is deleted "
    "or rejected on all of them, only the first makes a new one, and the minion goes on with the "
    "old one of the others. On 3006 each start also overwrites the key of the command line (such "
    "as .root_key), and salt and salt-run fail to authenticate on the others. Jobs, tokens and "
    "caches mix."
)
SHARED_PKI_DIR = (MASTER_PEM, "Salt's tutorial on several masters (Sharing Files Among Masters)")
GLOBAL_LOCK = CitedLine(
    "salt/utils/gitfs.py:1047 GitProvider.__lock", "if self.opts[global_lock_key]:"
)
PEER_ID = CitedLine(
    "salt/channel/server.py:2935 MasterPubServerChannel.send_aes_key_event",
    'data = {"peer_id": master_id, "peers": {}}',
)
_IPC_PORTS = CitedLine(
    "salt/transport/base.py:255 ipc_publish_server",
    'pub_port=int(opts["tcp_pub_port"]),',
    release="3008.3",
)
IPC_PORTS = (
    _IPC_PORTS,
    replace(_IPC_PORTS, release="3007.15"),
    CitedLine(
        "salt/utils/event.py:1133 AsyncEventPublisher.__init__",
        'epub_uri = int(self.opts["tcp_pub_port"])',
        release="3006.28",
    ),
)
