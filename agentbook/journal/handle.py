"""The journal handle of one claim: model calls, tool calls, the commit (JOURNAL.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from pydantic import JsonValue

from agentbook import codec
from agentbook.errors import (
    CallLimit,
    ConcurrentUse,
    JournalError,
    OutcomeUnknown,
    PayloadTooLarge,
    ReplayMismatch,
    Signal,
    UsageError,
    ValueNotJournalable,
)
from agentbook.journal import halts, replay
from agentbook.journal.append import Writer
from agentbook.journal.calls import Binding, Execution, ToolCall, ToolFunction
from agentbook.journal.endings import as_resolved, cut, error_info
from agentbook.journal.halts import Halted
from agentbook.journal.outcome import How, Moment, ToolOutcome, outcome_of
from agentbook.journal.records import (
    Action,
    Commit,
    ErrorInfo,
    Interruption,
    ModelResponse,
    OnUnknown,
    Pause,
    Replay,
    ToolIntent,
    ToolPartial,
    ToolResult,
    Wait,
)
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
        self._begun: set[int] = set()
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
                self._end(position, "model", past.record.model, "replayed")
                return codec.decode(copied(past.record.response))
            await self.writer.confirm_tail()
            self.observe(Moment(position, "model", name, "started"))
            begun = time.perf_counter()
            answer = await request()
            record = await self.writer.append(
                ModelResponse(
                    position=position,
                    model=name,
                    request=digest,
                    response=codec.encode(answer, "response"),
                    usage=usage(answer) if usage is not None else None,
                    ms=_since(begun),
                ),
                what=f"the response of {name}",
            )
            assert isinstance(record, ModelResponse)
            seam("after_model", record.iteration, name)
            self._end(position, "model", name, "ran")
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
            answers = self._ask(places)
            if len(places) == 1:
                return await self._unless_halted([await self._tool(*places[0], answers[0])])
            try:
                async with asyncio.TaskGroup() as group:
                    running = [
                        group.create_task(self._tool(position, execution, answer))
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
        await self.writer.decide_pending()
        for call in list(self.writer.fold.intents.values()):
            intent = call.intent
            if intent is None or not call.open:
                continue
            if intent.claim != self.writer.claim and intent.seq not in self._begun:
                continue
            await self.writer.append(
                ToolResult.model_validate(
                    {"position": call.position, "intent": intent.seq, **cut(intent.replay, call.partial)}
                )
            )

    def _ask(self, places: Sequence[tuple[int, Execution]]) -> list[replay.ToolAnswer]:
        """What becomes of each call; a call knows what those before it take, though nothing is written yet."""
        fold, attempt = self.writer.fold, self.writer.place.attempt
        answers: list[replay.ToolAnswer] = []
        for position, execution in places:
            name, value = execution.call.name, self._recorded(execution.call)
            declared, wish = execution.replay, execution.on_unknown
            answers.append(replay.tool_call(fold, attempt, position, name, value, declared, wish, batch=answers))
        return answers

    def _recorded(self, call: ToolCall) -> JsonValue:
        """A call's input as its intent holds it: a replay compares like with like."""
        return self.writer.redactor.value(codec.encode(call.input, f"the input of {call.name}"))

    async def _unless_halted(self, ended: Sequence[ToolOutcome | Halted]) -> list[ToolOutcome]:
        """The outcomes; if a call halts the run, one pause for every such call instead."""
        halted = [each for each in ended if isinstance(each, Halted)]
        if halted:
            pause = await self.pause("halt", subjects=[each.subject for each in halted], cause=halts.cause(halted))
            raise halts.signal(pause, halted[0].call)
        return [each for each in ended if isinstance(each, ToolOutcome)]

    async def _tool(self, position: int, execution: Execution, answer: replay.ToolAnswer) -> ToolOutcome | Halted:
        call, name = execution.call, execution.call.name
        match answer:
            case replay.Recorded(record):
                assert isinstance(record, ToolResult)
                how: How = "reused" if record.reused is not None else "replayed"
                return self._ended(position, outcome_of(name, self._original(record), how))
            case replay.Reuse(result):
                await self.writer.append(ToolResult(position=position, intent=result.intent, reused=result.seq))
                return self._ended(position, outcome_of(name, result, "reused"))
            case replay.Interrupted(intent, partial):
                cause = "its holder died after starting it: it may have happened, it was not run again"
                interrupted = Interruption(partial=list(partial), cause=cause)
                record = ToolResult(position=position, intent=intent, interrupted=interrupted)
                return await self._store(name, record, "interrupted")
            case replay.Halt(past):
                return Halted(past)
            case replay.Resolved(past):
                return await self._store(name, as_resolved(past), "resolved")
            case replay.RunAgain(key, intent) if intent is not None:
                # No record comes before the tool starts: only a read can tell that a newer claim took over.
                await self.writer.confirm_tail()
                self._begun.add(intent)
                return await self._run(position, execution, key, intent, "re-ran")
            case replay.RunAgain(key, _) | replay.Live(key):
                intent_record = await self.writer.append(
                    ToolIntent(
                        position=position, name=name, input=self._recorded(call),
                        replay=execution.replay or "unsafe", key=key, call_id=call.id,
                    ),
                    what=f"the input of {name}",
                )  # fmt: skip
                seam("after_intent", intent_record.iteration, name)
                return await self._run(position, execution, key, intent_record.seq, "ran")

    async def _run(self, position: int, execution: Execution, key: str, intent: int, how: How) -> ToolOutcome | Halted:
        name, place = execution.call.name, self.writer.place
        ended = False

        async def emit(chunk: object) -> None:
            if ended:
                raise UsageError(f"{name} has ended: what it emits now would be recorded after its result")
            await self.writer.append(
                ToolPartial(intent=intent, output=codec.encode(chunk, f"{name} partial output")),
                what=f"partial output of {name}",
            )

        binding = Binding(place.run, place.iteration, position, key, emit)
        self.observe(Moment(position, "tool", name, "started"))
        begun = time.perf_counter()
        ending: dict[str, object]
        try:
            output = codec.encode(await execution.run(replace(execution.call, binding=binding)), "result")
            ending = {"output": output}
        except OutcomeUnknown as error:
            if execution.on_unknown == "halt":
                return Halted(self.writer.fold.intents[intent], str(error))
            ending = {"interrupted": Interruption(partial=self._partial(intent), cause=str(error))}
        except JournalError:
            raise  # of `emit`: the journal's own trouble is not the tool's
        except Exception as error:  # noqa: BLE001 - what a tool raises is its result, whatever it is
            ending = {"error": error_info(error)}
        finally:
            ended = True
        seam("inside_tool", place.iteration, name)
        record = ToolResult.model_validate({"position": position, "intent": intent, "ms": _since(begun), **ending})
        return await self._store(name, record, how)

    async def _store(self, name: str, result: ToolResult, how: How) -> ToolOutcome:
        try:
            record = await self.writer.append(result, what=f"the result of {name}")
        except (PayloadTooLarge, ValueNotJournalable) as error:
            # The tool has run: what is stored instead must end the call, not start it again.
            record = await self.writer.append(
                ToolResult(position=result.position, intent=result.intent, error=error_info(error), ms=result.ms)
            )
        assert isinstance(record, ToolResult)
        seam("after_result", record.iteration, name)
        return self._ended(record.position, outcome_of(name, record, how))

    def _original(self, record: ToolResult) -> ToolResult:
        """The result itself, or the earlier attempt's that it reuses."""
        if record.reused is None:
            return record
        original = self.writer.fold.intents[record.intent].result
        assert original is not None
        assert original.seq == record.reused
        return original

    def _partial(self, intent: int) -> list[JsonValue]:
        return list(self.writer.fold.intents[intent].partial)

    def _ended(self, position: int, outcome: ToolOutcome) -> ToolOutcome:
        self._end(position, "tool", outcome.name, outcome.how)
        return outcome

    def _end(self, position: int, kind: Literal["model", "tool"], name: str, how: How) -> None:
        if how in ("replayed", "reused"):
            self.replayed += 1
        elif how in ("ran", "re-ran"):
            self.ran += 1
        self.observe(Moment(position, kind, name, how))

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


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)


def _ignore(_: Moment) -> None:
    pass
