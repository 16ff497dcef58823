"""
Attacks by number and by time: idle connections, slow ones, large ones, many at one token, guesses.

Where the honest peer does not go, another honest caller works beside the attack (:func:`_beside`).
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from lab import key_folders
from lab.wait import wait_for
from proving.hostile import payloads
from proving.hostile.attack import Connect, Tally, over_tcp, over_tls, over_unix
from proving.hostile.inputs import ENDLESS, post
from proving.hostile.scene import Scene
from saltext_ha.common.errors import HaError
from saltext_ha.membership.invites import Invites
from saltext_ha.membership.token import mac_key, request_mac
from saltext_ha.transport import tls, wire

Flood = Callable[[], Tally]
THREADS = 50
LARGE = "8 MB that unpack to more"
AGAIN = 0.1
ARRIVED = 30.0  # seconds; no event bus tells this engine where to look
ELSEWHERE = "127.0.0.67"  # the address of an honest caller; the attacker has another
COMMAND = b"POST /keys HTTP/1.1\r\nHost: x\r\n"
PAGE = b"GET /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def all_of(scene: Scene, short: bool) -> Iterator[tuple[str, Flood]]:
    """Name and work of each attack."""
    port = scene.target.place.port
    bare, stranger = over_tcp(port), over_tls(port, tls.joining_context())
    peer = over_tls(port, scene.attacker)
    number, seconds = (100, 1.0) if short else (5000, 20.0)
    yield "idle, no handshake", lambda: _idle(bare, number, seconds)
    yield "idle, no certificate", lambda: _idle(stranger, number // 10, seconds)
    yield "idle, as a peer", lambda: _idle(peer, number // 10, seconds)
    yield "a byte at a time", lambda: _slow(stranger, post("join", b"x" * 100), 30, seconds)
    yield "handshakes", lambda: _handshakes(bare, stranger, seconds)
    yield "oversize bodies", lambda: _oversize(peer, 4 if short else 200)
    yield LARGE, lambda: _bombs(peer, 6 if short else 64)
    yield f"{THREADS} threads, one token", lambda: _one_token(scene)
    yield "guessed tokens", lambda: _guessed_tokens(scene, seconds)
    yield from _on_the_status_listener(scene, number, seconds)
    yield from _on_the_control_socket(scene, number, seconds)
    yield "strangers' knocks", lambda: _knocks(scene, 4 * number, seconds)


def _on_the_status_listener(
    scene: Scene, number: int, seconds: float
) -> Iterator[tuple[str, Flood]]:
    settings = scene.target.place.config.status
    assert settings is not None
    connect = over_tcp(settings.port)
    there = over_tcp(settings.port, ELSEWHERE)

    def browser() -> None:
        _ask(there, PAGE + b"\r\n")

    def beside(flood: Flood) -> Flood:
        return lambda: _beside("a browser", browser, flood)

    follow = PAGE.replace(b"/status.json", ENDLESS.encode()) + b"\r\n"
    yield "status: idle", beside(lambda: _idle(connect, number, seconds))
    yield "status: followers", beside(lambda: _idle(connect, number // 10, seconds, follow))
    yield "status: a byte at a time", beside(lambda: _slow(connect, PAGE, 30, seconds))
    yield "status: oversize", beside(lambda: _endless(connect, PAGE, number // 25))


def _on_the_control_socket(
    scene: Scene, number: int, seconds: float
) -> Iterator[tuple[str, Flood]]:
    place = scene.target.place
    connect = over_unix(str(place.config.control_socket))

    def runner() -> None:
        scene.target.control("keys", {"glob": "nothing*"})

    def beside(flood: Flood) -> Flood:
        return lambda: _beside("a runner", runner, flood)

    yield "control: idle", beside(lambda: _idle(connect, number, seconds))
    yield "control: a byte at a time", beside(lambda: _slow(connect, COMMAND, 30, seconds))
    yield "control: oversize", beside(lambda: _endless(connect, COMMAND, number // 25))


def _knocks(scene: Scene, number: int, seconds: float) -> Tally:
    """
    Very many minions knock, under ids of 255 bytes. Meanwhile an operator accepts and deletes keys,
    which have to reach the other master; that master hears of only some of the strangers.
    """
    here = scene.target.place.pki_dir
    there = scene.target.place.root / "honest" / "pki"
    serial = itertools.count()

    def operator() -> None:
        name = f"operated{next(serial)}"
        try:
            key_folders.plant(here, [name], seed=98)
            wait_for((there / key_folders.ACCEPTED / name).exists, ARRIVED, "accepted there")
            (here / key_folders.ACCEPTED / name).unlink()
            gone = there / key_folders.ACCEPTED / name
            wait_for(lambda: not gone.exists(), ARRIVED, "deleted there")
        except TimeoutError as exc:
            raise OSError(str(exc)) from None

    def flood() -> Tally:
        tally, began = Tally(inputs=number), time.monotonic()
        ids = [f"{'x' * 245}{serial:010}" for serial in range(number)]
        key_folders.plant(here, ids, key_folders.PENDING, seed=97)
        rest(seconds)
        tally.accepted = key_folders.count(there, key_folders.PENDING)
        tally.seconds = time.monotonic() - began
        if tally.accepted > scene.target.place.config.pending_limit:
            tally.crashes.append(f"{tally.accepted} strangers came to another master")
        return tally

    return _beside("an operator", operator, flood)


def _beside(who: str, ask: Callable[[], None], flood: Flood) -> Tally:
    """
    Do *flood*; once it has begun, an honest caller asks again and again.

    :param ask: raises OSError or HaError when it is not served; that counts as a crash.
    """
    times: list[float] = []
    failed: list[str] = []
    over = threading.Event()

    def run() -> None:
        while not over.wait(AGAIN):
            began = time.perf_counter()
            try:
                ask()
                times.append((time.perf_counter() - began) * 1000)
            except (OSError, HaError) as exc:
                failed.append(str(exc) or type(exc).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        tally = flood()
    finally:
        over.set()
        thread.join()
    tally.crashes += [f"{who} was not served: {reason}" for reason in failed]
    if times:
        shown = f"median {median(times):.1f} ms, longest {max(times):.0f} ms"
        tally.notes.append(f"{who} meanwhile: {len(times)} answers, {shown}")
    return tally


def _ask(connect: Connect, request: bytes) -> bytes:
    """
    The answer to *request*, which must be 200.

    :raises OSError: it is another one, or missing.
    """
    with connect() as one:
        one.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = one.recv(65536)
            if not more:
                raise ConnectionResetError("hung up")
            answer += more
    if answer[9:12] != b"200":
        raise OSError(f"answered {answer[:300]!r}")
    return answer


def rest(seconds: float) -> None:
    """Let the honest peer work undisturbed, for comparison."""
    threading.Event().wait(seconds)


def _idle(connect: Connect, number: int, seconds: float, first: bytes = b"") -> Tally:
    """
    *number* connections that do nothing; the engine ends those that are too many.

    :param first: what they send first; the answer is not read.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    tally, began = Tally(), time.monotonic()
    held: list[socket.socket] = []
    try:
        for _ in range(number):
            tally.inputs += 1
            try:
                held.append(connect())
                held[-1].sendall(first)
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
        while connection.recv(65536):
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _slow(connect: Connect, data: bytes, number: int, seconds: float) -> Tally:
    """Slow loris: requests that arrive by one byte at a time, *number* of them side by side."""
    tally, began = Tally(), time.monotonic()

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
    """New handshakes as fast as possible, most of them left unfinished."""
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


def _endless(connect: Connect, head: bytes, number: int) -> Tally:
    """Requests that do not end: a body over any limit, a header, and very many headers."""
    tally, began = Tally(), time.monotonic()
    more = {
        "body": (b"Content-Length: 99999999999\r\n\r\n", bytes(0x100000)),
        "chunks": (
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"100000\r\n" + bytes(0x100000) + b"\r\n",
        ),
        "header": (b"X: ", b"x" * 0x100000),
        "headers": (b"", b"X: x\r\n" * 0x20000),
    }
    kinds = list(more)
    for count in range(number):
        tally.inputs += 1
        first, rest = more[kinds[count % len(kinds)]]
        try:
            with connect() as one:
                one.settimeout(20)
                with contextlib.suppress(OSError):  # the engine hangs up, or first says why
                    one.sendall(head + first)
                    for _ in range(64):
                        one.sendall(rest)
                tally.refused[one.recv(65536)[9:12].decode() or "hung up"] += 1
        except OSError:
            tally.refused["hung up"] += 1
    tally.seconds = time.monotonic() - began
    return tally


def _bombs(connect: Connect, number: int) -> Tally:
    """Bodies that are small compared with what they unpack to, or ask for."""
    size = wire.MAX_BODY
    lists = b"\x81\xa7records\xdd" + (999_999).to_bytes(4, "big") + b"\x90" * 999_999
    nested = (
        b"\x81\xa7records\x98" + (b"\xdd" + (990_000).to_bytes(4, "big") + b"\x90" * 990_000) * 8
    )
    branches = wire.pack({"tree": "records", "branches": [7] * 999_000})
    buckets = wire.pack({"buckets": [7] * 999_000, "after": [-1, ""]})
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
    """A token that many know: all try it at once, each under another name."""
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
                break  # otherwise there are more strangers than the engine keeps; try again
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


def _guessed_tokens(scene: Scene, seconds: float) -> Tally:
    """Invitations that do not exist, as fast as possible; an honest joiner asks from elsewhere."""
    known, port = scene.known, scene.target.place.port
    secret = b"h" * 32
    made = Invites(scene.target.place.config.state_dir).create(
        mac_key(secret), known.group, 600, False
    )
    joiner = known.stranger
    asked = (known.server, joiner.fingerprint, joiner.name, joiner.url, known.group)
    request: dict[str, Any] = {
        "name": joiner.name,
        "url": joiner.url,
        "group": known.group,
        "certificate": joiner.certificate,
    }
    proof = request_mac(mac_key(secret), *asked, b"")
    plan = post("plan", payloads.packed(request | {"invite": made.id, "mac": proof, "after": b""}))
    there = over_tls(port, tls.joining_context(), ELSEWHERE)
    connect = over_tls(port, tls.joining_context())

    def joiner_asks() -> None:
        _ask(there, plan)

    def flood() -> Tally:
        tally, began = Tally(), time.monotonic()
        answers: list[bytes] = []

        def guess() -> None:
            while time.monotonic() - began < seconds:
                tried = {"invite": secrets.token_hex(16), "mac": secrets.token_bytes(32)}
                answer = b""
                with contextlib.suppress(OSError), connect() as one:
                    one.sendall(post("join", payloads.packed(request | tried)))
                    answer = one.recv(65536)
                answers.append(answer)

        _in_threads(guess, 8)
        for answer in answers:
            if answer[9:12] == b"200":
                tally.accepted += 1
                tally.crashes.append("a guess was right")
            elif not answer:
                tally.refused["hung up"] += 1
            else:
                late = b"too many failed joins" in answer
                tally.refused["not looked at any more" if late else "looked at"] += 1
        tally.inputs = len(answers)
        tally.seconds = time.monotonic() - began
        return tally

    return _beside("a joiner", joiner_asks, flood)


def _in_threads(work: Callable[[], None], number: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
