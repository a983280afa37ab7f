"""A run's records as they come, for any loop (API.md, journal(follow=True))."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from agentbook.book.watch import until
from agentbook.broker.names import JOURNAL
from agentbook.journal.records import Record, decode

if TYPE_CHECKING:
    from agentbook.book.book import Book

T = TypeVar("T")


async def records(book: Book, run: str, start: int) -> AsyncGenerator[Record, None]:
    """Each record of a run from a sequence on, once, in order; it ends when the run has ended and all are given.

    Holds one ephemeral consumer while it runs. It lives over a restart of the server.

    Raises:
        RunNotFound: there is no such run.
    """
    reader = _Reader(book, run, start)
    try:
        while (record := await _there(book, reader.next())) is not None:
            yield record
    finally:
        await asyncio.shield(_there(book, reader.close()))


async def _there(book: Book, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the service loop and wait for it on this one."""
    return await asyncio.wrap_future(book.service.submit(work))


class _Reader:
    """Lives on the service loop."""

    def __init__(self, book: Book, run: str, start: int) -> None:
        connection = book.connection
        self._connection = connection
        self._run = run
        self._subject = connection.names.journal(run, "*")
        self._stored = connection.follow(JOURNAL, self._subject, start=start)
        self._reached = start - 1
        self._reading: asyncio.Task[Record | None] | None = None
        self._ended: asyncio.Task[int] | None = None

    async def next(self) -> Record | None:
        """The next record; None once there are no more."""
        if self._ended is None:
            self._ended = asyncio.create_task(self._last())
        if self._reading is None:
            self._reading = asyncio.create_task(self._one())
        while not self._reading.done():
            if not self._ended.done():
                await asyncio.wait([self._reading, self._ended], return_when=asyncio.FIRST_COMPLETED)
            elif self._reached >= self._ended.result():
                return None
            else:
                await asyncio.wait([self._reading])
        record, self._reading = self._reading.result(), None
        self._reached = record.seq if record is not None else self._reached
        return record

    async def close(self) -> None:
        """Delete the consumer."""
        for task in (self._reading, self._ended):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._stored.aclose()

    async def _one(self) -> Record | None:
        stored = await anext(self._stored, None)
        return None if stored is None else decode(stored.data, stored.seq)

    async def _last(self) -> int:
        """The sequence of the run's last record, once it has ended."""
        await until(self._connection, self._run, lambda run: run.ended)
        tail = await self._connection.last(JOURNAL, self._subject)
        return 0 if tail is None else tail.seq
