"""The columns of a turn, and which records stand in each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from agentbook.journal.records import (
    Answer,
    InputPlaced,
    ModelResponse,
    Question,
    Record,
    Resolution,
    SagaCompensated,
    SagaFailed,
    StepAttempt,
    StepError,
    StepValue,
    Timer,
    ToolIntent,
    ToolPartial,
    ToolResult,
)
from agentbook.views.index import Index
from agentbook.views.words import visible

SlotKind = Literal["call", "earlier", "input", "step", "timer", "question", "saga", "resolution"]
SlotId = tuple[SlotKind, int | str]


@dataclass(slots=True)
class Slot:
    """One column before it has an index.

    Attributes:
        order: sorts columns: positions ascending, what has no position where it first happened.
        records: what was recorded there, by whomever, in order.
    """

    kind: SlotKind
    order: tuple[int, int, int]
    label: str
    position: int | None = None
    records: list[Record] = field(default_factory=list[Record])


def slots(records: Iterable[Record], found: Index, cursor: int | None) -> list[Slot]:
    """The columns of one turn, from left to right.

    Args:
        records: the records of one attempt of an iteration.
        found: the index of the whole journal.
        cursor: a position that has a column even if nothing is recorded there.
    """
    table: dict[SlotId, Slot] = {}
    of_record: dict[int, Slot] = {}
    edge = 0
    for record in records:
        slot_id = _slot_id(record, found, of_record)
        if slot_id is None:
            continue
        if isinstance(slot_id, Slot):
            slot = slot_id
        else:
            slot = table.get(slot_id) or _new(slot_id, record, edge)
            table[slot_id] = slot
        slot.records.append(record)
        of_record[record.seq] = slot
        if slot.position is not None:
            edge = max(edge, slot.position + 1)
    if cursor is not None and ("call", cursor) not in table:
        table["call", cursor] = Slot("call", (cursor, 1, 0), f"position {cursor}", cursor)
    return sorted(table.values(), key=lambda slot: slot.order)


def _slot_id(record: Record, found: Index, of_record: dict[int, Slot]) -> SlotId | Slot | None:
    match record:
        case ModelResponse() | ToolIntent():
            return "call", record.position
        case ToolResult():
            intent = found.intents.get(record.intent)
            if record.reused is None and intent is not None and intent.attempt != record.attempt:
                return "earlier", intent.seq
            return "call", record.position
        case ToolPartial():
            return of_record.get(record.intent)
        case InputPlaced():
            return "input", record.request_id
        case StepAttempt() | StepValue() | StepError():
            return "step", record.name
        case Timer():
            return "timer", record.name
        case Question() | Answer():
            return "question", record.id
        case SagaFailed():
            return "saga", -1
        case SagaCompensated():
            return "saga", record.of
        case Resolution():
            return of_record.get(record.of) or ("resolution", record.of)
        case _:
            return None


def _new(slot_id: SlotId, record: Record, edge: int) -> Slot:
    kind, name = slot_id
    match kind:
        case "call":
            assert isinstance(name, int)
            return Slot(kind, (name, 1, 0), f"position {name}", name)
        case "earlier":
            return Slot(kind, (-1, 0, record.seq), "left open before")
        case "input":
            assert isinstance(record, InputPlaced)
            return Slot(kind, (record.position, 0, record.seq), "input")
        case "timer":
            return Slot(kind, (edge, 0, record.seq), "sleep")
        case "saga":
            return Slot(kind, (edge, 0, record.seq), "rollback")
        case "step" | "question" | "resolution":
            label = kind if kind != "step" else f"step {visible(str(name), 24)}"
            return Slot(kind, (edge, 0, record.seq), label)
