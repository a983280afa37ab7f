"""What a live view of a run is fed with: the journal as it grows, in batches a person can follow.

Lives on the book's service loop; every message to a front end is sent from there, because
two writers of one widget lose messages (NOTEBOOK.md, Kernel).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from agentbook.book import Book
from agentbook.broker.names import JOURNAL
from agentbook.broker.wire import Message
from agentbook.errors import JournalError, RunNotFound
from agentbook.journal.records import Record, decode
from agentbook.protocol import runs
from agentbook.protocol.holder import Holder, ask_holder
from agentbook.protocol.snapshot import RunSnapshot
from agentbook.views import messages
from agentbook.views.facts import Live, RunFacts
from agentbook.views.timeline import Head, Timeline, build

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.05
_LOOK_SECONDS = 1.0

Changed = Callable[[list[messages.Message]], None]


class LiveTimeline:
    """Follows one run while anybody listens, and tells what changed.

    Attributes:
        run: the run's id.
        records: its records so far, by sequence.
    """

    def __init__(self, book: Book, run: str) -> None:
        self.run = run
        self.records: dict[int, Record] = {}
        self._book = book
        self._timeline = Timeline(Head(run, None, "unknown", "unknown", "", False), ())
        self._listeners: dict[int, Changed] = {}
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def snapshot(self) -> Timeline:
        """The timeline as it stands; the first call reads the journal."""
        self._follow()
        await self._ready.wait()
        return self._timeline

    @property
    def timeline(self) -> Timeline:
        """The timeline as it was built last."""
        return self._timeline

    async def on_end(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the run has ended and its whole journal is here."""
        self._follow()
        assert self._following is not None
        await asyncio.wait([self._following])
        if not self._following.cancelled() and self._following.exception() is None:
            tell()

    def listen(self, key: int, changed: Changed) -> None:
        """Tell `changed` what changes from now on."""
        self._listeners[key] = changed
        self._follow()

    def _follow(self) -> None:
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._watch(), name=f"view {self.run}")
            self._following.add_done_callback(_report)

    async def _watch(self) -> None:
        connection = self._book.connection
        announced = await connection.subscribe(connection.names.run(self.run), self._wake)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read())
                while await self._refresh():
                    try:
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._changed.wait()
                        await asyncio.sleep(_BATCH_SECONDS)
                    except TimeoutError:
                        continue
                reading.cancel()
        finally:
            await announced.close()

    async def _read(self) -> None:
        connection = self._book.connection
        start = max(self.records, default=0) + 1
        records = connection.follow(JOURNAL, connection.names.journal(self.run, "*"), start=start)
        async with aclosing(records):  # pyright: ignore[reportArgumentType] - it is an async generator
            async for stored in records:
                self.records[stored.seq] = decode(stored.data, stored.seq)
                self._changed.set()

    async def _wake(self, _: Message) -> None:
        self._changed.set()

    async def _refresh(self) -> bool:
        """Build the view again and tell what changed. False once nothing can change any more."""
        self._changed.clear()
        try:
            versioned = await runs.load(self._book.connection, self.run)
        except JournalError as error:
            log.debug("run %s: not looked at: %s", self.run, error)
            return True
        if versioned is None:
            raise RunNotFound(f"there is no run {self.run!r} in this book")
        run = versioned.snapshot
        complete = self._caught_up(run)
        timeline = build([self.records[seq] for seq in sorted(self.records)], await self._facts(run))
        changed = messages.changes(self._timeline, timeline)
        self._timeline = timeline
        if changed:
            for listener in list(self._listeners.values()):
                listener(changed)
        if complete or not run.ended:
            self._ready.set()
        return not (run.ended and complete)

    def _caught_up(self, run: RunSnapshot) -> bool:
        """True if the journal is here up to the commit that ended the run."""
        last = run.final.journal_seq if run.final else None
        return last is None or last in self.records

    async def _facts(self, run: RunSnapshot) -> RunFacts:
        live: Live | None = None
        nobody = False
        if run.status in ("running", "rolling_back") and self.records:
            answer = await ask_holder(self._book.connection, self.run, next(iter(run.steps)))
            nobody = answer is None
            if isinstance(answer, Holder):
                live = Live(answer.claim, answer.position)
        return RunFacts(run=self.run, agent=run.type, status=run.status, live=live, nobody=nobody)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a live view ended: %s", error)
