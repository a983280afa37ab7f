"""What a handler is given for one iteration of a step (API.md, TaskContext)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import JsonValue

from agentbook import codec
from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.errors import Committed, RestartLimit, ResumeHalt, RunCancelled, Signal, UsageError
from agentbook.journal.endings import error_info
from agentbook.journal.halts import standing_halt
from agentbook.journal.handle import Journal
from agentbook.journal.load import FoldCache
from agentbook.journal.open import Holding, Limits, open_journal
from agentbook.journal.outcome import Moment
from agentbook.journal.records import Commit, ErrorInfo, Pause, decode
from agentbook.journal.redact import Redactor
from agentbook.protocol.events import event_of
from agentbook.protocol.store import store
from agentbook.seams import seam


class TaskContext:
    """One iteration of a step, held under one claim. Lives on the user loop.

    Attributes:
        input: the run's input.
        run: the run's id.
        step: the step's name.
        iteration: the turn, counted from 0.
        attempt: the attempt of the turn, counted from 1.
        ended: True once a commit or pause is stored and its event is acknowledged.
    """

    def __init__(
        self,
        connection: Connection,
        holding: Holding,
        limits: Limits,
        input: object,  # noqa: A002 - the field's word for it (API.md)
        *,
        cache: FoldCache,
        redactor: Redactor,
        held: Callable[[], Awaitable[bool]],
        observe: Callable[[Moment], None],
    ) -> None:
        place = holding.place
        self.input = input
        self.run, self.step, self.iteration, self.attempt = place.run, place.step, place.iteration, place.attempt
        self.ended = False
        self._connection = connection
        self._holding = holding
        self._limits = limits
        self._cache = cache
        self._redactor = redactor
        self._held = held
        self._observe = observe
        self._journal: Journal | None = None
        self._state: JsonValue = None
        self._signal: Signal | None = None

    @property
    def cancelled(self) -> bool:
        """True once the run was cancelled."""
        return isinstance(self._signal, RunCancelled)

    @property
    def claim(self) -> str | None:
        """The id of this holder's claim; None before `journal` has claimed."""
        return None if self._journal is None else self._journal.writer.claim

    async def journal(self) -> Journal:
        """Claim the step's journal; the same handle on every later call.

        Raises:
            Stale: a later iteration, attempt or dispatch is under way.
            Committed: the iteration has its commit; its event was published again.
            RestartLimit: claimed too often in a row; the failure was published.
            ResumeHalt: nobody knows how a call of an earlier attempt ended; that it halts the run was published.
            JournalTruncated: records that must be there are gone.
        """
        self._raise_signal()
        if self._journal is None:
            try:
                journal = await open_journal(
                    self._connection,
                    self._holding,
                    self._limits,
                    cache=self._cache,
                    redactor=self._redactor,
                    held=self._held,
                )
            except (Committed, RestartLimit, ResumeHalt) as settled:
                self.stop(settled)
                await self._publish_again(settled.seq)
                raise
            journal.observe = self._observe
            self._journal = journal
            self._state = journal.state
            if self._signal is not None:
                # It came while the claim was under way.
                journal.stop(self._signal)
                raise self._signal
        return self._journal

    async def load_checkpoint(self) -> object:
        """The state that the last turn left, decoded; None in the first turn."""
        await self.journal()
        return codec.decode(self._state)

    def checkpoint(self, state: object) -> None:
        """Set the state that the turn's commit will store.

        Raises:
            ValueNotJournalable: it has no stored form; the error names the place.
        """
        self._state = codec.encode(state, "state")

    async def complete(self, output: object = None) -> None:
        """End the step with its output."""
        journal = await self.journal()
        await self._end(await journal.commit("complete", state=self._state, output=codec.encode(output, "output")))

    async def continue_(self) -> None:
        """End the turn and ask for the next one."""
        journal = await self.journal()
        await self._end(await journal.commit("continue", state=self._state))

    async def fail(self, error: BaseException | str, *, retriable: bool = True) -> None:
        """End the attempt with an error.

        Args:
            error: what went wrong.
            retriable: whether the step's retry policy may try again.
        """
        info = ErrorInfo(type="Error", message=error) if isinstance(error, str) else error_info(error)
        journal = await self.journal()
        await self._end(await journal.commit("fail", error=info, retriable=retriable))

    async def park(self, cause: BaseException) -> None:
        """Stop until other code or a person comes: the run is halted, no attempt is used up."""
        journal = await self.journal()
        await self._end(await journal.pause("parked", cause=f"{type(cause).__name__}: {cause}"))

    async def halted(self) -> None:
        """Publish the halt that a call of this turn ended in."""
        pause = standing_halt(self._journal.writer.fold) if self._journal is not None else None
        if pause is not None:
            await self._end(pause)

    def stop(self, signal: Signal) -> None:
        """Make every later call on this context and its journal raise `signal`."""
        self._signal = self._signal or signal
        if self._journal is not None:
            self._journal.stop(signal)

    async def close_cut_calls(self) -> None:
        """Record the outcomes of calls that a cancellation cut, if this holder has claimed."""
        if self._journal is not None:
            await self._journal.close_cut_calls()

    async def _end(self, record: Commit | Pause) -> None:
        await self._publish(record)
        self.ended = True
        seam("after_event", record.iteration)
        assert self._journal is not None, "a record that ends a turn has a claim"
        await self._journal.writer.remember()
        self._cache.keep(self.run, self.step, self._journal.writer.fold)

    async def _publish(self, record: Commit | Pause) -> None:
        event = event_of(record)
        await store(
            self._connection,
            self._connection.names.history(self.run),
            event.encode(),
            what=f"the event {event.type} of run {self.run}",
            msg_id=event.message_id,
        )

    async def _publish_again(self, seq: int) -> None:
        stored = await self._connection.at(JOURNAL, seq)
        record = decode(stored.data, stored.seq) if stored else None
        if isinstance(record, Commit | Pause):
            await self._publish(record)

    def _raise_signal(self) -> None:
        if self._signal is not None:
            raise self._signal
        if self.ended:
            raise UsageError("this turn has ended: return from the handler after complete, fail or continue_")
