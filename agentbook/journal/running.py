"""Runs the tool calls of a turn as replay says: intents before, results after (JOURNAL.md, Replay rules)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import JsonValue

from agentbook import codec
from agentbook.errors import JournalError, OutcomeUnknown, Signal, UsageError
from agentbook.journal import replay
from agentbook.journal.append import Writer
from agentbook.journal.calls import Binding, Execution, ToolCall
from agentbook.journal.endings import append_result, as_resolved, cut, error_info
from agentbook.journal.halts import Halted
from agentbook.journal.outcome import How, Moment, ToolOutcome, outcome_of
from agentbook.journal.records import Interruption, ToolIntent, ToolPartial, ToolResult
from agentbook.seams import seam


class ToolRunner:
    """Runs one claim's tool calls, and records what became of each."""

    def __init__(self, writer: Writer, tell: Callable[[Moment], None]) -> None:
        self._writer = writer
        self._tell = tell
        self._begun: set[int] = set()

    def ask(self, places: Sequence[tuple[int, Execution]]) -> list[replay.ToolAnswer]:
        """What becomes of each call; a call knows what those before it take, though nothing is written yet."""
        fold, attempt = self._writer.fold, self._writer.place.attempt
        answers: list[replay.ToolAnswer] = []
        for position, execution in places:
            name, value = execution.call.name, self._recorded(execution.call)
            declared, wish = execution.replay, execution.on_unknown
            answers.append(replay.tool_call(fold, attempt, position, name, value, declared, wish, batch=answers))
        return answers

    async def close_cut_calls(self) -> None:
        """Record the outcome of the calls a cancellation cut."""
        await self._writer.decide_pending()
        for call in list(self._writer.fold.intents.values()):
            intent = call.intent
            if intent is None or not call.open:
                continue
            if intent.claim != self._writer.claim and intent.seq not in self._begun:
                continue
            fields = {"position": call.position, "intent": intent.seq, **cut(intent.replay, call.partial)}
            await append_result(self._writer, ToolResult.model_validate(fields), intent.name)

    def _recorded(self, call: ToolCall) -> JsonValue:
        """A call's input as its intent holds it: a replay compares like with like."""
        return self._writer.redactor.value(codec.encode(call.input, f"the input of {call.name}"))

    async def run(self, position: int, execution: Execution, answer: replay.ToolAnswer) -> ToolOutcome | Halted:
        call, name = execution.call, execution.call.name
        match answer:
            case replay.Recorded(record):
                assert isinstance(record, ToolResult)
                how: How = "reused" if record.reused is not None else "replayed"
                return self._ended(position, outcome_of(name, self._original(record), how))
            case replay.Reuse(result):
                await self._writer.append(ToolResult(position=position, intent=result.intent, reused=result.seq))
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
                await self._writer.confirm_tail()
                self._begun.add(intent)
                return await self._run(position, execution, key, intent, "re-ran")
            case replay.RunAgain(key, _) | replay.Live(key):
                intent_record = await self._writer.append(
                    ToolIntent(
                        position=position, name=name, input=self._recorded(call),
                        replay=execution.replay or "unsafe", key=key, call_id=call.id,
                    ),
                    what=f"the input of {name}",
                )  # fmt: skip
                seam("after_intent", intent_record.iteration, name)
                return await self._run(position, execution, key, intent_record.seq, "ran")

    async def _run(self, position: int, execution: Execution, key: str, intent: int, how: How) -> ToolOutcome | Halted:
        name, place = execution.call.name, self._writer.place
        ended = False

        async def emit(chunk: object) -> None:
            if ended:
                raise UsageError(f"{name} has ended: what it emits now would be recorded after its result")
            await self._writer.append(
                ToolPartial(intent=intent, output=codec.encode(chunk, f"{name} partial output")),
                what=f"partial output of {name}",
            )

        binding = Binding(place.run, place.iteration, position, key, emit)
        self._tell(Moment(position, "tool", name, "started"))
        begun = time.perf_counter()
        ending: dict[str, object]
        try:
            output = codec.encode(await execution.run(replace(execution.call, binding=binding)), "result")
            ending = {"output": output}
        except OutcomeUnknown as error:
            if execution.on_unknown == "halt":
                return Halted(self._writer.fold.intents[intent], str(error))
            ending = {"interrupted": Interruption(partial=self._partial(intent), cause=str(error))}
        except JournalError:
            raise  # of `emit`: the journal's own trouble is not the tool's
        except (Signal, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - what a tool raises is its result, SystemExit too
            ending = {"error": error_info(error)}
        finally:
            ended = True
        seam("inside_tool", place.iteration, name)
        record = ToolResult.model_validate({"position": position, "intent": intent, "ms": since(begun), **ending})
        return await self._store(name, record, how)

    async def _store(self, name: str, result: ToolResult, how: How) -> ToolOutcome:
        record = await append_result(self._writer, result, name)
        seam("after_result", record.iteration, name)
        return self._ended(record.position, outcome_of(name, record, how))

    def _original(self, record: ToolResult) -> ToolResult:
        """The result itself, or the earlier attempt's that it reuses."""
        if record.reused is None:
            return record
        original = self._writer.fold.intents[record.intent].result
        assert original is not None
        assert original.seq == record.reused
        return original

    def _partial(self, intent: int) -> list[JsonValue]:
        return list(self._writer.fold.intents[intent].partial)

    def _ended(self, position: int, outcome: ToolOutcome) -> ToolOutcome:
        self._tell(Moment(position, "tool", outcome.name, outcome.how))
        return outcome


def since(begun: float) -> float:
    """Milliseconds since an instant of `time.perf_counter`."""
    return round((time.perf_counter() - begun) * 1000, 3)
