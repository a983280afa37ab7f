"""One holder at one place of a turn: what the chip there is decided on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentbook.journal.records import ErrorInfo, Record, Resolution
from agentbook.views.blocks import Chip
from agentbook.views.index import Index
from agentbook.views.slots import Slot
from agentbook.views.words import visible

Kind = TypeVar("Kind", bound=Record)

_SAID = {"happened": "it happened", "failed": "it failed", "did_not_happen": "it did not happen"}


@dataclass(frozen=True, slots=True)
class Stand:
    """One holder at one place.

    Attributes:
        own: what this holder recorded there.
        before: what others had recorded there when it took over.
        reached: the holder got as far as this place.
        live: the holder is at work now.
        halted: the holder paused until somebody says how a call ended.
        asleep: the holder paused until an instant or an answer.
        cursor: the holder's replay cursor stands exactly here.
        call: the call a live holder says it makes here.
        first: nothing ran on this row before.
    """

    slot: Slot
    column: int
    found: Index
    own: Sequence[Record]
    before: Sequence[Record]
    reached: bool
    live: bool
    halted: bool
    asleep: bool
    cursor: bool
    call: str | None
    first: bool

    def handed_out(self, replayed: Chip) -> Chip | None:
        """What others recorded, as this holder met it: replayed, or not reached yet."""
        if self.reached:
            return replayed
        if not self.live:
            return None
        return Chip(
            replayed.column, replayed.kind, replayed.name, replayed.declared, "next",
            "recorded, not reached yet", replayed.seq, began=replayed.began, key=replayed.key, cursor=self.cursor,
        )  # fmt: skip


def last(records: Sequence[Record], kind: type[Kind]) -> Kind | None:
    """The newest record of one kind."""
    return next((record for record in reversed(records) if isinstance(record, kind)), None)


def said(resolution: Resolution, verb: str = "said") -> str:
    """Who said how a call ended, and what."""
    return f"{visible(resolution.by, 30)} {verb} {_SAID[resolution.outcome]}"


def shown(error: ErrorInfo) -> str:
    """An error on one short line."""
    return visible(f"{error.type}: {error.message}" if error.message else error.type, 90)
