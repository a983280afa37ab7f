"""How rows and turns end, in words: marks, fences and headlines."""

from __future__ import annotations

from collections.abc import Sequence

from agentbook.journal.records import Commit, Pause
from agentbook.views.blocks import Chip, Fence, Mark, Outcome, Row
from agentbook.views.facts import RunFacts
from agentbook.views.index import Index, short
from agentbook.views.lanes import Lane
from agentbook.views.stand import shown
from agentbook.views.words import visible

_OUTCOMES: dict[str, Outcome] = {
    "continue": "committed", "complete": "completed", "abort": "aborted", "fail": "failed"
}  # fmt: skip
_COMMITS = {"continue": "✓ commit", "complete": "✓ commit: final answer", "abort": "✓ commit: rolled back"}
_HEADLINES: dict[Outcome, str] = {
    "running": "running",
    "lost": "no holder yet",
    "settled": "waiting for a holder",
    "committed": "committed",
    "completed": "final answer",
    "aborted": "rolled back",
    "failed": "failed",
    "given up": "given up for the next attempt",
}


def row_note(lane: Lane, facts: RunFacts) -> str:
    """The claim, its record and how the holder fares."""
    if lane.said is not None:
        return f"said how it ended · record {lane.seq}"
    fares = {"live": "now" if facts.live is not None else "newest", "dead": "dead", "paused": "paused"}.get(lane.state)
    if any(refused.claim == lane.claim for refused in facts.refused):
        fares = "stalled"
    return f"claim {short(lane.claim)} · record {lane.seq}" + (f" · {fares}" if fares else "")


def mark(lane: Lane, chips: Sequence[Chip], facts: RunFacts) -> Mark | None:
    """What stands at the end of a row; None while its holder is at work."""
    column = chips[-1].column + 1 if chips else 0
    match lane.ending:
        case Commit() as commit:
            kind = "failed" if commit.action == "fail" else "commit"
            return Mark(column, kind, f"{_committed(commit)} · record {commit.seq}", commit.seq)
        case Pause() as pause:
            return Mark(column, "paused", f"‖ {paused(pause, chips)} · record {pause.seq}", pause.seq)
        case None:
            pass
    refused = [visible(refused.what, 60) for refused in facts.refused if refused.claim == lane.claim]
    if refused:
        return Mark(column, "fenced", f"⊘ woke up: {', '.join(refused)} refused by the fence")
    if lane.state == "dead":
        where = "† died here" if column else "† died before it recorded anything"
        return Mark(column, "died", where + ("" if lane.lost_to is not None else ": nobody works on the run now"))
    if lane.state == "ended":
        return Mark(column, "ended", f"‖ over: the run is {facts.status}")
    return None


def fence(lane: Lane, above: Lane | None, found: Index) -> Fence | None:
    """What stands above a row: what its claim did to the one before it."""
    taken = found.claims.get(lane.claim)
    if taken is None or taken.seq != lane.records[0].seq:
        return None
    at = f"claim {short(lane.claim)} at record {lane.seq}"
    if above is not None and above.lost_to is None:
        return Fence(True, f"{at}: {lane.holder} goes on from what is recorded", lane.seq)
    before = found.claim_before(taken) if above is None else found.claims.get(above.claim)
    if above is None and (before is None or before.claim in found.closed):
        return None
    claim = above.claim if before is None and above is not None else before.claim if before is not None else ""
    older = found.holder(claim)
    if older == lane.holder:
        older = f"its older claim {short(claim)}"
    return Fence(False, f"fence · {at}: {older} can write nothing more to this run, even if it wakes up", lane.seq)


def outcome(lane: Lane, superseded: bool) -> Outcome:
    """How a turn stands whose last row this is."""
    match lane.ending:
        case Commit() as commit:
            return _OUTCOMES[commit.action]
        case _ if superseded:
            return "given up"
        case Pause() as pause:
            return "halted" if pause.reason in ("halt", "parked") else "waiting"
        case None:
            pass
    outcomes: dict[str, Outcome] = {"said": "settled", "live": "running", "dead": "lost"}
    return outcomes.get(lane.state, "cut")


def headline(rows: Sequence[Row], last: Lane, reached: Outcome, facts: RunFacts) -> str:
    """How a turn went, in one line."""
    takers = [row.holder for row in rows[1:] if row.fence is not None and not row.fence.closed]
    parts: list[str] = []
    if takers:
        times = {1: "", 2: "twice, last "}.get(len(takers), f"{len(takers)} times, last ")
        parts.append(f"taken over {times}by {takers[-1]}")
    if isinstance(last.ending, Pause) and reached in ("waiting", "halted"):
        parts.append(paused(last.ending, rows[-1].chips))
    else:
        parts.append(_HEADLINES.get(reached) or facts.status or "over")
    return " · ".join(parts)


def _committed(commit: Commit) -> str:
    if commit.action != "fail":
        return _COMMITS[commit.action]
    why = shown(commit.error) if commit.error is not None else visible(commit.reason or "no reason given", 60)
    return f"✗ failed: {why}"


def paused(pause: Pause, chips: Sequence[Chip]) -> str:
    """Why a holder stopped inside its turn."""
    match pause.reason:
        case "sleep":
            until = visible(pause.wait.until, 40) if pause.wait and pause.wait.until else "it is woken"
            return f"sleeps until {until}"
        case "question":
            return "waits for an answer"
        case "halt":
            open_calls = ", ".join(chip.name for chip in chips if chip.state == "unknown")
            return f"halted: {open_calls or 'a call'} may or may not have happened"
        case "parked":
            return f"parked: {visible(pause.cause or 'other code is needed', 90)}"
        case "requested":
            return "paused as asked"
        case "left":
            return "left: its book was closed"
