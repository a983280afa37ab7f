"""Chips of what has no position: named steps, inputs, sleeps, questions, rollback, resolutions."""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from agentbook.journal.records import (
    Answer,
    InputPlaced,
    Question,
    Record,
    Resolution,
    SagaCompensated,
    SagaFailed,
    StepAttempt,
    StepError,
    StepValue,
    Timer,
)
from agentbook.views.blocks import Chip, ChipKind
from agentbook.views.stand import Stand, last, said, shown
from agentbook.views.words import State, visible


def step_chip(stand: Stand) -> Chip | None:
    """The chip of a named step; None where the holder never came to."""
    own = stand.own[-1] if stand.own else None
    match own:
        case None:
            return _foreign_step(stand)
        case StepAttempt():
            if not stand.live:
                return _step(stand, "unknown", _no_result(stand), own)
            return _step(stand, "running", "running again" if stand.before else "running now", own)
        case StepValue():
            tried = any(isinstance(record, StepAttempt | StepError) for record in stand.before)
            if tried:
                return _step(stand, "reran", "ran again · value kept", own)
            return _step(stand, "ran", "ran · value kept", own)
        case StepError() if own.outcome == "unknown":
            return _step(stand, "unknown", f"may have happened · {shown(own.error)}", own)
        case StepError():
            how = "did not start, may run again" if own.outcome == "not_started" else "failed, may run again"
            return _step(stand, "error", f"{how} · {shown(own.error)}", own)
        case Resolution():
            return _step(stand, "error" if own.outcome == "failed" else "recorded", said(own, "says"), own)
        case _:
            return None


def _foreign_step(stand: Stand) -> Chip | None:
    newest = stand.before[-1] if stand.before else None
    match newest:
        case StepValue():
            return stand.handed_out(_step(stand, "replayed", "replayed", newest))
        case Resolution() if newest.outcome != "did_not_happen":
            return stand.handed_out(_step(stand, "replayed", f"replayed: {said(newest)}", newest))
        case StepAttempt() | StepError() if stand.halted:
            return _step(stand, "unknown", _no_result(stand), newest)
        case _:
            return None


def _no_result(stand: Stand) -> str:
    return "started, no result" + (": someone must say how it ended" if stand.halted else "")


def _step(stand: Stand, state: State, note: str, record: Record) -> Chip:
    everything = [*stand.before, *stand.own]
    marker = last(everything, StepAttempt)
    name = next((r.name for r in everything if isinstance(r, StepAttempt | StepValue | StepError)), "step")
    return Chip(
        # Only unsafe steps have a marker: a step without one is declared safe (COMPOSE.md, step).
        stand.column, "step", visible(name), "safe" if marker is None else marker.replay, state, note, record.seq,
        began=None if marker is None or marker.seq == record.seq else marker.seq,
    )  # fmt: skip


def fact_chip(stand: Stand) -> Chip | None:
    """The chip of a fact of the run; None where the holder never came to."""
    if not stand.own:
        described = _fact(stand, stand.before[-1]) if stand.before else None
        if described is None:
            return None
        kind, name, _, _, seq = described
        return stand.handed_out(Chip(stand.column, kind, name, None, "replayed", "replayed", seq))
    described = _fact(stand, stand.own[-1])
    if described is None:
        return None
    kind, name, state, note, seq = described
    return Chip(stand.column, kind, name, None, state, note, seq)


def _fact(stand: Stand, record: Record) -> tuple[ChipKind, str, State, str, int] | None:
    waiting: State = "waiting" if stand.asleep else "recorded"
    match record:
        case InputPlaced():
            note = f"read by the call at position {record.position}"
            return "input", f"{visible(record.mode, 20)} {_quoted(record.content)}", "recorded", note, record.seq
        case Timer():
            until = f"until {visible(record.wake_at, 40)}"
            return "wait", f"sleep {visible(record.name, 60)}", waiting, until, record.seq
        case Question():
            note = "asked, waits for an answer" if stand.asleep else "asked"
            return "question", _quoted(record.prompt), waiting, note, record.seq
        case Answer():
            asked = last([*stand.before, *stand.own], Question)
            by = f" by {visible(record.by, 30)}" if record.by else ""
            name = _quoted(asked.prompt) if asked is not None else visible(record.id)
            return "question", name, "recorded", f"answered{by}: {_quoted(record.value)}", record.seq
        case SagaFailed():
            return "saga", "rollback", "error", f"began after {shown(record.cause)}", record.seq
        case SagaCompensated():
            intent = stand.found.intents.get(record.of)
            name = f"undo {visible(intent.name) if intent is not None else f'record {record.of}'}"
            if record.error is not None:
                return "saga", name, "error", f"failed · {shown(record.error)}", record.seq
            return "saga", name, "ran", "undone", record.seq
        case Resolution():
            return "saga", f"record {record.of}", "recorded", said(record, "says"), record.seq
        case _:
            return None


def _quoted(value: JsonValue) -> str:
    text = value if isinstance(value, str) else to_json(value).decode("utf-8", "replace")
    return f"“{visible(text, 60)}”"
