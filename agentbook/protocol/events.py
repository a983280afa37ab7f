"""Lifecycle events: each is built from one journal record alone (ENGINE.md).

The same record always gives the same event under the same message id, so that a
successor can publish it again after its writer died.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentbook.errors import FormatVersion
from agentbook.journal.records import Commit, ErrorInfo, Pause, Resolution, Wait
from agentbook.protocol.snapshot import Status

VERSION = 1

StepEventType = Literal[
    "step.continue", "step.completed", "step.aborted", "step.failed", "step.paused", "step.resolved"
]

_OF_ACTION: dict[str, StepEventType] = {
    "continue": "step.continue",
    "complete": "step.completed",
    "abort": "step.aborted",
    "fail": "step.failed",
}


class StepEvent(BaseModel):
    """A step's holder ended or paused its iteration, or somebody said how its halted calls ended.

    Attributes:
        journal_seq: the record it was built from: its identity and its order.
        head: the sequence of the journal's first record, where the record names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = VERSION
    type: StepEventType
    run: str
    step: str
    iteration: int
    attempt: int
    journal_seq: int
    head: int | None = None
    error: ErrorInfo | None = None
    retriable: bool | None = None
    reason: str | None = None
    cause: str | None = None
    wait: Wait | None = None

    @property
    def message_id(self) -> str:
        """The message id that makes publishing it again harmless."""
        return f"{self.run}.{self.step}.{self.journal_seq}"

    @property
    def advancing(self) -> bool:
        """True if the record ended the iteration."""
        return self.type in ("step.continue", "step.completed", "step.aborted")

    def encode(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


class RunEvent(BaseModel):
    """A run ended; published once under the id ``{run}.end``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = VERSION
    type: Literal["run.completed", "run.failed", "run.cancelled", "run.aborted"]
    run: str
    status: Status

    @property
    def message_id(self) -> str:
        return f"{self.run}.end"

    def encode(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


Event = Annotated[StepEvent | RunEvent, Field(discriminator="type")]

_adapter: TypeAdapter[StepEvent | RunEvent] = TypeAdapter(Event)


def decode(data: bytes) -> StepEvent | RunEvent:
    """Read one event of a run's history.

    Raises:
        FormatVersion: it was written by another version.
    """
    event = _adapter.validate_json(data)
    if event.v != VERSION:
        raise FormatVersion(f"event of run {event.run} has format version {event.v}, this agentbook reads {VERSION}")
    return event


def event_of(record: Commit | Pause | Resolution) -> StepEvent:
    """The event of a stored commit or pause, or of the resolution that left no call halted."""
    if isinstance(record, Resolution):
        return StepEvent(
            type="step.resolved", run=record.run, step=record.step, iteration=record.iteration,
            attempt=record.attempt, journal_seq=record.seq,
        )  # fmt: skip
    common = {
        "run": record.run, "step": record.step, "iteration": record.iteration, "attempt": record.attempt,
        "journal_seq": record.seq, "head": record.head, "wait": record.wait,
    }  # fmt: skip
    if isinstance(record, Pause):
        return StepEvent.model_validate(
            {**common, "type": "step.paused", "reason": record.reason, "cause": record.cause}
        )
    return StepEvent.model_validate(
        {
            **common,
            "type": _OF_ACTION[record.action],
            "error": record.error,
            "retriable": record.retriable,
            "reason": record.reason,
        }
    )
