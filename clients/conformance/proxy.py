"""A proxy between a client and the service that loses, delays and repeats messages of HTTP/2.

It reads frames, so that it knows when a request is complete and when its response begins. Only the fault `code` changes
them.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass

PREFACE = 24
HEAD = 9
DATA, HEADERS = 0, 1
END_STREAM = 1
# Bytes before a message, and the tag of the first field of a RateLimitResponse.
PREFIX, OVERALL_CODE = 5, b"\x08"


@dataclass
class Fault:
    """The behaviour of a proxy.

    | kind | behaviour |
    |---|---|
    | `none` | forwards everything |
    | `cut_before`, `reset_before` | closes or resets the connection instead of forwarding a request |
    | `cut_after`, `reset_after` | closes or resets it when the response arrives, which it does not forward |
    | `delay` | forwards a response after so many milliseconds |
    | `code` | forwards decisions with this number as their code |
    | `late` | forwards responses when it behaves otherwise |
    | `silent` | forwards no request |
    | `mute` | accepts connections, and neither reads nor writes |
    | `refuse` | accepts no connection, and closes those that are open |
    | `twice` | delivers each request twice, and forwards the first response after the second has arrived |
    """

    kind: str = "none"
    times: int | None = None
    ms: int = 0
    code: int = 0

    def strikes(self, *kinds: str) -> bool:
        """Returns whether it applies now, and counts that it did."""
        if self.kind not in kinds or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Proxy:
    """A listener, and the connections that it forwards."""

    def __init__(self, upstream: tuple[str, int], fault: Fault):
        self.fault = fault
        self.connections = 0
        self.requests = 0
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._address = ("", 0)
        # Keeps the port of a proxy that accepts no connections from other programs.
        self._bound: socket.socket | None = None
        self._tasks: set[asyncio.Task] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listens, and returns the port; with the fault `refuse`, one without a listener."""
        self._server = await asyncio.start_server(self._accept, host, port)
        self._address = self._server.sockets[0].getsockname()
        await self.behave(self.fault)
        return self._address[1]

    async def behave(self, fault: Fault) -> None:
        """Changes the behaviour, from the next message on."""
        self.fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        if fault.kind == "refuse":
            await self.close()
            self._bound = socket.socket()
            self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bound.bind(self._address)

    async def change(self) -> None:
        """Waits until the behaviour changes."""
        await self._changed.wait()

    async def close(self) -> None:
        """Closes the listener and all connections."""
        if self._bound:
            self._bound.close()
        if self._server:
            self._server.close()
        for writer in list(self._open):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self._open.add(writer)
        self.connections += 1
        try:
            if self.fault.kind == "mute":
                await asyncio.Event().wait()
            copies = 2 if self.fault.kind == "twice" else 1
            await Connection(self, reader, writer).forward(self._upstream, copies)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._open.discard(writer)
            self._tasks.discard(task)


class Connection:
    """A connection of a client, and one or two to the service with the same bytes."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._silent = False
        self._copy_ends = 0
        self._copy_ended = asyncio.Condition()

    async def forward(self, upstream: tuple[str, int], copies: int) -> None:
        """Forwards until one side closes its connection, or a fault does."""
        services = [await asyncio.open_connection(*upstream) for _ in range(copies)]
        writers = [writer for _, writer in services]
        pumps = [self._requests(writers), self._responses(services[0][0], copies > 1)]
        pumps += [self._copy(reader) for reader, _ in services[1:]]
        tasks = [asyncio.create_task(pump) for pump in pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.close()

    async def _requests(self, services: list[asyncio.StreamWriter]) -> None:
        preface = await self._reader.readexactly(PREFACE)
        for service in services:
            service.write(preface)
        while True:
            kind, flags, frame = await _frame(self._reader)
            if kind == HEADERS:
                if self._proxy.fault.strikes("cut_before", "reset_before"):
                    return self._end()
                self._silent |= self._proxy.fault.strikes("silent")
                self._proxy.requests += 1
            if not self._silent:
                for service in services:
                    service.write(frame)

    async def _responses(self, service: asyncio.StreamReader, has_copy: bool) -> None:
        begun: set[bytes] = set()
        ends = 0
        while True:
            kind, flags, frame = await _frame(service)
            stream = frame[5:HEAD]
            is_start = kind == HEADERS and stream not in begun
            is_end = kind in (DATA, HEADERS) and flags & END_STREAM
            if is_start:
                begun.add(stream)
            if is_start and self._proxy.fault.strikes("cut_after", "reset_after"):
                return self._end()
            if is_start and self._proxy.fault.strikes("delay"):
                await asyncio.sleep(self._proxy.fault.ms / 1000)
            if is_start and self._proxy.fault.strikes("late"):
                await self._proxy.change()
            if is_end and has_copy:
                ends += 1
                async with self._copy_ended:
                    await self._copy_ended.wait_for(lambda: self._copy_ends >= ends)
            if kind == DATA and self._proxy.fault.strikes("code"):
                frame = _with_code(frame, self._proxy.fault.code)
            self._writer.write(frame)

    async def _copy(self, service: asyncio.StreamReader) -> None:
        while True:
            kind, flags, _ = await _frame(service)
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                async with self._copy_ended:
                    self._copy_ends += 1
                    self._copy_ended.notify_all()

    def _end(self) -> None:
        if "reset" in self._proxy.fault.kind:
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()


def _with_code(frame: bytes, code: int) -> bytes:
    """Returns the frame of a RateLimitResponse with another `overall_code`, which is its first field."""
    place = HEAD + PREFIX
    assert frame[place:place + 1] == OVERALL_CODE, "a response begins with its code"
    return frame[:place + 1] + bytes([code]) + frame[place + 2:]


async def _frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    head = await reader.readexactly(HEAD)
    body = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], head + body
