"""The snapshot of a run: what the engine knows, moved by compare-and-swap (ENGINE.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from agentbook.journal.records import ErrorInfo, Wait

VERSION = 1

Status = Literal[
    "running", "waiting", "halted", "rolling_back", "completed", "failed", "cancelled", "aborted", "purged"
]  # fmt: skip
TERMINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled", "aborted", "purged"})

Driver = Literal["worker", "cell"]
WhatKind = Literal["agent", "workflow", "handler", "steps"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Final(_Frozen):
    """How a run ended.

    Attributes:
        journal_seq: the commit that ended it; its output is there. None if none did.
        error: what failed it.
        reason: the bound, limit or cancellation that ended it.
        at: when the engine ended it (RFC 3339 UTC); retention counts from here.
    """

    status: Status
    journal_seq: int | None = None
    step: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    at: str | None = None


class StepSnapshot(_Frozen):
    """One step of a run.

    Attributes:
        dispatch: the number `d` of its newest dispatch; 0 before the first.
        accepted_seq: the last journal record whose event was accepted.
        head: the sequence of its journal's first record.
        turns: iterations that ended in an advancing commit.
        halt: why it is halted, for people.
    """

    status: Status = "running"
    iteration: int = 0
    attempt: int = 1
    dispatch: int = 1
    accepted_seq: int | None = None
    head: int | None = None
    turns: int = 0
    wait: Wait | None = None
    halt: str | None = None
    first_dispatch: str | None = None


class RunSnapshot(_Frozen):
    """A run as the engine sees it. Its journal is the truth about what it did."""

    v: int = VERSION
    run: str
    title: str | None = None
    labels: dict[str, str] = {}
    what: WhatKind
    type: str
    driver: Driver = "worker"
    parent: str | None = None
    code: str | None = None
    input: JsonValue = None
    saga: bool = False
    conversation: bool = False
    status: Status = "running"
    final: Final | None = None
    created: str
    steps: dict[str, StepSnapshot]

    @property
    def ended(self) -> bool:
        """True in every terminal status."""
        return self.status in TERMINAL

    def encode(self) -> bytes:
        return self.model_dump_json(exclude_defaults=False).encode()
