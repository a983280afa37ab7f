"""One block of a timeline: what each holder of a turn met at each place."""

from __future__ import annotations

from collections.abc import Sequence

from agentbook.journal.records import Pause, Record
from agentbook.views.blocks import Block, Chip, Column, Row
from agentbook.views.calls import call_chip
from agentbook.views.endings import fence, headline, mark, outcome, row_note
from agentbook.views.facts import RunFacts
from agentbook.views.happenings import fact_chip, step_chip
from agentbook.views.index import Index
from agentbook.views.lanes import Lane, lanes
from agentbook.views.slots import Slot, slots
from agentbook.views.stand import Stand
from agentbook.views.words import STATES, duration

_QUIET = ("ran", "replayed", "recorded")
_NOTHING_REACHED = (-2, 0, 0)
_LAST_IN_ORDER = 1 << 62


def block(records: Sequence[Record], found: Index, facts: RunFacts, attempts: int) -> Block:
    """The block of one attempt of an iteration.

    Args:
        records: its records, in order.
        found: the index of the whole journal.
        facts: what is known beside the journal.
        attempts: how many attempts this iteration has.
    """
    held = lanes(records, found, facts)
    places = slots(records, found, held[-1].cursor(facts))
    rows = tuple(_row(lane, held[at - 1] if at else None, places, found, facts) for at, lane in enumerate(held))
    iteration, attempt = records[0].iteration, records[0].attempt
    reached = outcome(held[-1], superseded=attempt < attempts)
    return Block(
        id=f"{iteration}.{attempt}",
        iteration=iteration,
        attempt=attempt,
        title=f"turn {iteration}" + (f" · attempt {attempt}" if attempts > 1 else ""),
        headline=headline(rows, held[-1], reached, facts),
        line=_line(rows[-1]),
        quiet=attempts == 1 and _quiet(rows),
        outcome=reached,
        first=records[0].seq,
        last=records[-1].seq,
        columns=tuple(Column(slot.label, slot.position) for slot in places),
        rows=rows,
    )


def _row(lane: Lane, above: Lane | None, places: Sequence[Slot], found: Index, facts: RunFacts) -> Row:
    chips = _chips(lane, places, found, facts)
    return Row(
        claim=lane.claim,
        holder=lane.holder,
        state=lane.state,
        note=row_note(lane, facts),
        seq=lane.seq,
        chips=chips,
        mark=mark(lane, chips, facts),
        fence=fence(lane, above, found),
    )


def _chips(lane: Lane, places: Sequence[Slot], found: Index, facts: RunFacts) -> tuple[Chip, ...]:
    own = [[record for record in slot.records if record.claim == lane.claim] for slot in places]
    cursor = lane.cursor(facts)
    reach = max((slot.order for slot, mine in zip(places, own, strict=True) if mine), default=_NOTHING_REACHED)
    if cursor is not None:
        reach = max(reach, (cursor, 0, _LAST_IN_ORDER))
    pause = lane.ending.reason if isinstance(lane.ending, Pause) else None
    chips: list[Chip] = []
    for column, (slot, mine) in enumerate(zip(places, own, strict=True)):
        if lane.said is not None and not mine:
            continue
        here = cursor is not None and slot.position == cursor
        chip = _chip(
            Stand(
                slot=slot,
                column=column,
                found=found,
                own=mine,
                before=[record for record in slot.records if record.seq < lane.seq and record.claim != lane.claim],
                # A holder that ended its turn or paused had gone through all that was recorded (JOURNAL.md, Replay).
                reached=lane.ending is not None or slot.order <= reach,
                live=lane.state == "live",
                halted=pause == "halt",
                asleep=pause in ("sleep", "question"),
                cursor=here,
                call=facts.live.call if facts.live is not None and here else None,
                first=bool(chips) and all(chip.state != "ran" for chip in chips),
            )
        )
        if chip is not None:
            chips.append(chip)
    return tuple(chips)


def _chip(stand: Stand) -> Chip | None:
    match stand.slot.kind:
        case "call" | "earlier":
            return call_chip(stand)
        case "step":
            return step_chip(stand)
        case "input" | "timer" | "question" | "saga" | "resolution":
            return fact_chip(stand)


def _line(row: Row) -> str:
    pieces = [
        chip.name + (f" {duration(chip.ms)}" if chip.ms is not None else "")
        if chip.state in _QUIET
        else f"{STATES[chip.state].sign} {chip.name}"
        for chip in row.chips
    ]
    if row.mark is not None:
        pieces.append(row.mark.text)
    return " → ".join(pieces)


def _quiet(rows: Sequence[Row]) -> bool:
    row = rows[0]
    return (
        len(rows) == 1
        and row.mark is not None
        and row.mark.kind == "commit"
        and all(chip.state in _QUIET for chip in row.chips)
    )
