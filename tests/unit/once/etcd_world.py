"""A model of an etcd cluster: keys, leases, what it answers as JSON, and the ways to it."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.config.leader import LeaderSettings
from saltext_ha.once.etcd_client import NOT_FOUND, EtcdClient
from tests.unit.once.virtual_time import VirtualLoop

ENDPOINTS = ("http://e1:2379", "http://e2:2379", "http://e3:2379")
LOOKS = 0.5  # seconds between two looks of etcd for leases that have ended
ELECTION = 1.2  # seconds that one takes them at most
LATEST = 12.0
"""Seconds after which a request that was lost on the way may still arrive."""
OUTSIDE = Context()
"""What belongs to no process."""

Answer = tuple[int, dict[str, Any]]


@dataclass
class Lease:
    ttl: int
    ends: float
    revoked_at: float


@dataclass
class Key:
    value: str
    created: int
    modified: int
    lease: str


@dataclass
class Ways:
    """How good the ways to etcd are: of a message how likely it is that this befalls it."""

    lost: float = 0.0
    late: float = 0.0
    answer_lost: float = 0.0
    answer_late: float = 0.0


GOOD = Ways()


@dataclass
class Etcd:
    """
    The cluster, as its members agree.

    :param rate: of its clock, by which leases end.
    :ivar hung: members that answer nothing now; what they are asked, they do later, if at all.
    :ivar off: members that refuse connections.
    """

    loop: VirtualLoop
    random: random.Random
    rate: float
    revision: int = 1
    keys: dict[str, Key] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    ways: dict[str, Ways] = field(default_factory=dict)
    """Those of a master; without, they are good."""
    hung: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    later: list[Callable[[], None]] = field(default_factory=list)
    under_way: int = 0
    """Requests and answers."""
    number: int = 0
    electing: float = 0.0
    """Until when the members elect a leader of theirs."""
    sent: Callable[[str, str], None] = lambda name, path: None
    """Is told that a master has sent a request."""

    @property
    def quorum(self) -> bool:
        return 2 * len(self.hung | self.off) < len(ENDPOINTS)

    @property
    def now(self) -> float:
        return self.rate * self.loop.time()

    def change(self, hung: set[str], off: set[str]) -> None:
        """Members hang or end from now on, and go on and begin; their leader may be another one."""
        self.end_leases()
        self.hung, self.off = hung, off
        if self.quorum:
            for lease in self.leases.values():
                self.prolong(lease)
            self.electing = self.loop.time() + self.random.uniform(0, ELECTION)
            later, self.later = self.later, []
            for each in later:
                if self.random.random() < 0.8:
                    self.after(self.random.uniform(0, ELECTION), each)

    def prolong(self, lease: Lease) -> None:
        lease.ends = self.now + lease.ttl
        lease.revoked_at = lease.ends + self.random.choice([0.0, 0.0, LOOKS])

    def end_leases(self) -> None:
        """Only members that have a quorum do that."""
        if self.quorum:
            for name in [name for name, each in self.leases.items() if each.revoked_at <= self.now]:
                self.revoke(name)

    def revoke(self, name: str) -> None:
        del self.leases[name]
        self.revision += 1
        self.keys = {path: key for path, key in self.keys.items() if key.lease != name}

    # -- the ways

    async def ask(self, name: str, endpoint: str, path: str, payload: Mapping[str, Any]) -> Answer:
        """What the member *endpoint* answers to the master *name*."""
        answered: asyncio.Future[Answer] = self.loop.create_future()
        if endpoint in self.off:
            await asyncio.sleep(0.002)
            raise ConnectionRefusedError
        ways, chance = self.ways.get(name, GOOD), self.random.random()

        def answer(found: Answer) -> None:
            if not answered.done():
                answered.set_result(found)

        def arrive() -> None:
            if endpoint in self.hung or endpoint in self.off or not self.quorum:
                self.later.append(arrive)
                return
            if (left := self.electing - self.loop.time()) > 0:
                self.after(left, arrive)
                return
            self.end_leases()
            found = self.do(path, payload)
            if found is None:
                self.after(0.05, arrive)
            elif (chance := self.random.random()) < ways.answer_late:
                self.after(self.random.uniform(0, LATEST), answer, found)
            elif chance >= ways.answer_late + ways.answer_lost:
                self.after(self.random.uniform(0.001, 0.02), answer, found)

        if chance < ways.late:
            self.after(self.random.uniform(0, LATEST), arrive)
        elif chance >= ways.late + ways.lost:
            self.after(self.random.uniform(0.001, 0.02), arrive)
        self.sent(name, path)
        return await answered

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        def now() -> None:
            self.under_way -= 1
            do(*args)

        self.under_way += 1
        self.loop.call_later(seconds, now, context=OUTSIDE)

    # -- what it does

    def do(self, path: str, payload: Mapping[str, Any]) -> Answer | None:
        """What it answers, as its JSON gateway does; None: it does not know yet."""
        kind, _, verb = path.partition("/")
        found = getattr(self, f"{kind}_{verb}")(payload)
        return found if found is None or isinstance(found, tuple) else (200, found)

    @property
    def header(self) -> dict[str, Any]:
        return {"header": {"revision": str(self.revision)}}

    def lease_grant(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.number += 1
        lease = self.leases[str(self.number)] = Lease(payload["TTL"], 0.0, 0.0)
        self.prolong(lease)
        return {**self.header, "ID": str(self.number), "TTL": str(lease.ttl)}

    def lease_keepalive(self, payload: Mapping[str, Any]) -> Answer | dict[str, Any] | None:
        lease = self.leases.get(payload["ID"])
        if lease is None:
            return {"result": {**self.header, "ID": payload["ID"]}}
        if lease.ends <= self.now:
            return None  # it is about to be revoked
        self.prolong(lease)
        return {"result": {**self.header, "ID": payload["ID"], "TTL": str(lease.ttl)}}

    def lease_revoke(self, payload: Mapping[str, Any]) -> Answer | dict[str, Any]:
        if payload["ID"] not in self.leases:
            return 404, {"error": "requested lease not found", "code": NOT_FOUND}
        self.revoke(payload["ID"])
        return self.header

    def kv_range(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        key = self.keys.get(_text(payload["key"]))
        if key is None:
            return self.header
        row = {
            "value": base64.b64encode(key.value.encode()).decode(),
            "create_revision": str(key.created),
            "mod_revision": str(key.modified),
        }
        return {**self.header, "kvs": [row]}

    def kv_txn(self, payload: Mapping[str, Any]) -> Answer | dict[str, Any]:
        if all(self.holds(each) for each in payload["compare"]):
            for each in payload["success"]:
                put = each["request_put"]
                if (lease := put.get("lease", "")) and lease not in self.leases:
                    return 404, {"error": "requested lease not found", "code": NOT_FOUND}
                self.revision += 1
                name = _text(put["key"])
                created = self.keys[name].created if name in self.keys else self.revision
                self.keys[name] = Key(_text(put["value"]), created, self.revision, lease)
            return {**self.header, "succeeded": True}
        found = [
            {"response_range": self.kv_range(each["request_range"])}
            for each in payload.get("failure", [])
        ]
        return {**self.header, "responses": found}

    def holds(self, compare: Mapping[str, Any]) -> bool:
        key = self.keys.get(_text(compare["key"]))
        if compare["target"] == "CREATE":
            return (key.created if key else 0) == compare["create_revision"]
        return (key.modified if key else 0) == compare["mod_revision"]


class ModelClient(EtcdClient):
    """The client, up to what it sends."""

    def __init__(self, etcd: Etcd, name: str, settings: LeaderSettings, timeout: float) -> None:
        super().__init__(settings, timeout)
        self._etcd, self._name = etcd, name

    async def _post(self, endpoint: str, path: str, payload: Mapping[str, Any]) -> Answer:
        return await asyncio.wait_for(
            self._etcd.ask(self._name, endpoint, path, payload), self._timeout
        )


def _text(value: str) -> str:
    return base64.b64decode(value).decode()
