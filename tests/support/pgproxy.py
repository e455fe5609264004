"""A TCP proxy in front of Postgres that counts answers and can cut the line at a chosen moment."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class PostgresProxy:
    """`answered` counts ReadyForQuery messages: one for each round trip of a client."""

    def __init__(self, dsn: str) -> None:
        self._target = urlsplit(dsn)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.answered = 0
        self.cut_requests = False  # the next request does not arrive
        self.cut_answers = False  # the next request arrives, its answer does not

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def dsn(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        login, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{login}@127.0.0.1:{port}"))

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target.hostname or "127.0.0.1", self._target.port or 5432
        server_reader, server_writer = await asyncio.open_connection(host, port)
        self._writers += [writer, server_writer]
        for work in (self._requests(reader, server_writer), self._answers(server_reader, writer)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await self._read(reader):
            if self.cut_requests:
                self.hang_up()
                return
            writer.write(data)
        writer.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        encrypted_answer = await self._read(reader, 1)  # the answer to the question whether to use TLS, or a message
        writer.write(encrypted_answer)
        pending = b"" if encrypted_answer in (b"S", b"N") else encrypted_answer
        while data := await self._read(reader):
            if self.cut_answers:
                self.hang_up()
                return
            pending += data
            while len(pending) >= 5 and len(pending) >= 1 + (size := int.from_bytes(pending[1:5], "big")):
                self.answered += pending[:1] == b"Z"
                pending = pending[1 + size :]
            writer.write(data)
        writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, most: int = 65536) -> bytes:
        with contextlib.suppress(OSError):
            return await reader.read(most)
        return b""
