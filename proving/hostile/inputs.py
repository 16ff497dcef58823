"""The inputs for each door: endless, the same again for the same seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from proving.hostile import payloads
from proving.hostile.payloads import Known, Sample
from proving.hostile.values import TEXTS, bent_bytes, junk, mutated
from saltext_ha.transport import wire
from saltext_ha.transport.listener import OPEN

# Without arguments a method has few inputs; a method that is slow would take most of the time.
WEIGHTS = {
    "consistency": 0.2,
    "facts": 0.2,
    "summary": 0.2,
    "horizon": 0.2,
    "signature": 0.2,
    "pause": 0.2,
    "status": 0.01,
    "check": 0.01,
    "lint": 0.01,
    "minion_reports": 0.005,
    "failover_safe": 0.005,
    "minion_config": 0.05,
    "sync": 0.01,
    "keys": 0.05,
    "knowledge": 0.05,
    "peers": 0.2,
    "release": 0.2,
    "refill": 0.2,
    "may_drain": 0.01,
    "drain": 0.01,
    "rebalance": 0.01,
    "reachability": 0.01,
    "minions": 0.05,
    "job_run": 0.05,
    "job_more": 0.05,
    "cmd_more": 0.05,
}


@dataclass(frozen=True)
class Input:
    """
    Bytes to send, and how many inputs they are. *whole*: an answer is due; otherwise the other side
    may wait for more, and is told that nothing comes.
    """

    data: bytes
    whole: bool = True
    count: int = 1


Source = Callable[[Random], Iterator[Input]]

# The beginning of a handshake: a record of type 22 with a ClientHello.
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x20" + bytes(32)
HELLO += bytes.fromhex("0006130113021303010000750000000e000c0000096c6f63616c686f7374")
HELLO_12 = HELLO.replace(bytes.fromhex("0006130113021303"), bytes.fromhex("0006c02bc02fc02c"))
PLAIN = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT 10.0.0.1:22 HTTP/1.1\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",  # SSL 2
)


def not_tls(rng: Random) -> Iterator[Input]:
    """Bytes where a TLS handshake should be, most of them nearly one."""
    while True:
        kind = rng.randrange(4)
        if kind == 0:
            data = rng.randbytes(rng.choice((1, 5, 100, 3000)))
        elif kind == 1:
            data = rng.choice(PLAIN)
        else:
            data = bent_bytes(rng, HELLO if kind == 2 else HELLO_12)
        yield Input(data, whole=False)


def anonymous(known: Known) -> Source:
    """After a handshake without a certificate: bytes, broken HTTP, all that strangers may send."""
    samples = payloads.methods(known)

    def source(rng: Random) -> Iterator[Input]:
        broken = http(known)(rng)
        while True:
            kind = rng.randrange(4)
            if kind == 0:
                yield next(broken)
                continue
            method = rng.choice(OPEN)
            payload = samples[method](rng)
            if kind == 1:
                yield Input(post(method, payloads.packed(payload)))
            elif kind == 2:
                yield Input(post(method, payloads.packed(mutated(rng, payload))))
            else:
                yield Input(post(method, bent_bytes(rng, wire.pack(payload))))

    return source


def http(known: Known) -> Source:
    """Broken framing, and everything in HTTP besides the one kind of request that peers use."""
    body = wire.pack({"tree": "records", "root": bytes(16)})

    def source(rng: Random) -> Iterator[Input]:
        while True:
            kind = rng.randrange(8)
            if kind == 0:
                yield Input(bent_bytes(rng, post("digest", body)), whole=False)
            elif kind == 1:
                yield Input(_framing(rng, body), whole=False)
            elif kind == 2:
                name = rng.choice(("X", "Host", "Cookie", "Content-Type", wire.PROTOCOL_HEADER))
                value = rng.choice(("", "1" * 9000, "\0", "é", "a\r\n b", "1, 1", "\x7f", "99"))
                yield Input(post("digest", body, {name: value}), whole=False)
            elif kind == 3:
                path = rng.choice(TEXTS)[:5000].encode("utf-8", "surrogateescape")
                yield Input(post("digest", body).replace(b"/v1/digest", path, 1), whole=False)
            else:
                # Well framed, and still to be refused; the connection stays.
                yield Input(_refused(rng, body))

    return source


def _framing(rng: Random, body: bytes) -> bytes:
    lengths = ("-1", "+5", "0x10", "9" * 30, "5, 6", "1e3", "", "８", str(len(body) + 1), "0")
    shown = rng.choice(lengths)
    kind = rng.randrange(6)
    if kind == 0:
        return post("digest", body, {"Content-Length": shown})
    if kind == 1:
        return post("digest", body, {"Transfer-Encoding": rng.choice(("chunked", "x", "gzip"))})
    if kind == 2:
        chunks = (b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffff1\r\n", b"5;a=b\r\nhel")
        head = post("digest", b"", {"Transfer-Encoding": "chunked"}, length=False)
        return head + rng.choice(chunks)
    if kind == 3:
        return post("digest", body).replace(b"\r\n", rng.choice((b"\n", b"\r", b"\r\n\r\n")))
    if kind == 4:
        extra = {f"X-{n}": "y" * 60 for n in range(rng.choice((50, 600, 3000)))}
        return post("digest", body, extra)
    return post("digest", body).replace(b"HTTP/1.1", rng.choice((b"HTTP/0.9", b"HTTP/9", b"")))


def _refused(rng: Random, body: bytes) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        verb = rng.choice((b"GET", b"PUT", b"DELETE", b"TRACE", b"OPTIONS", b"PATCH"))
        return post("digest", body).replace(b"POST", verb, 1)
    if kind == 1:
        return post(rng.choice(("", "Digest", "digest/", "%64igest", "a" * 500, "_push")), body)
    if kind == 2:
        return post(
            "digest", body, {"Content-Type": rng.choice(("text/plain", "application/json"))}
        )
    if kind == 3:
        return post("digest", body, {wire.PROTOCOL_HEADER: rng.choice(("0", "2", "-1", "1.0"))})
    return post("digest", body, {"Content-Encoding": rng.choice(("gzip", "br", "identity"))})


def calls(samples: Mapping[str, Sample], names: list[str]) -> Source:
    """Calls of *names*, whose payloads are wrong by type, range, depth or size."""

    def source(rng: Random) -> Iterator[Input]:
        while True:
            name = rng.choice(names)
            if rng.random() > WEIGHTS.get(name, 1.0):
                continue
            sample = samples[name](rng) if name in samples else {"anything": junk(rng)}
            kind = rng.randrange(10)
            if kind == 0 and name not in ("consistency", "facts"):
                body = payloads.packed(sample)
            elif kind == 1:
                body = bent_bytes(rng, payloads.packed(sample))
            else:
                bent = mutated(rng, sample)
                body = payloads.packed(bent if isinstance(bent, dict) else {"x": bent})
            yield Input(post(name, body))

    return source


def records(known: Known) -> Source:
    """Pushes of records that are wrong somewhere, and of some that are right."""

    def source(rng: Random) -> Iterator[Input]:
        while True:
            some = [payloads.record(rng, known) for _ in range(100)]
            bent = [mutated(rng, one) if rng.random() < 0.95 else one for one in some]
            yield Input(post("push", payloads.packed({"records": bent})), count=100)

    return source


def control(samples: Mapping[str, Sample], names: list[str], test: bool = True) -> Source:
    """
    Requests of a process of the master's own user to the control socket.

    :param test: carry nothing out, so that the engine can be attacked further.
    """

    def source(rng: Random) -> Iterator[Input]:
        while True:
            name = rng.choice(names)
            if rng.random() > WEIGHTS.get(name, 1.0):
                continue
            sample = samples[name](rng) if name in samples else {"test": True}
            bent = mutated(rng, sample)
            if isinstance(bent, dict):
                bent["test"] = test
            body = _json(bent)
            # This user may do anything: commands by which the engine would leave keep their "test".
            if rng.random() < 0.2 and (not test or name not in ("leave", "remove_peer", "renew")):
                body = bent_bytes(rng, body)[:200_000]
            if rng.random() < 0.05:
                yield Input(rng.randbytes(50) + b"\r\n\r\n", whole=False)
            yield Input(
                f"POST /{name} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )

    return source


PAGES = [
    *("/", "/live", "/ready", "/status.json", "/api/saltstack/status", "/minions.json"),
    *("/metrics", "/openapi.json", "/page.js", "/page.css", "/icon.svg"),
]
# Its answer has no end, so it has a flood of its own (:mod:`.floods`).
ENDLESS = "/events"
HOSTS = ("127.0.0.1", "localhost", "localhost:80", "[::1]", "evil.example.com", "", "a b", "\x7f")


def status_with(token: str) -> Source:
    """Requests to a status listener that takes *token*, which some of them have."""

    def source(rng: Random) -> Iterator[Input]:
        shown = b"Authorization: Bearer %b\r\n" % token.encode()
        for one in status(rng):
            if rng.random() < 0.5:
                head, end, rest = one.data.partition(b"\r\n")
                yield Input(head + end + (shown if end else b"") + rest, one.whole)
            else:
                yield one

    return source


def status(rng: Random) -> Iterator[Input]:
    """Requests to the status listener, from broken framing to odd questions."""
    while True:
        path = rng.choice(PAGES).encode()
        kind = rng.randrange(6)
        host = "127.0.0.1" if rng.random() < 0.7 else rng.choice(HOSTS)
        head = f"Host: {host}\r\n".encode("utf-8", "replace")
        if kind == 0:
            request = b"GET %b HTTP/1.1\r\n%b\r\n" % (path, head)
            yield Input(bent_bytes(rng, request), whole=False)
        elif kind == 1:
            yield Input(_framing(rng, b"x").replace(b"/v1/digest", path, 1), whole=False)
        elif kind == 2:
            odd = rng.choice(TEXTS)[:5000].encode("utf-8", "surrogateescape")
            yield Input(b"GET %b?glob=%b HTTP/1.1\r\n%b\r\n" % (path, odd, head), whole=False)
        elif kind == 3:
            given = rng.choice(
                (b"[", b"%00", b"*" * 3000, b"[!" * 500, b"%ff", b"web*&glob=x", b"")
            )
            limit = rng.choice((b"-1", b"1e9", b"9" * 30, b"0", b"x", b"100"))
            query = b"glob=%b&limit=%b" % (given, limit)
            yield Input(b"GET /minions.json?%b HTTP/1.1\r\n%b\r\n" % (query, head))
        elif kind == 4:
            verb = rng.choice((b"POST", b"PUT", b"DELETE", b"TRACE", b"OPTIONS", b"PATCH"))
            yield Input(b"%b %b HTTP/1.1\r\n%bContent-Length: 0\r\n\r\n" % (verb, path, head))
        else:
            token = rng.choice(
                ("Bearer x", "Basic eDp4", "Basic \xff", "Digest", "Bearer " + "y" * 999)
            )
            extra = f"Authorization: {token}\r\n".encode()
            yield Input(b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path, head, extra))


def _json(value: object) -> bytes:
    def shown(value: object) -> str:
        return value.hex() if isinstance(value, bytes) else repr(value)

    try:
        return json.dumps(value, default=shown).encode()
    except (RecursionError, ValueError):
        return b"[" * 5000


def post(
    method: str, body: bytes, headers: Mapping[str, str] | None = None, length: bool = True
) -> bytes:
    """A call as peers make it; *headers* replace its own."""
    shown = {
        "Host": "x",
        "Content-Type": wire.CONTENT_TYPE,
        wire.PROTOCOL_HEADER: str(wire.PROTOCOL),
        **({"Content-Length": str(len(body))} if length else {}),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    return f"POST /v1/{method} HTTP/1.1\r\n{head}\r\n".encode() + body
