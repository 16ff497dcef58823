"""The runner's way to the engine of the same master: JSON over HTTP on a unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.errors import EngineUnavailable, HaError


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With a timeout of Python's, connecting fails at once where others wait to be let in.
        seconds, rest = divmod(self.timeout or 0.0, 1)
        patience = struct.pack("ll", int(seconds), int(rest * 1e6))
        with contextlib.suppress(OSError):  # a system whose times have another size
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self.sock.connect(str(self._path))
        self.sock.settimeout(self.timeout)


def request(
    path: Path, command: str, payload: Mapping[str, Any] | None = None, timeout: float = 60.0
) -> dict[str, Any]:
    """
    Have the engine that listens on *path* carry out *command*.

    :param timeout: seconds to wait for the answer.
    :return: the engine's answer, plain data.
    :raises EngineUnavailable: no engine answers there.
    :raises HaError: the engine refused or failed; the message is its reason.
    """
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("POST", f"/{command}", json.dumps(payload or {}))
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (FileNotFoundError, ConnectionRefusedError):
        raise EngineUnavailable(
            "the ha engine of this master is not running: is salt-master started, and does its "
            "configuration have  engines: [ha: {}]  ?  Its log says why when it refused to start"
        ) from None
    except PermissionError:
        raise EngineUnavailable(f"{path}: not permitted; run as the user of salt-master") from None
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise EngineUnavailable(
            f"the ha engine of this master does not answer ({exc or type(exc).__name__}); "
            "see salt-master's log"
        ) from None
    finally:
        connection.close()
    if response.status != 200:
        raise HaError(str(answer.get("error", f"the engine answered HTTP {response.status}")))
    return dict(answer)
