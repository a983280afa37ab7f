"""A journal's records, looked up by what refers to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentbook.journal.records import (
    FENCING,
    Claim,
    Commit,
    Pause,
    Purged,
    Record,
    Resolution,
    StepAttempt,
    ToolIntent,
    ToolResult,
)
from agentbook.views.words import visible


@dataclass(slots=True)
class Index:
    """What records of one (run, step) journal point at.

    Attributes:
        claims: the claim record of each claim id.
        intents: tool intents by their sequence.
        results: tool results by their sequence.
        markers: markers of unsafe steps by their sequence.
        fences: every record that fences, in order.
        closed: claims that ended themselves with a commit or pause.
        purged: the tombstone of a purge.
    """

    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    intents: dict[int, ToolIntent] = field(default_factory=dict[int, ToolIntent])
    results: dict[int, ToolResult] = field(default_factory=dict[int, ToolResult])
    markers: dict[int, StepAttempt] = field(default_factory=dict[int, StepAttempt])
    fences: list[Claim | Resolution | Purged] = field(default_factory=list["Claim | Resolution | Purged"])
    closed: set[str] = field(default_factory=set[str])
    purged: Purged | None = None

    def fence_after(self, seq: int) -> Record | None:
        """The first record after `seq` that fenced whoever wrote `seq`; None if that is still the newest."""
        start = bisect_right(self.fences, seq, key=lambda fence: fence.seq)
        return self.fences[start] if start < len(self.fences) else None

    def claim_before(self, claim: Claim) -> Claim | None:
        """The claim that a claim took over from, if it did so directly."""
        end = bisect_right(self.fences, claim.seq - 1, key=lambda fence: fence.seq)
        before = self.fences[end - 1] if end else None
        return before if isinstance(before, Claim) else None

    def holder(self, claim: str) -> str:
        """Who wrote under a claim, for people."""
        known = self.claims.get(claim)
        return visible(known.worker, 40) if known is not None else "unknown holder"


def index(records: Sequence[Record]) -> Index:
    """Look through a journal once."""
    found = Index()
    for record in records:
        match record:
            case Claim():
                found.claims[record.claim] = record
            case ToolIntent():
                found.intents[record.seq] = record
            case ToolResult():
                found.results[record.seq] = record
            case StepAttempt():
                found.markers[record.seq] = record
            case Commit() | Pause():
                found.closed.add(record.claim)
            case Purged():
                found.purged = record
            case _:
                pass
        if record.kind in FENCING:
            assert isinstance(record, Claim | Resolution | Purged)
            found.fences.append(record)
    return found


def short(claim: str) -> str:
    """A claim id as it is shown: enough to tell it from its neighbours."""
    return claim[:4]
