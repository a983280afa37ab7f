"""Open a step's journal: read, decide, claim (JOURNAL.md, Open).

The claim's success validates what was read: it is appended with the tail that was read
as its expectation.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.broker.outcomes import ShortRead, Stored
from agentbook.errors import Committed, JournalTruncated, RestartLimit, RunEnded, Stale
from agentbook.ids import new_claim_id
from agentbook.journal.append import Lost, Place, Writer
from agentbook.journal.fold import Fold
from agentbook.journal.handle import Journal
from agentbook.journal.records import (
    Claim,
    Commit,
    ErrorInfo,
    Interruption,
    Pause,
    Purged,
    Record,
    ToolResult,
    decode,
)
from agentbook.journal.replay import open_before
from agentbook.seams import seam


@dataclass(frozen=True, slots=True)
class Holding:
    """A delivery that asks for the journal.

    Attributes:
        place: step, iteration and attempt.
        dispatch: the number of the dispatch.
        delivery: how often it was delivered, from 1.
        worker: who asks, for people: ``kernel 4188``.
        code: digest of the code that will run.
        head: the sequence of the journal's first record, if the engine knows it.
    """

    place: Place
    dispatch: int
    delivery: int
    worker: str
    code: str
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that bound a journal.

    Attributes:
        append_deadline: seconds for which an undecided append is tried again.
        restart_limit: claims in a row after which the step fails.
        max_calls: calls within one iteration.
    """

    append_deadline: float = 30.0
    restart_limit: int = 5
    max_calls: int = 256


async def open_journal(connection: Connection, holding: Holding, limits: Limits) -> Journal:
    """Claim a step's journal for one delivery.

    Raises:
        Stale: a later iteration, attempt or dispatch is under way.
        Committed: the iteration has its commit, or this dispatch its pause.
        RestartLimit: too many claims in a row; the failure is committed.
        RunEnded: the run was purged.
        JournalTruncated: records that must be there are gone.
        JournalUnavailable: the server did not decide before the deadline.
    """
    while True:
        fold = await _load(connection, holding)
        _decide(holding, fold)
        writer = Writer(connection, holding.place, new_claim_id(), fold, deadline=limits.append_deadline)
        seam("before_claim", holding.place.iteration)
        try:
            await writer.append_claim(_claim(holding, fold))
        except Lost:
            continue
        seam("after_claim", holding.place.iteration)
        await _enforce_restart_limit(writer, limits.restart_limit)
        await _close_earlier_attempts(writer)
        return Journal(writer, max_calls=limits.max_calls)


async def read_journal(connection: Connection, run: str, step: str, *, start: int = 1) -> list[Record]:
    """Read a step's journal up to its present tail, without a claim.

    Args:
        start: the first sequence wanted.
    """
    subject = connection.names.journal(run, step)
    tail = await connection.last(JOURNAL, subject)
    if tail is None or tail.seq < start:
        return []
    return [decode(stored.data, stored.seq) for stored in await _read(connection, subject, tail, start)]


async def _load(connection: Connection, holding: Holding) -> Fold:
    """Read and fold everything up to the tail, which the leader names."""
    place = holding.place
    subject = connection.names.journal(place.run, place.step)
    tail = await connection.last(JOURNAL, subject)
    fold = Fold()
    if tail is None:
        if holding.head is not None:
            raise JournalTruncated(
                f"journal head missing: run {place.run} began at record {holding.head}, but its journal is empty. "
                "It cannot be resumed safely; start it under another id."
            )
        return fold
    if isinstance(decode(tail.data, tail.seq), Purged):
        raise RunEnded(f"run {place.run} was purged; start it under another id")
    try:
        stored = await _read(connection, subject, tail, holding.head or 1)
    except ShortRead as error:
        raise JournalTruncated(
            f"the journal of run {place.run} could not be read up to record {tail.seq}: {error}"
        ) from None
    for message in stored:
        fold.add(decode(message.data, message.seq), len(message.data))
    _check_head(fold, stored, holding)
    return fold


async def _read(connection: Connection, subject: str, tail: Stored, start: int) -> list[Stored]:
    return [stored async for stored in connection.read(JOURNAL, subject, start=start, upto=tail.seq)]


def _check_head(fold: Fold, stored: list[Stored], holding: Holding) -> None:
    first = stored[0].seq
    named = holding.head if holding.head is not None else fold.holder.head if fold.holder else None
    if (named is not None and named != first) or fold.holder is None:
        raise JournalTruncated(
            f"journal head missing: run {holding.place.run} began at record {named or 'unknown'}, the first one "
            f"there is {first}. It cannot be resumed safely; start it under another id."
        )


def _decide(holding: Holding, fold: Fold) -> None:
    """What the journal says about this delivery, before anything is written (Open 1 and 3)."""
    place, holder = holding.place, fold.holder
    if holder is None:
        return
    newest = (holder.iteration, holder.attempt, holder.dispatch)
    if newest > (place.iteration, place.attempt, holding.dispatch):
        raise Stale(f"run {place.run}: iteration {newest[0]}, attempt {newest[1]} is under way")
    if fold.advancing is not None and fold.advancing.iteration >= place.iteration:
        raise Committed(fold.advancing.seq)
    closed = fold.closed_by
    if isinstance(closed, Commit) and (closed.iteration, closed.attempt) == (place.iteration, place.attempt):
        raise Committed(closed.seq)
    if isinstance(closed, Pause) and holder.dispatch == holding.dispatch:
        raise Committed(closed.seq)


def _claim(holding: Holding, fold: Fold) -> Claim:
    return Claim(
        worker=holding.worker,
        dispatch=holding.dispatch,
        delivery=holding.delivery,
        code=holding.code,
        prev=fold.advancing.seq if fold.advancing else None,
        head=fold.head,
    )


async def _enforce_restart_limit(writer: Writer, limit: int) -> None:
    """Fail a step that is claimed again and again with nothing between (Open 5)."""
    row = writer.fold.claims_in_row
    # The first claim is a start, not a restart, whatever the limit.
    if row < max(limit, 2):
        return
    message = (
        f"claimed {row} times in a row with nothing recorded between: its worker dies before it gets anywhere. "
        "Look at what the last claims' workers printed, then retry the run."
    )
    commit = await writer.append(
        Commit(
            action="fail",
            error=ErrorInfo(type="RestartLimit", message=message),
            retriable=True,
            reason="restart_limit",
            head=writer.fold.head or 0,
        )
    )
    raise RestartLimit(commit.seq, limit)


async def _close_earlier_attempts(writer: Writer) -> None:
    """A new attempt closes what earlier ones left open (Open 6)."""
    for call in open_before(writer.fold, writer.place.attempt):
        assert call.intent is not None
        unsafe = call.intent.replay == "unsafe"
        await writer.append(
            ToolResult(
                position=call.position,
                intent=call.intent.seq,
                interrupted=Interruption(partial=call.partial, cause="its holder died" if unsafe else "attempt ended"),
            )
        )
