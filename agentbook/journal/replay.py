"""The replay rules: what becomes of a call, given what the journal holds (JOURNAL.md, Replay rules).

Pure: no clock, no network, no writing. `model_call` and `tool_call` are asked before
anything runs; their answer says what to do.

Within one attempt, calls are matched by position:

| recorded at this position | recorded / current declaration | answer |
|---|---|---|
| a model response | | `Recorded` |
| an intent and its result | any | `Recorded` |
| an intent only, resolved as not happened | any | `RunAgain` under a new intent |
| an intent only | safe / safe | `RunAgain` under the same intent |
| an intent only | any other pair | `Interrupted`, or `Halt` if the tool leaves it to a person |
| nothing | | `Live` |

A new attempt runs fresh, except that each unsafe intent of an earlier attempt is honoured
once: `Reuse`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from agentbook import codec
from agentbook.errors import ReplayMismatch
from agentbook.ids import call_key
from agentbook.journal.fold import Fold, PastCall
from agentbook.journal.records import ModelResponse, OnUnknown, Replay, ToolIntent, ToolResult


@dataclass(frozen=True, slots=True)
class Live:
    """Nothing is recorded: the call runs now.

    Attributes:
        key: the idempotency key of a tool call; empty for a model call.
    """

    key: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The journal has the outcome; nothing runs."""

    record: ModelResponse | ToolResult


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The call was started, and starting it again is harmless.

    Attributes:
        intent: the intent its result answers; None if a new one is to be written first.
    """

    key: str
    intent: int | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The call was started, its outcome is unknown and it must not start again."""

    intent: int
    partial: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Halt:
    """The same, of a tool declared ``on_unknown="halt"``: a person is to say how it ended."""

    call: PastCall


@dataclass(frozen=True, slots=True)
class Resolved:
    """A person or a reconciler said how the call ended; its intent gets that as its result."""

    call: PastCall


@dataclass(frozen=True, slots=True)
class Reuse:
    """An earlier attempt made this very call; its result counts for this one.

    Attributes:
        result: that result.
    """

    result: ToolResult


ModelAnswer = Live | Recorded
ToolAnswer = Live | Recorded | RunAgain | Interrupted | Halt | Resolved | Reuse


def model_call(past: Fold, attempt: int, position: int) -> ModelAnswer:
    """What becomes of a model call.

    Raises:
        ReplayMismatch: a tool call is recorded at this position.
    """
    recorded = past.attempt(attempt).calls.get(position)
    match recorded:
        case None:
            return Live()
        case ModelResponse():
            return Recorded(recorded)
        case PastCall():
            raise ReplayMismatch(position, _shown(recorded), "a model call", _cause(past))


def tool_call(
    past: Fold,
    attempt: int,
    position: int,
    name: str,
    value: JsonValue,
    declared: Replay | None,
    on_unknown: OnUnknown = "tell_model",
    *,
    batch: Sequence[ToolAnswer] = (),
) -> ToolAnswer:
    """What becomes of a tool call.

    Args:
        past: the fold of the step's journal.
        attempt: the attempt under way.
        position: the call's position in the turn.
        name: the tool's name.
        value: its input.
        declared: the tool's current declaration; None if it is not registered any more.
        on_unknown: what the tool wants where its outcome is unknown.
        batch: the answers to the calls before it that run at the same time, and of which nothing is written yet.

    Raises:
        ReplayMismatch: another call is recorded at this position.
    """
    recorded = past.attempt(attempt).calls.get(position)
    if recorded is None:
        return _fresh(past, attempt, position, name, value, batch)
    if isinstance(recorded, ModelResponse) or not _same(recorded, name, value, past):
        raise ReplayMismatch(position, _shown(recorded), _rendered(name, value), _cause(past))
    if recorded.result is not None:
        return Recorded(recorded.result)
    assert recorded.intent is not None, "a call without an intent has a result"
    if recorded.resolution is not None:
        if recorded.resolution.outcome == "did_not_happen":
            return RunAgain(recorded.intent.key, None)
        return Resolved(recorded)
    if recorded.intent.replay == "safe" and declared == "safe":
        return RunAgain(recorded.intent.key, recorded.intent.seq)
    if on_unknown == "halt":
        return Halt(recorded)
    return Interrupted(recorded.intent.seq, tuple(recorded.partial))


def no_call_left_out(past: Fold, attempt: int, made: int) -> None:
    """Refuse to end a turn whose handler made fewer calls than are recorded: it is other code.

    Args:
        made: how many calls the handler has made.

    Raises:
        ReplayMismatch: a call is recorded at a later position.
    """
    left = [position for position in past.attempt(attempt).calls if position >= made]
    if left:
        recorded = past.attempt(attempt).calls[min(left)]
        raise ReplayMismatch(min(left), _shown(recorded), "the end of the turn", _cause(past))


def open_before(past: Fold, attempt: int) -> list[PastCall]:
    """Calls of earlier attempts that nothing has ended: a new attempt closes them (Open 6)."""
    return [call for call in past.earlier(attempt) if call.intent is not None and call.open]


def resolved_before(past: Fold, attempt: int) -> list[PastCall]:
    """Calls of earlier attempts of which somebody said how they ended: a new attempt honours that as their result."""
    return [
        call
        for call in past.earlier(attempt)
        if call.result is None and call.resolution is not None and call.resolution.outcome != "did_not_happen"
    ]


def _fresh(
    past: Fold, attempt: int, position: int, name: str, value: JsonValue, batch: Sequence[ToolAnswer]
) -> ToolAnswer:
    honoured = {
        call.result.reused
        for call in past.attempt(attempt).tool_calls()
        if call.result is not None and call.result.reused is not None
    } | {answer.result.seq for answer in batch if isinstance(answer, Reuse)}
    for call in past.earlier(attempt):
        if call.intent is None or call.intent.replay != "unsafe" or not _matches(call.intent, name, value):
            continue
        if call.result is not None and call.result.seq not in honoured:
            return Reuse(call.result)
    return Live(_key(past, attempt, position, name, value, batch))


def _key(past: Fold, attempt: int, position: int, name: str, value: JsonValue, batch: Sequence[ToolAnswer]) -> str:
    """The key of a call that runs now: inherited from an equal call of an earlier attempt, else new."""
    assert past.holder is not None, "a call has a claim"
    run, step, iteration = past.holder.run, past.holder.step, past.iteration
    if attempt == 1:
        return call_key(run, step, iteration, position)
    taken = {intent.key for intent in _intents(past, attempt)} | set(_keys(past, batch))
    earlier = [call.intent for call in past.earlier(attempt) if call.intent is not None]
    for intent in sorted(earlier, key=lambda intent: _number(intent.key)):
        if intent.key not in taken and _matches(intent, name, value):
            return intent.key
    used = [_number(intent.key) for intent in earlier] + [_number(key) for key in taken]
    first = past.attempts.get(1)
    used += list(first.calls) if first is not None else []
    return call_key(run, step, iteration, max(used, default=-1) + 1)


def _intents(past: Fold, attempt: int) -> Iterator[ToolIntent]:
    """The intents an attempt stands on: its own, and those of earlier attempts whose results it reuses."""
    for call in past.attempt(attempt).tool_calls():
        intent = call.intent or _reused_intent(call, past)
        if intent is not None:
            yield intent


def _keys(past: Fold, batch: Sequence[ToolAnswer]) -> Iterator[str]:
    """The keys that the calls before this one take."""
    for answer in batch:
        if isinstance(answer, Live | RunAgain):
            yield answer.key
        elif isinstance(answer, Reuse) and (original := past.intents[answer.result.intent].intent) is not None:
            yield original.key


def _number(key: str) -> int:
    return int(key.rpartition(".")[2])


def _matches(intent: ToolIntent, name: str, value: JsonValue) -> bool:
    return intent.name == name and codec.equal(intent.input, value)


def _same(recorded: PastCall, name: str, value: JsonValue, past: Fold) -> bool:
    intent = recorded.intent or _reused_intent(recorded, past)
    return intent is not None and _matches(intent, name, value)


def _reused_intent(recorded: PastCall, past: Fold) -> ToolIntent | None:
    """The intent of the earlier attempt whose result a call reuses."""
    assert recorded.result is not None, "a call without an intent has a result"
    original = past.intents.get(recorded.result.intent)
    return None if original is None else original.intent


def _shown(recorded: ModelResponse | PastCall) -> str:
    if isinstance(recorded, ModelResponse):
        return f"a model call ({recorded.model}), record {recorded.seq}"
    if recorded.intent is None:
        return "a tool call answered from an earlier attempt"
    return f"{_rendered(recorded.intent.name, recorded.intent.input)}, record {recorded.intent.seq}"


def _rendered(name: str, value: JsonValue) -> str:
    text = codec.canonical(value).decode("utf-8", "backslashreplace")
    return f"tool {name}({text if len(text) <= 200 else text[:197] + '…'})"


def _cause(past: Fold) -> str:
    return (
        "Likely cause: the code of the agent, handler or tools changed after the turn began, or it depends on "
        "something that differs between runs (time, random numbers, a global)."
        if past.holder is not None
        else ""
    )
