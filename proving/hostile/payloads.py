"""
What honest callers send: one sample or more of every method and command, to be bent out of shape.

The engine itself says which methods there are (``doors`` in ``target.py``); a test compares, so
that a new one cannot be forgotten here. A method without a sample is attacked, too, but blindly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgpack

from saltext_ha.membership.group_secret import NONCE, STANDING
from saltext_ha.membership.group_secret import request_mac as standing_mac
from saltext_ha.membership.token import mac_key
from saltext_ha.replication.digest import BUCKETS, FANOUT
from saltext_ha.replication.record import STATES
from saltext_ha.transport import wire
from saltext_ha.transport.peer import Peer

ALL_STATES = sorted(STATES)
EVENT = msgpack.packb({"id": "hostile1", "data": {"n": 1}})
Sample = Callable[[Random], dict[str, Any]]


@dataclass(frozen=True)
class Known:
    """
    The knowledge of an attacker who was let in: minions' public keys, a certificate of no member,
    the target's fingerprint and group; for joins, a secret that may be right.
    """

    keys: tuple[str, ...]
    stranger: Peer
    server: str
    group: str
    secret: bytes


def methods(known: Known) -> dict[str, Sample]:
    """Method → what an honest peer may send."""

    def ids(rng: Random, count: int = 3) -> list[str]:
        return [f"hostile{rng.randrange(2000)}" for _ in range(count)]

    def nonce(rng: Random) -> bytes:
        # A valid one makes the master look at all of itself.
        return rng.randbytes(16 if rng.random() < 0.01 else 8)

    def digest(rng: Random) -> dict[str, Any]:
        return {"tree": rng.choice(("records", "placements")), "root": rng.randbytes(16)}

    def branches(rng: Random) -> dict[str, Any]:
        numbers = sorted(rng.sample(range(FANOUT), 3))
        return {"tree": rng.choice(("records", "placements")), "branches": numbers}

    def compare(rng: Random) -> dict[str, Any]:
        entries = [[minion_id, rng.randbytes(32), rng.randbytes(8)] for minion_id in ids(rng)]
        return {"buckets": [[rng.randrange(BUCKETS), entries]]}

    def members(rng: Random) -> dict[str, Any]:
        other = known.stranger
        return {
            "self": {"name": "evil", "url": "https://127.0.0.1:1"},
            "group": known.group,
            "members": [{"name": other.name, "url": other.url, "certificate": other.certificate}],
            "removed": [
                {"fingerprint": rng.randbytes(32).hex(":"), "name": "m7", "removed": "2024-01-01"}
            ],
        }

    def vouched(rng: Random) -> list[Any]:
        owner = rng.choice((rng.randbytes(32), bytes.fromhex(known.server.replace(":", ""))))
        return [[owner, rng.randbytes(8), rng.randrange(2**53), rng.randbytes(70)]]

    def jids(rng: Random) -> list[str]:
        return [f"{rng.randrange(10**19, 10**20)}" for _ in range(2)]

    def order(rng: Random) -> dict[str, Any]:
        what = rng.choice(("ping", "where", "move", "cmd.run"))
        named = {"glob": "", "ids": ids(rng)} if rng.random() < 0.5 else {"glob": "*", "ids": []}
        return {"what": what, **named, "to": rng.choice(("", "10.0.0.2")), "test": True}

    return {
        "hello": lambda rng: {"name": "evil", "group": known.group, "vouched": vouched(rng)},
        "digest": digest,
        "branches": branches,
        "compare": compare,
        "parts": lambda rng: {
            "bucket": rng.randrange(BUCKETS),
            "salt": rng.randbytes(16),
            "parts": 1 << rng.randrange(14),
        },
        "placed": lambda rng: {
            "buckets": [rng.randrange(BUCKETS) for _ in range(3)],
            "after": [-1, ""],
        },
        "push": lambda rng: {"records": [record(rng, known)], "vouched": vouched(rng)},
        "dropped": lambda rng: {"dropped": [[ids(rng)[0], rng.randbytes(32), rng.randbytes(16)]]},
        "level": lambda rng: {"root": rng.randbytes(16)},
        "drop": lambda rng: {
            "root": rng.randbytes(16),
            "keys": [[minion_id, rng.randbytes(32)] for minion_id in ids(rng)],
            "horizon": [[rng.randbytes(8).hex(), rng.randrange(1, 100)]],
            "epoch": rng.randrange(1, 9),
        },
        "horizon": lambda rng: {},
        "signature": lambda rng: {"anew": rng.random() < 0.1},
        "members": members,
        "introduced": lambda rng: {},
        "wrote": lambda rng: {
            "names": ["evil", "m7"],
            "span": rng.choice((None, 3600.0)),
            "after": rng.choice((None, [1.7e9, rng.randbytes(8).hex(), 1])),
        },
        "made": lambda rng: {
            "writes": [[rng.randbytes(8).hex(), 1, ids(rng)[0], rng.randbytes(32), "accepted"]]
        },
        "summary": lambda rng: {},
        "keys": lambda rng: {"glob": "hostile1*"} if rng.random() < 0.3 else {"ids": ids(rng)},
        "lint": lambda rng: {},
        "endpoint": lambda rng: {},
        "salt_api": lambda rng: {},
        "draining": lambda rng: {"name": rng.choice(["", "m1", "m9"]), "draining": True},
        "minion_reports": lambda rng: {"glob": "hostile1*"},
        "clock": lambda rng: {},
        "consistency": lambda rng: {"nonce": nonce(rng), "sections": ["keys", "access", "clock"]},
        "facts": lambda rng: {
            "nonce": nonce(rng),
            "buckets": {"access": rng.randbytes(rng.choice((2048, 2048, 8))), "keys": b""},
        },
        "pause": lambda rng: {"pause": rng.random() < 0.5},
        "bound": lambda rng: {"glob": "hostile1*", "after": ids(rng)[0]},
        "job_expect": lambda rng: {"jids": jids(rng), "timeout": 1},
        "job_run": lambda rng: {"jid": jids(rng)[0], "order": order(rng), "timeout": 0.1},
        "job_more": lambda rng: {"jid": jids(rng)[0], "timeout": 0.1},
        "job_strays": lambda rng: {"jids": jids(rng), "counts": rng.random() < 0.5},
        "mine_ages": lambda rng: {"ids": ids(rng, rng.choice((3, 600)))},
        "mine_changes": lambda rng: {"epoch": rng.randbytes(8).hex(), "n": rng.randrange(9)},
        "mine_copies": lambda rng: {
            "wanted": [[rng.choice(("mine", "pillar")), i] for i in ids(rng)]
        },
        "trees": lambda rng: {"have": {"states": rng.randbytes(16)}},
        "tree_state": lambda rng: {"trees": ["states"]},
        "tree_manifest": lambda rng: {**tree(rng), "base": rng.randbytes(32), "after": "a"},
        "tree_parts": lambda rng: {**tree(rng), "wanted": [[rng.randbytes(32), 0]]},
        "tree_stage": lambda rng: {**tree(rng), "begin": rng.random() < 0.5},
        "tree_switch": lambda rng: {**tree(rng), "register": register(rng), "adopt": True},
        "restart": lambda rng: {"begin": rng.random() < 0.2},
        "leader": lambda rng: {"sees": [rng.choice(("honest", "m9"))]},
        "leading": lambda rng: {},
        "runs": lambda rng: {"have": {"nightly": rng.randbytes(16)}},
        "runs_told": lambda rng: {"runs": {f"run{rng.randrange(600)}": runs(rng)}},
        "lock": lock,
        "unlock": lock,
        "react": lambda rng: {
            "start": rng.choice(("", rng.randbytes(8).hex())),
            "events": [
                [n, "site/x", rng.choice((rng.randbytes(20), EVENT)), 1.0, rng.random() < 0.5]
                for n in range(rng.randrange(4))
            ],
        },
        "past_jobs": lambda rng: {"search": rng.choice(("", "test.*")), "limit": 5},
        "past_job": lambda rng: {"jid": jids(rng)[0]},
        "join": lambda rng: join(rng, known),
        "plan": lambda rng: join(rng, known) | {"after": rng.choice((b"", rng.randbytes(16)))},
        "certificates": lambda rng: {},
        "renewed": lambda rng: {
            "name": rng.choice(("honest", known.stranger.name)),
            "certificates": [known.stranger.certificate] * rng.randrange(1, 4),
        },
    }


def lock(rng: Random) -> dict[str, Any]:
    """A request to get or to prolong a lock."""
    token = rng.choice(("", rng.randbytes(16).hex()))
    return {"name": f"lock{rng.randrange(2000)}", "by": "evil", "token": token}


def tree(rng: Random) -> dict[str, Any]:
    """A version of a tree, as a question names it."""
    return {"tree": rng.choice(("states", "states", "none")), "version": rng.randbytes(32)}


def register(rng: Random) -> list[Any]:
    """What is current of a tree, as peers send it (see ``trees/registers.py``)."""
    node, version = rng.randbytes(8).hex(), rng.randbytes(32)
    entry = [rng.randrange(1, 9), version, 1.7e9, "root", "evil", "/srv/git", "", 3, 100]
    return [[[node, 1, [entry]]], [[node, 1]]]


def runs(rng: Random) -> list[Any]:
    """What ran under a name, as peers send it (see ``once/runs.py``)."""
    node, state = rng.randbytes(8).hex(), rng.choice(("running", "done", "unfinished"))
    run = [node, 1, state, "evil", "root", "state.orchestrate", rng.random(), 0.0, 0, node, 1]
    return [[run], [[node, 1]]]


def commands() -> dict[str, Sample]:
    """Command of the control socket → what the runner may send."""

    def decision(rng: Random) -> dict[str, Any]:
        return {
            "minion": f"hostile{rng.randrange(2000)}",
            "fingerprint": rng.randbytes(4).hex(":"),
            "since": "1h",
            "test": True,
            "by": "root",
        }

    def nothing(rng: Random) -> dict[str, Any]:
        return {"test": True, "by": "root"}

    return {
        "status": nothing,
        "keys": lambda rng: {"glob": "hostile1?"},
        "peers": nothing,
        "history": lambda rng: {
            "glob": "hostile1?",
            "limit": 10,
            "since": "1h",
            "by_whom": "root",
        },
        "check": nothing,
        "lint": lambda rng: {"only": ["HA101"], "ignore": [], "by": "root"},
        "minion_config": lambda rng: {"type": rng.choice(("failover", "hot")), "alive": 30},
        "failover_safe": lambda rng: {"master": "m1", "glob": "hostile1*"},
        "proxy_config": lambda rng: {"kind": rng.choice(("haproxy", "nginx")), "listen": "443"},
        "sync": nothing,
        "resolve": decision,
        "restore": decision,
        "release": nothing,
        "refill": nothing,
        "left": nothing,
        "pause": lambda rng: {"by": "root"},
        "resume": lambda rng: {"by": "root"},
        "knowledge": lambda rng: {"after": rng.choice(("", rng.randbytes(20).hex()))},
        "leave": nothing,
        "renew": nothing,
        "remove_peer": lambda rng: {
            "name": rng.choice(("m9", "evil")),
            "since": rng.choice(("", "1h", "all")),
            "undo": rng.random() < 0.5,
            "test": True,
        },
        "rewrite": decision,
        "minions": lambda rng: {"glob": "hostile1?", "live": rng.random() < 0.1, "timeout": 0.1},
        "reachability": lambda rng: {"glob": "hostile1?", "timeout": 0.1},
        "where": lambda rng: {"glob": "hostile1?", "timeout": 0.1},
        "cmd": lambda rng: {
            "tgt": "hostile1?",
            "tgt_type": rng.choice(("glob", "list", "grain")),
            "fun": "test.arg",
            "arg": [rng.randrange(9)],
            "kwarg": {"n": rng.randrange(9)},
            "timeout": 0.1,
            "test": rng.random() < 0.9,
            "operation": rng.randbytes(16).hex(),
        },
        "cmd_more": lambda rng: {
            "jids": {"honest": f"{rng.randrange(10**20):020}"},
            "timeout": 0.1,
        },
        "cmd_progress": lambda rng: {"operation": rng.randbytes(16).hex()},
        "deploy": lambda rng: {"trees": ["states"], "test": True, "without": "honest"},
        "rollback": lambda rng: {"trees": [], "to": rng.choice(("", 1, "0a0a")), "test": True},
        "deploy_progress": lambda rng: {"job": rng.randbytes(8).hex()},
        "deployments": lambda rng: {"trees": ["states"]},
        "restart": lambda rng: {"name": rng.choice(("honest", "m9")), "begin": False},
        "leader": nothing,
        "once": lambda rng: {
            "function": "test.arg",
            "name": rng.choice(("", f"run{rng.randrange(600)}")),
            "within": rng.choice((0, "1h")),
            "pid": rng.choice((1, 2**22)),
        },
        "once_end": lambda rng: {
            "name": f"run{rng.randrange(600)}",
            "start": [rng.randbytes(8).hex(), 1],
            "state": rng.choice(("done", "failed")),
        },
        "lock": lock,
        "unlock": lock,
        "jobs": lambda rng: {"search": "test.*", "limit": 5},
        "lookup_jid": lambda rng: {"jid": f"{rng.randrange(10**20):020}"},
        "may_drain": lambda rng: {"name": "honest", "batch": 5, "timeout": 0.1},
        "drain": lambda rng: {"name": "honest", "batch": 5, "timeout": 0.1, "test": True},
        "rebalance": lambda rng: {"batch": 5, "timeout": 0.1, "test": True},
    }


def record(rng: Random, known: Known) -> list[Any]:
    """A record as peers send it (see ``sync/codec.py``)."""
    node, counter = rng.randbytes(8).hex(), rng.randrange(1, 1000)
    value = [node, counter, rng.choice(ALL_STATES), 1.7e9, "operator", "evil"]
    minion_id = f"hostile{rng.randrange(2000)}"
    return [minion_id, rng.choice(known.keys), [value], [[node, counter]]]


def join(rng: Random, known: Known) -> dict[str, Any]:
    """A request to join, with a guessed token or with the secret of the group."""
    joiner = known.stranger
    request: dict[str, Any] = {
        "invite": rng.randbytes(16).hex(),
        "name": joiner.name,
        "url": joiner.url,
        "group": known.group,
        "certificate": joiner.certificate,
        "mac": rng.randbytes(32),
    }
    if rng.random() < 0.5:
        nonce = rng.randbytes(NONCE)
        key = mac_key(known.secret)
        proof = standing_mac(key, known.server, joiner, known.group, nonce, False)
        request |= {"invite": STANDING, "nonce": nonce, "wants_key": False, "mac": proof}
    return request


def packed(payload: Mapping[str, Any]) -> bytes:
    """*payload* as a body; a broken body if msgpack cannot express it."""
    try:
        return wire.pack(payload)
    except (ValueError, TypeError, OverflowError, RecursionError, UnicodeEncodeError):
        return b"\x81\xa1a\xc1"
