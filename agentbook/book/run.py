"""The handle of a run: start it, watch it, wait for it, read what it did."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from agentbook import codec
from agentbook.book.answers import NOT_GIVEN, answer_of, person
from agentbook.book.display import show_live
from agentbook.book.files import write
from agentbook.book.following import records as following
from agentbook.book.info import RunInfo, RunResult, info_of
from agentbook.book.portal import closed, refuse_on_our_loops
from agentbook.book.reading import Readable
from agentbook.book.stopping import detached, stop_button
from agentbook.book.watch import until
from agentbook.broker.names import JOURNAL
from agentbook.engine import control
from agentbook.engine.halts import halts_of
from agentbook.engine.resolve import resolve
from agentbook.errors import JournalTruncated, RunCancelledError, RunEnded, RunFailed, RunHalted, RunNotFound
from agentbook.journal.audit import audit
from agentbook.journal.check import CheckReport
from agentbook.journal.load import read_journal
from agentbook.journal.records import Commit, ModelResponse, Record, decode
from agentbook.journal.resolve import Answer
from agentbook.journal.spill import fetch, filled, reference, references
from agentbook.protocol import runs
from agentbook.protocol.snapshot import RunSnapshot
from agentbook.views.facts import RunFacts
from agentbook.views.timeline import build

if TYPE_CHECKING:
    from agentbook.book.book import Book

_TICK_SECONDS = 0.1


class Run(Readable):
    """A started run, or one attached to. It stays valid after the run has ended.

    Every method works from a cell, a script and a thread; ``await run`` from any loop.

    Attributes:
        id: the run's id.
        book: the book it was started or attached in.
    """

    def __init__(self, book: Book, run_id: str) -> None:
        self.id = run_id
        self.book = book

    def _ipython_display_(self) -> None:
        show_live(self)

    @property
    def info(self) -> RunInfo:
        """One line about the run, as it stands now."""
        return info_of(self._snapshot())

    @property
    def status(self) -> str:
        """``running``, ``waiting``, ``halted``, ``completed``, ``failed``, ``cancelled`` …"""
        return self._snapshot().status

    def wait(self, timeout: float | None = None) -> object:
        """Wait for the run to end.

        Args:
            timeout: seconds to wait, None for ever. The run goes on either way.

        Returns:
            What its last turn completed with.

        Raises:
            RunFailed: it failed.
            RunEnded: it was purged.
            RunHalted: it stopped and needs a person or other code; where a person must say how a call ended,
                its `halt` is that call.
            RunCancelledError: it was cancelled.
            TimeoutError: it has not ended within `timeout`.
        """
        refuse_on_our_loops("run.wait()")
        future = self.book.service.submit(self._output())
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise closed() from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # the run's own error, not ours
            raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s; it goes on") from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(detached(self.id)) from None
        finally:
            future.cancel()

    def __await__(self) -> Generator[object, None, object]:
        return self._awaited().__await__()

    async def _awaited(self) -> object:
        future = asyncio.wrap_future(self.book.service.submit(self._output()))
        with stop_button() as pressed:
            try:
                while not future.done():
                    # An interrupt lands only when the caller's loop next wakes, so it wakes often.
                    await asyncio.wait([future], timeout=_TICK_SECONDS)
                if future.cancelled():
                    raise closed()
                return future.result()
            except asyncio.CancelledError:
                if not pressed():
                    raise
                raise KeyboardInterrupt(detached(self.id)) from None
            finally:
                future.cancel()

    def result(self) -> RunResult:
        """Wait for the run to end, and tell how it went. Raises as `wait`."""
        output = self.wait()
        records = self.journal()
        counts = Counter(
            chip.state for block in build(records, self._facts()).blocks for row in block.rows for chip in row.chips
        )
        return RunResult(
            output=output,
            usage=_usage(records),
            turns=sum(isinstance(record, Commit) and record.advancing for record in records),
            duration=_seconds(records),
            ran=counts["ran"] + counts["reran"],
            replayed=counts["replayed"],
        )

    def cancel(self, reason: str | None = None) -> None:
        """End the run now. Tools that run are cut; what they had started is recorded as unknown."""
        self.book.service.call(
            control.cancel, self.book.connection, self.id, self.book.redactor.text(reason) if reason else None
        )

    def resume(self, *, force: bool = False) -> str:
        """Make sure that a worker takes the run up, unless a live holder has it.

        Args:
            force: take it over from a live holder, which is fenced.

        Returns:
            ``dispatched``, ``viewing`` (a live holder has it) or ``ended``.
        """
        return self.book.service.call(control.resume, self.book.connection, self.id, force=force)

    def retry(self) -> None:
        """Begin the halted turn again, as a new attempt: safe calls run again, unsafe ones do not."""
        self.book.service.call(control.retry, self.book.connection, self.id)

    def resolve(
        self,
        subject: str,
        *,
        value: object = NOT_GIVEN,
        error: BaseException | str | None = None,
        did_not_happen: bool = False,
        evidence: str | None = None,
        by: str | None = None,
        min_age: float | timedelta | None = None,
    ) -> None:
        """Say how a call ended of which nobody knows it; once each halted call is resolved, the run goes on.

        One record, and the first answer stands (JOURNAL.md, Resolution). The same answer again is fine.

        Args:
            subject: the call's key, as the halt says it.
            value: it happened, and this is what it returned (None counts).
            error: it failed, with this.
            did_not_happen: it runs again, under the same key.
            evidence: how you know, kept with the run.
            by: who says so; you, if left out.
            min_age: refuse if the call was started less than so many seconds ago. It must exceed the
                longest time the tool can take, or a call that still runs is taken for dead.

        Raises:
            UsageError: not exactly one of value, error and did_not_happen.
            NotHalted: no such call is open.
            HaltInFlight: the run is not halted for it now.
            HaltTooYoung: the call may still be running.
            AlreadyResolved: somebody has said something else, which stands.
            RunEnded: the run has ended.

        Example:
            >>> try:  # doctest: +SKIP
            ...     run.wait()
            ... except RunHalted as halted:
            ...     run.resolve(halted.halt.subject, value="receipt 7", evidence="seen in the bank's ledger")
        """
        answer = answer_of(value, error, did_not_happen, by or person(), evidence)
        age = min_age.total_seconds() if isinstance(min_age, timedelta) else min_age
        self.book.service.call(self._resolve, subject, answer, age)

    @overload
    def journal(self, from_seq: int | None = None, follow: Literal[False] = False) -> list[Record]: ...

    @overload
    def journal(self, from_seq: int | None = None, *, follow: Literal[True]) -> AsyncGenerator[Record, None]: ...

    def journal(self, from_seq: int | None = None, follow: bool = False) -> list[Record] | AsyncGenerator[Record, None]:
        """The run's records, in order; large values as references.

        Args:
            from_seq: the first sequence wanted; None for all.
            follow: give an async iterator instead, which yields each record as it comes, and ends
                when the run has ended. It never misses or repeats one, over a restart of the server too.

        Example:
            >>> async for record in run.journal(follow=True):  # doctest: +SKIP
            ...     print(record.seq, record.kind)
        """
        if follow:
            return following(self.book, self.id, from_seq or 1)
        return self.book.service.call(self._records, from_seq or 1)

    def check(self) -> CheckReport:
        """Audit the journal; the report is true when every rule holds."""
        return self.book.service.call(self._check)

    def export(self, path: str | Path) -> Path:
        """Write the run to a file that `agentbook.load` reads without a server.

        Args:
            path: the file; it is replaced if it exists.

        Returns:
            The file's path.

        Raises:
            JournalTruncated: a large value is gone.
        """
        path = Path(path)
        snapshot, records, blobs = self.book.service.call(self._whole)
        write(path, snapshot, records, blobs)
        return path

    def _all(self) -> list[Record]:
        return self.journal()

    def _facts(self) -> RunFacts:
        snapshot = self._snapshot()
        return RunFacts(run=self.id, agent=snapshot.type, status=snapshot.status)

    def _snapshot(self) -> RunSnapshot:
        return self.book.service.call(self._load)

    async def _load(self) -> RunSnapshot:
        versioned = await runs.load(self.book.connection, self.id)
        if versioned is None:
            raise RunNotFound(f"there is no run {self.id!r} in this book")
        return versioned.snapshot

    async def _resolve(self, subject: str, answer: Answer, min_age: float | None) -> None:
        await resolve(self.book.connection, self.id, subject, answer, redactor=self.book.redactor, min_age=min_age)

    async def _records(self, start: int) -> list[Record]:
        snapshot = await self._load()
        found: list[Record] = []
        for step in snapshot.steps:
            found += await read_journal(self.book.connection, self.id, step, start=start)
        return sorted(found, key=lambda record: record.seq)

    async def _whole(self) -> tuple[RunSnapshot, list[Record], dict[str, bytes]]:
        snapshot = await self._load()
        records = await self._records(1)
        blobs: dict[str, bytes] = {}
        for record in records:
            for digest, name in references(record).items():
                blobs[digest] = await fetch(self.book.connection, self.id, reference(record, name))
        return snapshot, records, blobs

    async def _check(self) -> CheckReport:
        # The snapshot first: the journal may then be ahead of it, never behind.
        snapshot = await self._load()
        reports = [
            await audit(self.book.connection, self.id, name, turns=step.turns, settled=snapshot.status == "completed")
            for name, step in snapshot.steps.items()
        ]
        violations = tuple(violation for report in reports for violation in report.violations)
        return CheckReport(sum(report.records for report in reports), violations)

    async def _settled(self) -> RunSnapshot:
        """The run once it has ended, or needs a person or other code."""
        while True:
            snapshot = await until(self.book.connection, self.id, lambda run: run.ended or run.status == "halted")
            if snapshot.status == "purged":
                raise RunEnded(f"run {self.id} was purged: nothing of it is left")
            if snapshot.status != "halted":
                return snapshot
            halts = await halts_of(self.book.connection, snapshot)
            if halts is not None:
                cause = info_of(snapshot).cause or "no cause was recorded"
                raise RunHalted(self.id, cause, halts[0] if halts else None)
            # Somebody has said how each call ended; the engine has not heard of it yet.
            await until(self.book.connection, self.id, lambda run, seen=snapshot: run != seen)

    async def _output(self) -> object:
        snapshot = await self._settled()
        final = snapshot.final
        if snapshot.status == "cancelled":
            raise RunCancelledError(self.id, final.reason if final else None)
        if snapshot.status != "completed" or final is None:
            error = final.error if final else None
            kind, text = (error.type, error.message) if error else (snapshot.status, "no error was recorded")
            raise RunFailed(self.id, kind, text, final.reason if final else None)
        return await self._final_output(final.journal_seq)

    async def _final_output(self, seq: int | None) -> object:
        stored = await self.book.connection.at(JOURNAL, seq) if seq is not None else None
        record = await filled(self.book.connection, decode(stored.data, stored.seq)) if stored else None
        if not isinstance(record, Commit):
            raise JournalTruncated(f"the commit that ended run {self.id} (record {seq}) is gone")
        return codec.decode(record.output)


def _usage(records: list[Record]) -> dict[str, float]:
    total: dict[str, float] = {}
    for record in records:
        if isinstance(record, ModelResponse):
            for name, amount in (record.usage or {}).items():
                if isinstance(amount, int | float):
                    total[name] = total.get(name, 0) + amount
    return total


def _seconds(records: list[Record]) -> float:
    if not records:
        return 0.0
    first, last = (datetime.fromisoformat(record.at) for record in (records[0], records[-1]))
    return (last - first).total_seconds()
