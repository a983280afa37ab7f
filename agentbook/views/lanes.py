"""The rows of a turn before their chips: who held it, and how each of them ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentbook.journal.records import Commit, Pause, Record, Resolution
from agentbook.views.blocks import RowState
from agentbook.views.facts import RunFacts
from agentbook.views.index import Index
from agentbook.views.words import visible


@dataclass(frozen=True, slots=True)
class Lane:
    """One claim's records in one turn.

    Attributes:
        seq: the record with which it took over.
        said: its resolution, where it is one by somebody who holds nothing.
        ending: the commit or pause it ended itself with.
        lost_to: the record that fenced it before it ended.
        state: how it stands.
    """

    claim: str
    holder: str
    seq: int
    records: Sequence[Record]
    said: Resolution | None
    ending: Commit | Pause | None
    lost_to: Record | None
    state: RowState

    def cursor(self, facts: RunFacts) -> int | None:
        """Where its replay cursor stands, if this is the holder at work."""
        if self.state != "live" or facts.live is None or facts.live.claim != self.claim:
            return None
        return facts.live.position


def lanes(records: Sequence[Record], found: Index, facts: RunFacts) -> list[Lane]:
    """The rows of one attempt of an iteration, in the order in which they took over."""
    by_claim: dict[str, list[Record]] = {}
    for record in records:
        by_claim.setdefault(record.claim, []).append(record)
    return [_lane(claim, own, found, facts) for claim, own in by_claim.items()]


def _lane(claim: str, own: list[Record], found: Index, facts: RunFacts) -> Lane:
    taken = found.claims.get(claim)
    first = own[0]
    said = first if taken is None and isinstance(first, Resolution) else None
    ending = None
    for record in own:
        if isinstance(record, Commit | Pause):
            ending = record
        elif not isinstance(record, Resolution):
            ending = None
    lost_to = None if ending is not None or said is not None else found.fence_after(own[-1].seq)
    return Lane(
        claim=claim,
        holder=found.holder(claim) if said is None else visible(said.by, 40),
        seq=first.seq if taken is None else taken.seq,
        records=own,
        said=said,
        ending=ending,
        lost_to=lost_to,
        state=_state(said, ending, lost_to, facts),
    )


def _state(said: Resolution | None, ending: Commit | Pause | None, lost_to: Record | None, facts: RunFacts) -> RowState:
    if said is not None:
        return "said"
    if ending is not None:
        return "paused" if isinstance(ending, Pause) else "done"
    if lost_to is not None:
        return "dead"
    if facts.status not in (None, "running", "rolling_back"):
        return "ended"
    return "dead" if facts.nobody else "live"
