"""Attacks by number and by time: idle connections, slow ones, large ones, many at one token."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hostile import payloads
from hostile.attack import Connect, Tally, over_tcp, over_tls
from hostile.inputs import post
from saltext_ha.peering import tls, wire
from saltext_ha.peering.invites import Invites
from saltext_ha.peering.token import mac_key, request_mac

if TYPE_CHECKING:
    from hostile.run import Scene

Flood = Callable[[], Tally]
THREADS = 50


def all_of(scene: Scene, short: bool) -> Iterator[tuple[str, Flood]]:
    """Name and work of each."""
    port = scene.target.place.port
    bare, stranger = over_tcp(port), over_tls(port, tls.joining_context())
    peer = over_tls(port, scene.attacker)
    number, seconds = (100, 1.0) if short else (5000, 20.0)
    yield "idle, no handshake", lambda: _idle(bare, number, seconds)
    yield "idle, no certificate", lambda: _idle(stranger, number // 10, seconds)
    yield "idle, as a peer", lambda: _idle(peer, number // 10, seconds)
    yield "a byte at a time", lambda: _slow(stranger, 30, seconds)
    yield "handshakes", lambda: _handshakes(bare, stranger, seconds)
    yield "oversize bodies", lambda: _oversize(peer, 4 if short else 200)
    yield "8 MB that unpack to more", lambda: _bombs(peer, 6 if short else 64)
    yield f"{THREADS} threads, one token", lambda: _one_token(scene)


def rest(seconds: float) -> None:
    """Let the honest peer work undisturbed, to compare with."""
    threading.Event().wait(seconds)


def _idle(connect: Connect, number: int, seconds: float) -> Tally:
    """*number* connections that do nothing; the engine ends those that are too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    tally, began = Tally(), time.monotonic()
    held: list[socket.socket] = []
    try:
        for _ in range(number):
            tally.inputs += 1
            try:
                held.append(connect())
            except OSError:
                tally.refused["not let in"] += 1
        rest(max(0.0, seconds - (time.monotonic() - began)))
    finally:
        for one in held:
            if _is_over(one):
                tally.refused["hung up on"] += 1
            one.close()
    tally.seconds = time.monotonic() - began
    return tally


def _is_over(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _slow(connect: Connect, number: int, seconds: float) -> Tally:
    """Slow loris: requests that arrive by one byte at a time."""
    tally, began = Tally(), time.monotonic()
    data = post("join", b"x" * 100)

    def drip() -> None:
        while time.monotonic() - began < seconds:
            tally.inputs += 1
            try:
                with connect() as one:
                    for byte in data:
                        one.sendall(bytes([byte]))
                        if time.monotonic() - began > seconds:
                            return
                        rest(0.25)
            except OSError:
                tally.refused["hung up on"] += 1

    _in_threads(drip, number)
    tally.seconds = time.monotonic() - began
    return tally


def _handshakes(bare: Connect, stranger: Connect, seconds: float) -> Tally:
    """New handshakes as fast as they go, most of them left unfinished."""
    tally, began = Tally(), time.monotonic()

    def run() -> None:
        while time.monotonic() - began < seconds:
            tally.inputs += 1
            with contextlib.suppress(OSError):
                if tally.inputs % 4 == 0:
                    stranger().close()
                else:
                    one = bare()
                    one.sendall(b"\x16\x03\x01")
                    one.close()

    _in_threads(run, 6)
    tally.seconds = time.monotonic() - began
    return tally


def _oversize(connect: Connect, number: int) -> Tally:
    """Bodies over the limit: announced, and not announced."""
    tally, began = Tally(), time.monotonic()
    length = {"Content-Length": str(2 * wire.MAX_BODY)}
    chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
    for count in range(number):
        tally.inputs += 1
        try:
            with connect() as one:
                if count % 2:
                    one.sendall(post("push", b"", length))
                else:
                    head = {"Transfer-Encoding": "chunked"}
                    one.sendall(post("push", b"", head, length=False))
                    for _ in range(20):
                        one.sendall(chunk)
                tally.refused[one.recv(65536)[9:12].decode() or "hung up"] += 1
        except OSError:
            tally.refused["hung up"] += 1
    tally.seconds = time.monotonic() - began
    return tally


def _bombs(connect: Connect, number: int) -> Tally:
    """Bodies that are small beside what they unpack to, or what they ask for."""
    size = wire.MAX_BODY
    lists = b"\x81\xa7records\xdd" + (999_999).to_bytes(4, "big") + b"\x90" * 999_999
    nested = (
        b"\x81\xa7records\x98" + (b"\xdd" + (990_000).to_bytes(4, "big") + b"\x90" * 990_000) * 8
    )
    branches = wire.pack({"tree": "records", "branches": [7] * 999_000})
    buckets = wire.pack({"buckets": [7] * 999_000})
    texts = wire.pack({"ids": ["a" * 100] * (size // 110)})
    bodies = [
        ("push", lists),
        ("push", nested[:size]),
        ("branches", branches),
        ("placed", buckets),
        ("keys", texts),
        ("digest", b"\xdf\x7f\xff\xff\xff"),
    ]
    tally, began = Tally(), time.monotonic()

    def send(count: int) -> None:
        method, body = bodies[count % len(bodies)]
        try:
            with connect() as one:
                one.settimeout(60)
                one.sendall(post(method, body))
                status = one.recv(65536)[9:12].decode()
        except OSError:
            status = "hung up"
        tally.inputs += 1
        if status == "200":
            tally.accepted += 1
        else:
            tally.refused[status] += 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(number)))
    tally.seconds = time.monotonic() - began
    return tally


def _one_token(scene: Scene) -> Tally:
    """A token that got about: all of them try it at once, each under another name."""
    state, known = scene.target.place.config.state_dir, scene.known
    secret = b"s" * 32
    made = Invites(state).create(mac_key(secret), known.group, 600, False)
    connect = over_tls(scene.target.place.port, tls.joining_context())
    tally, began = Tally(), time.monotonic()

    def join(number: int) -> None:
        joiner = known.stranger
        name = f"thief{number}"
        proof = request_mac(
            mac_key(secret), known.server, joiner.fingerprint, name, joiner.url, known.group
        )
        payload = {
            "invite": made.id,
            "name": name,
            "url": joiner.url,
            "group": known.group,
            "certificate": joiner.certificate,
            "mac": proof,
        }
        status = "hung up"
        for _ in range(20):
            with contextlib.suppress(OSError), connect() as one:
                one.sendall(post("join", payloads.packed(payload)))
                status = one.recv(65536)[9:12].decode() or "hung up"
            if status != "hung up":
                break  # else: more than the engine keeps of strangers; try again
        tally.inputs += 1
        if status == "200":
            tally.accepted += 1
        else:
            tally.refused[status] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(join, range(THREADS)))
    if tally.accepted > 1:
        tally.crashes.append(f"{tally.accepted} joined by one token")
    tally.seconds = time.monotonic() - began
    return tally


def _in_threads(work: Callable[[], None], number: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
