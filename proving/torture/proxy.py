"""
The network between masters: one TCP relay for each ordered pair of them.

Masters speak TLS, so a relay, like any real network, cannot lose or reorder messages without
breaking the stream. It can refuse, fall silent in one or both directions and go on later with what
it kept, break off, and be slow. Messages that come twice, late and in another order come from
:mod:`proving.torture.auditor`, which is a peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

OPEN = "open"
REFUSE = "refuse"
SILENT = "silent"
DEAF = "deaf"
"""One-way: questions arrive, answers do not."""
SLOW = "slow"
CHUNK = 65536
SLOW_CHUNK = 400
SLOW_PAUSE = 0.02

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own, for the relays and the auditor."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 120.0) -> T:
        """Run *work* there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def close(self) -> None:
        """End the thread, and cancel what still runs there."""

        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self.run(cancel(), 10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Relay:
    """A relay from *address* to *target*, both (host, port)."""

    def __init__(self, loop: Loop, address: tuple[str, int], target: tuple[str, int]) -> None:
        self.address, self.target = address, target
        self.mode = OPEN
        self.connections = 0
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        loop.run(self._start())

    def set(self, mode: str, break_off: bool = False) -> None:
        """
        Switch to *mode*; it holds when this returns.

        :param break_off: end all connections; otherwise silent ones go on with all that they kept,
            however late that is.
        """
        self._loop.run(self._set(mode, break_off))

    def close(self) -> None:
        self._loop.run(self._close())

    async def _start(self) -> None:
        # Gates for the two directions of all connections: what was read waits there.
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()
        self._server = await asyncio.start_server(self._accept, *self.address)

    async def _set(self, mode: str, break_off: bool) -> None:
        self.mode = mode
        if break_off or mode == REFUSE:
            for writer in tuple(self._writers):
                writer.transport.abort()
        for gate, silent in ((self._there, {SILENT}), (self._back, {SILENT, DEAF})):
            if mode in silent:
                gate.clear()
            else:
                gate.set()

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == REFUSE:
            writer.transport.abort()
            return
        self.connections += 1
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            if self.mode in (SILENT,):
                await self._there.wait()
            answers, onward = await asyncio.open_connection(*self.target)
            self._writers.add(onward)
            pumps = [
                asyncio.ensure_future(self._pump(reader, onward, self._there)),
                asyncio.ensure_future(self._pump(answers, writer, self._back)),
            ]
            self._tasks.update(pumps)
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
                self._tasks.discard(pump)
        except OSError:
            pass
        finally:
            for end in (writer, onward):
                if end:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(SLOW_CHUNK if self.mode == SLOW else CHUNK):
                if self.mode == SLOW:
                    await asyncio.sleep(SLOW_PAUSE)
                await gate.wait()
                writer.write(data)
                await writer.drain()
