"""How a tool call ended, as a handler and a model see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentbook import codec
from agentbook.errors import OutcomeUnknown, ToolError
from agentbook.journal.records import ErrorInfo, Interruption, ToolResult

How = Literal["ran", "replayed", "re-ran", "interrupted", "reused", "resolved"]


@dataclass(frozen=True, slots=True)
class Moment:
    """What a holder does at a position, for those who watch."""

    position: int
    kind: Literal["model", "tool"]
    name: str
    how: How | Literal["started"]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a tool call ended: with exactly one of an output, an error or an interruption.

    Attributes:
        name: the tool's name.
        output: what it returned, decoded from the journal.
        error: what it raised.
        interrupted: why its outcome is unknown, and what it had emitted.
        how: how this holder came by it.
    """

    name: str
    output: object = None
    error: ErrorInfo | None = None
    interrupted: Interruption | None = None
    how: How = "ran"

    @property
    def replayed(self) -> bool:
        """True if the journal answered and nothing ran."""
        return self.how in ("replayed", "reused")

    def value(self) -> object:
        """The output.

        Raises:
            ToolError: the tool raised.
            OutcomeUnknown: it may or may not have happened.
        """
        if self.error is not None:
            raise ToolError(self.error.type, self.error.message)
        if self.interrupted is not None:
            raise OutcomeUnknown(f"{self.name} may or may not have happened: {self.interrupted.cause}")
        return self.output


def outcome_of(name: str, record: ToolResult, how: How) -> ToolOutcome:
    """What a stored result says. A reused one must be looked up first."""
    if record.error is not None:
        return ToolOutcome(name, error=record.error, how=how)
    if record.interrupted is not None:
        return ToolOutcome(name, interrupted=record.interrupted, how=how)
    return ToolOutcome(name, output=codec.decode(record.output), how=how)
