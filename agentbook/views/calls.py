"""Chips of positional calls: models and tools."""

from __future__ import annotations

from agentbook.journal.records import ModelResponse, Resolution, ToolIntent, ToolPartial, ToolResult
from agentbook.views.blocks import Chip
from agentbook.views.stand import Stand, last, said, shown
from agentbook.views.words import State, duration, plural, visible


def call_chip(stand: Stand) -> Chip | None:
    """The chip of a call; None where the holder never came to."""
    answer = last(stand.own, ModelResponse)
    if answer is not None:
        return _model(stand, answer, "ran", f"ran · {duration(answer.ms)}", ms=answer.ms)
    if stand.own:
        return _own_tool(stand)
    answer = last(stand.before, ModelResponse)
    if answer is not None:
        return stand.handed_out(_model(stand, answer, "replayed", "replayed · 0 requests"))
    if stand.before:
        return _foreign_tool(stand)
    return _unrecorded(stand) if stand.cursor else None


def _unrecorded(stand: Stand) -> Chip:
    name = "next call" if stand.call is None else visible(stand.call)
    note = "running now, first live call" if stand.first else "running now"
    kind = "model" if stand.call == "model" else "tool"
    return Chip(stand.column, kind, name, None, "running", note, None, cursor=True)


def _model(stand: Stand, answer: ModelResponse, state: State, note: str, ms: float | None = None) -> Chip:
    return Chip(stand.column, "model", "model", None, state, note, answer.seq, ms=ms, cursor=stand.cursor)


def _tool(stand: Stand, state: State, note: str, seq: int, ms: float | None = None) -> Chip:
    everything = [*stand.before, *stand.own]
    intent = last(everything, ToolIntent)
    if intent is None:
        result = last(everything, ToolResult)
        intent = None if result is None else stand.found.intents.get(result.intent)
    if intent is None:
        return Chip(stand.column, "tool", "tool", None, state, note, seq, ms=ms, cursor=stand.cursor)
    return Chip(
        stand.column, "tool", visible(intent.name), intent.replay, state, note, seq,
        began=None if intent.seq == seq else intent.seq, ms=ms, key=visible(intent.key, 700), cursor=stand.cursor,
    )  # fmt: skip


def _own_tool(stand: Stand) -> Chip:
    newest = next(record for record in reversed(stand.own) if not isinstance(record, ToolPartial))
    match newest:
        case Resolution():
            state: State = "error" if newest.outcome == "failed" else "recorded"
            return _tool(stand, state, said(newest, "says"), newest.seq)
        case ToolResult():
            state, note = _ended(stand, newest)
            timed = state in ("ran", "reran", "error")
            return _tool(stand, state, note, newest.seq, ms=newest.ms if timed else None)
        case _:
            if stand.live:
                again = "running again" if last(stand.before, ToolIntent) else "running now"
                return _tool(stand, "running", again + _emitted(stand), newest.seq)
            return _tool(stand, "unknown", _no_result(stand), newest.seq)


def _ended(stand: Stand, result: ToolResult) -> tuple[State, str]:
    """How a result that this holder recorded came about."""
    origin = stand.found.intents.get(result.intent)
    resolution = last([*stand.before, *stand.own], Resolution)
    if result.reused is not None:
        earlier = stand.found.results.get(result.reused)
        return "replayed", "reused from " + ("an earlier attempt" if earlier is None else f"attempt {earlier.attempt}")
    if result.interrupted is not None:
        return _interrupted(stand, result, origin)
    if resolution is not None and resolution.outcome != "did_not_happen":
        return "error" if resolution.outcome == "failed" else "recorded", said(resolution)
    if origin is not None and origin.claim != result.claim and origin.replay == "unsafe":
        # Only a reconciler can have told the outcome of an unsafe call that another holder started.
        return ("recorded", "looked up: it had happened") if result.error is None else ("error", "looked up: it failed")
    if result.error is not None:
        return "error", f"failed · {shown(result.error)}"
    if resolution is not None:
        return "reran", f"ran again: it had not happened · {duration(result.ms)}"
    if last(stand.before, ToolIntent) is not None:
        return "reran", f"ran again (safe) · {duration(result.ms)}"
    return "ran", f"ran · {duration(result.ms)}"


def _interrupted(stand: Stand, result: ToolResult, origin: ToolIntent | None) -> tuple[State, str]:
    assert result.interrupted is not None
    if stand.slot.kind == "earlier" and origin is not None and origin.replay == "safe":
        return "recorded", "closed: its attempt is over"
    cancelled = result.interrupted.cause == "cancelled"
    note = "may have happened: cut by the cancellation" if cancelled else "may have happened: not run again"
    kept = len(result.interrupted.partial)
    return "interrupted", note + (f" · {plural(kept, 'partial output')} kept" if kept else "")


def _foreign_tool(stand: Stand) -> Chip | None:
    result, intent = last(stand.before, ToolResult), last(stand.before, ToolIntent)
    resolution = last(stand.before, Resolution)
    if result is not None:
        note = "replayed"
        if result.interrupted is not None:
            note = "replayed: may have happened, not run again"
        elif result.error is not None:
            note = f"replayed: the recorded error · {shown(result.error)}"
        return stand.handed_out(_tool(stand, "replayed", note, result.seq))
    if intent is None:
        return None
    if resolution is not None and resolution.seq > intent.seq and resolution.outcome != "did_not_happen":
        return stand.handed_out(_tool(stand, "replayed", f"replayed: {said(resolution)}", resolution.seq))
    if stand.halted:
        return _tool(stand, "unknown", _no_result(stand), intent.seq)
    if not stand.live:
        return None
    if stand.cursor:
        return _tool(stand, "running", "running again", intent.seq)
    return _tool(stand, "next", "started before, no result", intent.seq)


def _no_result(stand: Stand) -> str:
    halted = ": someone must say how it ended" if stand.halted else ""
    return "started, no result" + halted + _emitted(stand)


def _emitted(stand: Stand) -> str:
    count = sum(isinstance(record, ToolPartial) for record in stand.own)
    return f" · {plural(count, 'partial output')}" if count else ""
