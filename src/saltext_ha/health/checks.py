"""
The questions to the ports of one master. Each blocks, and returns what is wrong: an empty text is a
good answer. The timeout is for the whole question; only a salt-api that sends its answer very
slowly takes longer, and the caller does not wait for it.

A connection alone proves nothing: the kernel accepts it for an unresponsive process. So each port
must give an answer of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from saltext_ha.common.errors import reason_of
from saltext_ha.config.salt_api import Api, own_address
from saltext_ha.minion import binding, pings

# What a ZeroMQ socket sends to a new connection: ff, eight bytes, 7f.
GREETING = 10
MAX_ANSWER = 65536


def request_port(opts: Mapping[str, Any], timeout: float) -> str:
    """Send one request to a worker of the master, as a minion does."""
    if problem := _starting(opts, timeout):
        return problem
    address = own_address(opts.get("interface"))
    master = binding.SeenMaster(None, None, int(opts["ret_port"]), frozenset({address}))
    answer = pings.ping(opts, master, timeout)
    return "" if answer["answers"] else str(answer["note"])


def _starting(opts: Mapping[str, Any], timeout: float) -> str:
    """
    Why the master must not be asked yet; empty if it may be.

    Two requests before its workers listen, and a master of Salt 3008 over TCP may answer nobody any
    more: each makes its router connect to them, and the router sends by the last of these
    connections, but reads from the first (RequestClient.connect in salt/transport/tcp.py, 3008.4).
    """
    if opts.get("transport") != "tcp" or not opts.get("worker_pools_enabled"):
        return ""
    for pool in opts.get("worker_pools") or ():
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(FileNotFoundError):
            connection.settimeout(timeout)
            try:
                connection.connect(f"{opts['sock_dir']}/workers-{pool}.ipc")
            except ConnectionRefusedError:
                return "its workers do not listen yet"
    return ""


def publisher(opts: Mapping[str, Any], timeout: float) -> str:
    """Connect to the publish port; with ZeroMQ, the process behind it must greet."""
    end = time.monotonic() + timeout
    where = own_address(opts.get("interface")), int(opts["publish_port"])
    greets = opts.get("transport", "zeromq") == "zeromq" and not opts.get("ssl")
    try:
        with socket.create_connection(where, timeout) as connection:
            if not greets:
                return ""
            greeting = b""
            while len(greeting) < GREETING:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                part = connection.recv(GREETING - len(greeting))
                if not part:
                    return "hung up"
                greeting += part
    except OSError as exc:
        return _reason(exc)
    return "" if greeting[0] == 0xFF and greeting[9] == 0x7F else "does not speak ZeroMQ"


class NotAsked(Exception):
    """A question was not asked, so its answer is unknown; says why."""


class LoginRefused(Exception):
    """salt-api did not let the user in."""


def api_answers(api: Api, timeout: float) -> str:
    """
    Send salt-api an invalid call, which only its workers can refuse. ``GET /`` is answered even if
    nothing behind it works.

    rest_cherrypy logs an error for a call without credentials, and none for one with an impossible
    token; rest_tornado would pass such a token on to the master.

    Nothing secret is sent, so any certificate is accepted: salt-api shows the one it was started
    with, and a renewed file is not a failure.
    """
    order = {"client": "local", "tgt": "-", "fun": "test.ping"}
    if not api.tornado:
        order["token"] = "none"  # nosec B105
    status, _ = _post(api, "/run", order, timeout)
    if isinstance(status, str):
        return status
    return "" if status < 500 else f"answered HTTP {status}"


def api_login(api: Api, user: str, password: str, eauth: str, timeout: float) -> str:
    """
    Log in, which needs salt-api, a worker of the master and the authentication behind it.

    :raises NotAsked: the server may not be salt-api, and so got no password.
    :raises LoginRefused: it does not let the user in.
    """
    order = {"username": user, "password": password, "eauth": eauth}
    status, body = _post(api, "/login", order, timeout, only_ours=True)
    if isinstance(status, str):
        return status
    if status == 401:
        raise LoginRefused(f"does not let {user} in by eauth {eauth}")
    return "" if status == 200 and b'"token"' in body else f"answered HTTP {status}"


def run_runner(opts: Mapping[str, Any], timeout: float) -> str:
    """
    Have the master start the runner ``test.arg``, as ``salt-api`` would.

    :return: its job id; the event bus tells the result.
    :raises RuntimeError: it was not started; says why.
    """
    import salt.utils.master
    from salt.channel.client import ReqChannel

    if problem := _starting(opts, timeout):
        raise RuntimeError(problem)
    user = str(opts.get("user") or "root")
    address = own_address(opts.get("interface"))
    host = f"[{address}]" if ":" in address else address
    options = {**opts, "master_uri": f"tcp://{host}:{opts['ret_port']}"}
    key = salt.utils.master.get_master_key(user, options)
    order = {"cmd": "runner", "fun": "test.arg", "kwarg": {}, "user": user, "key": key}
    try:
        with ReqChannel.factory(options, crypt="clear", usage="master_call") as channel:
            answer = channel.send(order, tries=1, timeout=timeout)
    except Exception as exc:  # Salt's transports raise many kinds, and each means: no answer
        raise RuntimeError(reason_of(exc)) from None
    if isinstance(answer, Mapping) and isinstance(answer.get("jid"), str):
        return str(answer["jid"])
    error = answer.get("error") if isinstance(answer, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    raise RuntimeError(f"not started: {message or 'no answer of use'}")


def _post(
    api: Api, path: str, order: Mapping[str, Any], timeout: float, only_ours: bool = False
) -> tuple[int, bytes] | tuple[str, bytes]:
    try:
        connection = _connect(api, timeout)
        try:
            if only_ours and isinstance(connection, http.client.HTTPSConnection):
                _check_certificate(connection, api)
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request("POST", api.prefix + path, json.dumps(order), headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as exc:
        return _reason(exc), b""


def _connect(api: Api, timeout: float) -> http.client.HTTPConnection:
    if api.certificate is None:
        return http.client.HTTPConnection(api.host, api.port, timeout=timeout)
    # The certificate's names are for remote callers; for a login, _check_certificate compares the
    # certificate with the file.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(api.host, api.port, timeout=timeout, context=context)


def _check_certificate(connection: http.client.HTTPSConnection, api: Api) -> None:
    """
    The server must show exactly the configured certificate: another user of this machine could have
    taken the port, and would get the password.
    """
    assert api.certificate is not None
    connection.connect()
    shown = connection.sock.getpeercert(binary_form=True)
    try:
        pem = api.certificate.read_text(encoding="ascii", errors="replace")
        begin = pem.find("-----BEGIN CERTIFICATE-----")
        end = pem.find("-----END CERTIFICATE-----")
        own = ssl.PEM_cert_to_DER_cert(pem[begin : end + 25])
    except (OSError, ValueError) as exc:
        raise NotAsked(f"{api.certificate} cannot be read: {_reason(exc)}") from None
    if shown != own:
        raise NotAsked(
            f"it shows another certificate than {api.certificate}; if that was renewed, restart "
            "salt-api"
        )


def _reason(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "timed out"
    if isinstance(exc, ConnectionRefusedError):
        return "refused the connection"
    return reason_of(exc)
