"""One step's journal on a real server, and a network that loses what a test wants lost."""

import asyncio
import contextlib
import dataclasses
import itertools

from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL
from agentbook.journal.append import Place, Writer
from agentbook.journal.check import check
from agentbook.journal.fold import Fold
from agentbook.journal.load import read_journal
from agentbook.journal.open import Holding, Limits, open_journal
from agentbook.journal.redact import Redactor

LIMITS = Limits(append_deadline=10.0)
_runs = itertools.count()


class Step:
    """The step under test: a run of its own."""

    def __init__(self, connection, run=None):
        self.connection = connection
        self.run = run or f"run-{next(_runs)}"
        self.subject = connection.names.journal(self.run, "agent")

    def over(self, connection):
        """The same step seen through another connection."""
        return Step(connection, self.run)

    async def open(self, iteration=0, attempt=1, dispatch=1, limits=LIMITS, **more):
        holding = Holding(
            place=Place(self.run, "agent", iteration, attempt),
            dispatch=dispatch,
            **({"delivery": 1, "worker": "kernel 1", "code": "c", "head": None} | more),
        )
        return await open_journal(self.connection, holding, limits)

    def writer(self, claim, deadline=10.0):
        """A writer that has read nothing: it expects an empty subject."""
        place = Place(self.run, "agent", 0, 1)
        return Writer(self.connection, place, claim, Fold(), deadline=deadline, redactor=Redactor())

    async def records(self):
        return await read_journal(self.connection, self.run, "agent")

    async def kinds(self):
        return [record.kind for record in await self.records()]

    async def audit(self):
        """The records, which keep every rule."""
        records = await self.records()
        report = check(records)
        assert report, report
        return records

    async def tail(self):
        stored = await self.connection.last(JOURNAL, self.subject)
        return 0 if stored is None else stored.seq


async def outcome(awaitable):
    """What it returns, or the signal or error it raises."""
    (result,) = await asyncio.gather(awaitable, return_exceptions=True)
    return result


class Proxy:
    """A way to the server on which answers of the stream, or our own words, get lost on demand.

    Attributes:
        lose: called with each message from the server; true: it is not passed on.
        stored: set when an answer was lost, so what it acknowledges is in the stream.
        cut: whether the connection breaks when an answer is lost.
        deaf: while set, nothing from the client is passed on.
    """

    def __init__(self, target):
        host, _, port = target.url.removeprefix("nats://").rpartition(":")
        self._host, self._port = host, int(port)
        self.lose = lambda payload: False
        self.lost = 0
        self.stored = asyncio.Event()
        self.cut = False
        self.deaf = False
        self.swallowed = asyncio.Event()
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc):
        self._server.close()
        self.disconnect()
        await self._server.wait_closed()

    @property
    def url(self):
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def disconnect(self):
        for writer in list(self._writers):
            writer.transport.abort()

    def lose_next_ack(self, nth=1, *, cut):
        """Lose the nth acknowledgement of the journal from now; the record it is for is stored."""
        left = itertools.count(nth, -1)
        self.stored.clear()
        self.cut = cut
        self.lose = lambda payload: b"AGENT_JOURNAL" in payload and b'"seq":' in payload and next(left) == 1

    async def _serve(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._upstream(reader, up_writer))
                group.create_task(self._downstream(up_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, up_writer):
                self._writers.discard(end)
                end.transport.abort()

    async def _upstream(self, reader, writer):
        while data := await reader.read(65536):
            if self.deaf:
                self.swallowed.set()
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _downstream(self, reader, writer):
        while True:
            line = await reader.readuntil(b"\r\n")
            if line.startswith((b"MSG ", b"HMSG ")):
                payload = await reader.readexactly(int(line.split()[-1]) + 2)
                if self.lose(payload):
                    self.lose = lambda payload: False
                    self.lost += 1
                    self.stored.set()
                    if self.cut:
                        raise ConnectionResetError
                    continue
                line += payload
            writer.write(line)
            await writer.drain()


@contextlib.asynccontextmanager
async def through_proxy(server, settings):
    """A proxy, and a connection that goes through it."""
    async with Proxy(server.target) as proxy:
        connection = await connect(dataclasses.replace(server.target, url=proxy.url), settings)
        try:
            yield proxy, connection
        finally:
            await connection.close()
