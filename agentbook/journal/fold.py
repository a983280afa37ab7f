"""The fold of a step's records: everything that replay and open decide on (JOURNAL.md).

Pure: `Fold.add` takes one record after the other in the order of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from agentbook.journal.records import (
    FENCING,
    Claim,
    Commit,
    InputPlaced,
    ModelResponse,
    Pause,
    Record,
    Resolution,
    ToolIntent,
    ToolPartial,
    ToolResult,
)
from agentbook.journal.state import restore

_READ_OVERHEAD = 200
"""Bytes of headers that a record brings along when it is read."""


@dataclass(slots=True)
class PastCall:
    """What the journal holds of one tool call.

    Attributes:
        intent: its newest intent; None for a call answered from an earlier attempt.
        partial: what it emitted, in order.
    """

    position: int
    intent: ToolIntent | None
    result: ToolResult | None = None
    resolution: Resolution | None = None
    partial: list[JsonValue] = field(default_factory=list[JsonValue])

    @property
    def open(self) -> bool:
        """True while nothing says how the call ended."""
        return self.result is None and self.resolution is None


@dataclass(slots=True)
class PastAttempt:
    """What the journal holds of one attempt of the iteration under way."""

    calls: dict[int, ModelResponse | PastCall] = field(default_factory=dict[int, "ModelResponse | PastCall"])
    placed: list[InputPlaced] = field(default_factory=list[InputPlaced])
    commit: Commit | None = None

    def tool_calls(self) -> Iterator[PastCall]:
        """Its tool calls in order of position."""
        for position in sorted(self.calls):
            call = self.calls[position]
            if isinstance(call, PastCall):
                yield call


@dataclass(slots=True)
class Fold:
    """A step's journal up to one record.

    Attributes:
        upto: the sequence of the last record folded; 0 for none.
        head: the sequence of the journal's first record.
        holder: the newest claim.
        fence: the id under which records are valid now: that of the newest fencing record.
        closed_by: the pause or commit that ended the newest claim, if one did.
        claims_in_row: how many of the last records are claims.
        iteration: the iteration of the newest record.
        attempts: the attempts of that iteration, by number; none once it has its advancing commit.
        advancing: the last commit that ended an iteration, without its state and output.
        state: the state that commit left.
        snapshot: where the last full state is stored.
        bytes_since: bytes of records since then.
        intents: the iteration's tool calls that have an intent, by its sequence.
        purged: True once the run was purged.
        unremembered: bytes that reading the records since the last memo costs; not part of what is remembered.
        memo_size: bytes of the last memo that was written or weighed.
    """

    upto: int = 0
    head: int | None = None
    holder: Claim | None = None
    fence: str = ""
    closed_by: Pause | Commit | None = None
    claims_in_row: int = 0
    iteration: int = 0
    attempts: dict[int, PastAttempt] = field(default_factory=dict[int, PastAttempt])
    advancing: Commit | None = None
    state: JsonValue = None
    snapshot: int | None = None
    bytes_since: int = 0
    intents: dict[int, PastCall] = field(default_factory=dict[int, PastCall])
    purged: bool = False
    unremembered: int = field(default=0, compare=False)
    memo_size: int = field(default=0, compare=False)

    def attempt(self, number: int) -> PastAttempt:
        """The past of one attempt of the iteration under way, empty if it has none."""
        return self.attempts.setdefault(number, PastAttempt())

    def earlier(self, attempt: int) -> Iterator[PastCall]:
        """Tool calls of the attempts before one, attempt by attempt, in order of position."""
        for number in sorted(self.attempts):
            if number < attempt:
                yield from self.attempts[number].tool_calls()

    def add(self, record: Record, size: int = 0) -> None:
        """Fold one more record, which the stream holds after every one folded before.

        Args:
            record: the record.
            size: its bytes in the stream.
        """
        self.upto = record.seq
        self.head = record.seq if self.head is None else self.head
        self.bytes_since += size
        self.unremembered += size + _READ_OVERHEAD
        self.claims_in_row = self.claims_in_row + 1 if isinstance(record, Claim) else 0
        if record.kind in FENCING:
            self.fence = record.claim
            if not isinstance(record, Resolution):
                # A resolution leaves the claim as closed as it was: only the next dispatch goes on.
                self.closed_by = None
        if record.iteration > self.iteration:
            self.iteration = record.iteration
            self.attempts = {}
            self.intents = {}
        past = self.attempt(record.attempt)
        match record:
            case Claim():
                self.holder = record
            case ModelResponse():
                past.calls[record.position] = record
            case ToolIntent():
                call = PastCall(record.position, record)
                past.calls[record.position] = call
                self.intents[record.seq] = call
            case ToolPartial():
                self.intents[record.intent].partial.append(record.output)
            case ToolResult(reused=None):
                self.intents[record.intent].result = record
            case ToolResult():
                past.calls[record.position] = PastCall(record.position, None, record)
            case InputPlaced():
                past.placed.append(record)
            case Resolution():
                if record.of in self.intents:
                    self.intents[record.of].resolution = record
            case Pause():
                self.closed_by = record
            case Commit():
                self._commit(record, past, size)
            case _:
                self.purged = self.purged or record.kind == "purged"

    def _commit(self, record: Commit, past: PastAttempt, size: int) -> None:
        # What a commit carries goes into the fold's own state; holding it here too would double it.
        light = record.model_copy(update={"state": None, "output": None})
        past.commit = light
        self.closed_by = light
        if not record.advancing:
            return
        self.advancing = light
        # Final for its iteration: no later call can match what is recorded in it.
        self.attempts = {}
        self.intents = {}
        if record.action == "abort":
            return
        self.state = restore(self.state, record)
        if record.snapshot is None:
            self.snapshot = record.seq
            self.bytes_since = 0


def fold(records: Iterable[Record]) -> Fold:
    """Fold a step's records from the first."""
    result = Fold()
    for record in records:
        result.add(record)
    return result
