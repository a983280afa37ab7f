"""The journal handle of one claim: model calls, tool calls, the commit (JOURNAL.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from pydantic import JsonValue

from agentbook import codec
from agentbook.errors import (
    CallLimit,
    ConcurrentUse,
    JournalError,
    ReplayMismatch,
    Signal,
)
from agentbook.journal import halts, replay
from agentbook.journal.append import Writer
from agentbook.journal.calls import Execution, ToolCall, ToolFunction
from agentbook.journal.halts import Halted
from agentbook.journal.outcome import Moment, ToolOutcome
from agentbook.journal.records import (
    Action,
    Commit,
    ErrorInfo,
    ModelResponse,
    OnUnknown,
    Pause,
    Replay,
    Wait,
)
from agentbook.journal.running import ToolRunner, since
from agentbook.journal.state import copied, store
from agentbook.seams import seam

_DRIFT = (ReplayMismatch, CallLimit)
"""What other code must mend before the run goes on."""


class Journal:
    """What a handler writes its turn through. One task at a time may use it.

    Attributes:
        writer: the claim's writer.
        replayed: calls the journal answered.
        ran: calls that ran here.
        observe: called at each call's start and end; it must not block.
    """

    def __init__(self, writer: Writer, *, max_calls: int = 256) -> None:
        self.writer = writer
        self.replayed = 0
        self.ran = 0
        self.observe: Callable[[Moment], None] = _ignore
        self._max_calls = max_calls
        self._position = 0
        self._busy = False
        self._runner = ToolRunner(writer, self._tell)
        self._drifted: JournalError | None = None
        self._stopped: Signal | None = None

    @property
    def position(self) -> int:
        """The position that the next call takes."""
        return self._position

    @property
    def state(self) -> JsonValue:
        """A copy of the state that the last commit of the step left; None before the first."""
        return copied(self.writer.fold.state)

    async def model(
        self,
        request: Callable[[], Awaitable[object]],
        *,
        name: str = "model",
        digest: str = "",
        usage: Callable[[object], dict[str, JsonValue] | None] | None = None,
    ) -> object:
        """The recorded response for the call at this position, or a new one.

        A request that raises records nothing.

        Args:
            request: sends the request; called only if no response is recorded.
            name: the model's name.
            digest: the request's digest; another one on replay is no mismatch.
            usage: reads from a response what it cost, as the provider counts.

        Returns:
            The response as it is stored, decoded.

        Raises:
            ReplayMismatch: a tool call is recorded at this position.
            Fenced: a newer claim has the journal.
        """
        with self._using():
            position = self._take()
            past = replay.model_call(self.writer.fold, self.writer.place.attempt, position)
            if isinstance(past, replay.Recorded):
                assert isinstance(past.record, ModelResponse)
                self._tell(Moment(position, "model", past.record.model, "replayed"))
                return codec.decode(copied(past.record.response))
            await self.writer.confirm_tail()
            self._tell(Moment(position, "model", name, "started"))
            begun = time.perf_counter()
            answer = await request()
            record = await self.writer.append(
                ModelResponse(
                    position=position,
                    model=name,
                    request=digest,
                    response=codec.encode(answer, "response"),
                    usage=usage(answer) if usage is not None else None,
                    ms=since(begun),
                ),
                what=f"the response of {name}",
            )
            assert isinstance(record, ModelResponse)
            seam("after_model", record.iteration, name)
            self._tell(Moment(position, "model", name, "ran"))
            return codec.decode(copied(record.response))

    async def tool(
        self, call: ToolCall, replay: Replay, run: ToolFunction, *, on_unknown: OnUnknown = "tell_model"
    ) -> ToolOutcome:
        """Run one tool call durably: its intent before, its result after.

        An exception of the tool is its result and is not raised here.

        Args:
            call: the tool's name and input.
            replay: ``safe`` if running it twice is harmless, else ``unsafe``.
            run: runs the tool; it is handed the call with its key.
            on_unknown: ``halt`` if a person is to say how it ended when nobody knows.

        Raises:
            ReplayMismatch: another call is recorded at this position.
            Fenced: a newer claim has the journal.
            ResumeHalt: nobody knows how it ended; a person must say so.
        """
        return (await self.tools([Execution(call, replay, run, on_unknown)]))[0]

    async def tools(self, executions: Sequence[Execution]) -> list[ToolOutcome]:
        """Run the tool calls of one response: positions in call order, then all at once.

        Returns:
            Their outcomes, in call order.

        Raises:
            ResumeHalt: the first call that halts the run; the others have ended and are recorded.
        """
        with self._using():
            places = [(self._take(), execution) for execution in executions]
            answers = self._runner.ask(places)
            if len(places) == 1:
                return await self._unless_halted([await self._runner.run(*places[0], answers[0])])
            try:
                async with asyncio.TaskGroup() as group:
                    running = [
                        group.create_task(self._runner.run(position, execution, answer))
                        for (position, execution), answer in zip(places, answers, strict=True)
                    ]
            except BaseExceptionGroup as several:
                # A signal outranks what it caused in the siblings; either way the caller sees one cause.
                signals = [error for error in several.exceptions if isinstance(error, Signal)]
                raise (signals or several.exceptions)[0] from several
            return await self._unless_halted([task.result() for task in running])

    async def commit(
        self,
        action: Action,
        *,
        state: JsonValue = None,
        output: JsonValue = None,
        error: ErrorInfo | None = None,
        retriable: bool | None = None,
        reason: str | None = None,
        wait: Wait | None = None,
        inputs: Sequence[str] = (),
    ) -> Commit:
        """End the iteration: the one record that holds the next action and the state.

        Raises:
            ReplayMismatch: the journal holds a call that the handler has not made this time.
            ConcurrentUse: a call is under way.
        """
        fold = self.writer.fold
        with self._using():
            if action != "fail":
                replay.no_call_left_out(fold, self.writer.place.attempt, self._position)
        fields: dict[str, object] = {"action": action, "inputs": list(inputs), "head": fold.head or 0}
        if action in ("continue", "complete"):
            kept = store(
                fold.state,
                state,
                base=fold.advancing.seq if fold.advancing else None,
                snapshot=fold.snapshot,
                bytes_since=fold.bytes_since,
            )
            fields |= {"state": kept.state, "snapshot": kept.snapshot}
        if action == "complete":
            fields["output"] = output
        for name, value in (("error", error), ("retriable", retriable), ("reason", reason), ("wait", wait)):
            if value is not None:
                fields[name] = value
        record = await self.writer.append(Commit.model_validate(fields), what="the state of the turn")
        assert isinstance(record, Commit)
        seam("after_commit", record.iteration)
        return record

    async def pause(
        self,
        reason: Literal["sleep", "question", "halt", "parked", "requested", "left"],
        *,
        wait: Wait | None = None,
        subjects: Sequence[str] = (),
        cause: str | None = None,
    ) -> Pause:
        """Stop inside the iteration: the holder's last record."""
        if (signal := self.writer.settled or self._stopped) is not None:
            raise signal
        record = await self.writer.append(
            Pause(reason=reason, wait=wait, subjects=list(subjects), cause=cause, head=self.writer.fold.head or 0)
        )
        assert isinstance(record, Pause)
        return record

    def stop(self, signal: Signal) -> None:
        """Make every later call, commit and pause raise `signal`; what is under way may still be recorded."""
        self._stopped = self._stopped or signal

    async def close_cut_calls(self) -> None:
        """Record the outcome of the calls a cancellation cut (ENGINE.md, cancel).

        A safe one ends in an error of type ``Cancelled``, an unsafe one is unknown.
        """
        await self._runner.close_cut_calls()

    async def _unless_halted(self, ended: Sequence[ToolOutcome | Halted]) -> list[ToolOutcome]:
        """The outcomes; if a call halts the run, one pause for every such call instead."""
        halted = [each for each in ended if isinstance(each, Halted)]
        if halted:
            pause = await self.pause("halt", subjects=[each.subject for each in halted], cause=halts.cause(halted))
            raise halts.signal(pause, halted[0].call)
        return [each for each in ended if isinstance(each, ToolOutcome)]

    def _tell(self, moment: Moment) -> None:
        if moment.how in ("replayed", "reused"):
            self.replayed += 1
        elif moment.how in ("ran", "re-ran"):
            self.ran += 1
        self.observe(moment)

    def _take(self) -> int:
        if self._position >= self._max_calls:
            raise CallLimit(
                f"more than {self._max_calls} calls in one turn: let the agent continue in a new turn, or raise "
                "max_calls (AGENTBOOK_MAX_CALLS)."
            )
        self._position += 1
        return self._position - 1

    def _check(self) -> None:
        signal = self.writer.settled or self._stopped or self._drifted
        if signal is not None:
            raise signal

    @contextmanager
    def _using(self) -> Generator[None]:
        self._check()
        if self._busy:
            raise ConcurrentUse(
                "two calls use one journal at once, so their positions would depend on timing. Await one after the "
                "other, or hand tool calls to journal.tools([...])."
            )
        self._busy = True
        try:
            yield
        except Signal as signal:
            self.writer.settle(signal)
            raise
        except _DRIFT as error:
            # Whoever swallows it must not go on as if nothing had happened.
            self._drifted = self._drifted or error
            raise
        finally:
            self._busy = False


def _ignore(_: Moment) -> None:
    pass
