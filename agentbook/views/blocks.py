"""The shape of a timeline: blocks of rows of chips.

A block is a turn (one attempt of an iteration). Its columns are positions, its rows are
holders, so that a replayed call stands right under the one that ran. Everything here is
a plain value: `to_json` of it is what a widget gets, and a block can be sent alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from pydantic import JsonValue

from agentbook.journal.records import Replay
from agentbook.views.words import State

ChipKind = Literal["model", "tool", "input", "step", "wait", "question", "saga"]
RowState = Literal["live", "dead", "paused", "done", "ended", "said"]
MarkKind = Literal["commit", "failed", "paused", "died", "fenced", "ended"]
Outcome = Literal[
    "running", "lost", "waiting", "halted", "settled", "committed", "completed", "aborted", "failed", "given up", "cut"
]  # fmt: skip
"""How a turn stands: `lost` has no holder, `settled` waits for one after someone said how a call ended."""

UNDER_WAY: frozenset[Outcome] = frozenset({"running", "lost", "waiting", "halted", "settled"})
"""Outcomes of a turn that can still grow."""


@dataclass(frozen=True, slots=True)
class Column:
    """One place within a turn.

    Attributes:
        label: what stands above it.
        position: the call's position; None for what has a name instead.
    """

    label: str
    position: int | None


@dataclass(frozen=True, slots=True)
class Chip:
    """One call, input, step or wait, as one holder met it.

    Attributes:
        column: index of its column in the block.
        name: whose call it is; safe to show, never safe to interpret.
        declared: how the tool or step is declared; None for what has no declaration.
        state: how its value was obtained.
        note: the state in words, with what is particular about it.
        seq: the record it shows; None for what is not recorded.
        began: the record that says it was started; None if that is the same one or there is none.
        ms: how long it ran.
        key: its idempotency key.
        cursor: True where a live holder stands.
    """

    column: int
    kind: ChipKind
    name: str
    declared: Replay | None
    state: State
    note: str
    seq: int | None
    began: int | None = None
    ms: float | None = None
    key: str | None = None
    cursor: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """How a holder's row ends.

    Attributes:
        column: the column it stands in: the one after the row's last chip.
        seq: the record that ended it; None if none did.
    """

    column: int
    kind: MarkKind
    text: str
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """What stands between two holders.

    Attributes:
        closed: True if the older holder had stopped by itself, so that nothing was taken from it.
        seq: the claim or resolution that did it.
    """

    closed: bool
    text: str
    seq: int


@dataclass(frozen=True, slots=True)
class Row:
    """One holder in one turn, or a person who said how a call ended.

    Attributes:
        claim: the claim's id in full.
        holder: who it is, for example ``kernel 4188``.
        note: the claim, its record and how the holder fares.
        seq: the record with which it took over.
        fence: what stands above the row.
    """

    claim: str
    holder: str
    state: RowState
    note: str
    seq: int
    chips: tuple[Chip, ...]
    mark: Mark | None
    fence: Fence | None


@dataclass(frozen=True, slots=True)
class Block:
    """One turn: an attempt of an iteration.

    Attributes:
        id: ``{iteration}.{attempt}``; it never changes, and a block replaces the one of its id.
        title: ``turn 1`` or ``turn 1 · attempt 2``.
        headline: how it went.
        line: the whole turn in one line.
        quiet: one holder and no incident: it may be folded to its line.
        outcome: how it stands.
        first: its first record.
        last: its last record.
    """

    id: str
    iteration: int
    attempt: int
    title: str
    headline: str
    line: str
    quiet: bool
    outcome: Outcome
    first: int
    last: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def to_json(value: object) -> JsonValue:
    """A view as JSON. Fields that are None or False are left out."""
    return _plain(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {
            field.name: _plain(held)
            for field in fields(value)
            if (held := getattr(value, field.name)) is not None and held is not False
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
