"""Open a step's journal: read, decide, claim (JOURNAL.md, Open).

The claim's success validates what was read: it is appended with the tail that was read
as its expectation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentbook.broker.connection import Connection
from agentbook.errors import Committed, RestartLimit, Stale
from agentbook.ids import new_claim_id
from agentbook.journal.append import Lost, Place, Writer, fenced_by
from agentbook.journal.endings import append_result, as_resolved
from agentbook.journal.fold import Fold
from agentbook.journal.halts import Halted, cause, signal
from agentbook.journal.handle import Journal
from agentbook.journal.load import FoldCache, load
from agentbook.journal.records import Claim, Commit, ErrorInfo, Interruption, Pause, ToolResult
from agentbook.journal.redact import Redactor
from agentbook.journal.replay import open_before, resolved_before
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
        halting: the tools of which a person is to say how a call ended when nobody knows.
    """

    place: Place
    dispatch: int
    delivery: int
    worker: str
    code: str
    head: int | None = None
    halting: frozenset[str] = frozenset()


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


async def open_journal(
    connection: Connection,
    holding: Holding,
    limits: Limits,
    *,
    cache: FoldCache | None = None,
    redactor: Redactor | None = None,
    held: Callable[[], Awaitable[bool]] | None = None,
) -> Journal:
    """Claim a step's journal for one delivery.

    Args:
        cache: what this worker knows of journals it has just written.
        redactor: knows what must not be written.
        held: asked when another claim came first, before this one is tried again: does its holder live?

    Raises:
        Fenced: a later delivery of this dispatch has claimed; or another claim came first, and its holder lives.
        Stale: a later iteration, attempt or dispatch is under way.
        Committed: the iteration has its commit, or this dispatch its pause.
        RestartLimit: too many claims in a row; the failure is committed.
        ResumeHalt: nobody knows how a call of an earlier attempt ended, and a person must say so.
        RunEnded: the run was purged.
        JournalTruncated: records that must be there are gone.
        JournalUnavailable: the server did not decide before the deadline.
    """
    cache = FoldCache() if cache is None else cache
    place = holding.place
    while True:
        fold = await load(connection, place.run, place.step, holding.head, cache)
        _decide(holding, fold)
        writer = Writer(
            connection, place, new_claim_id(), fold, deadline=limits.append_deadline, redactor=redactor or Redactor()
        )
        seam("before_claim", place.iteration)
        try:
            await writer.append_claim(_claim(holding, fold))
        except Lost:
            if held is not None and await held():
                raise await writer.fenced() from None
            continue
        seam("after_claim", place.iteration)
        await _enforce_restart_limit(writer, limits.restart_limit)
        await _close_earlier_attempts(writer, holding.halting)
        return Journal(writer, max_calls=limits.max_calls)


def _decide(holding: Holding, fold: Fold) -> None:
    """What the journal says about this delivery, before anything is written (Open 1 and 3)."""
    place, holder = holding.place, fold.holder
    if holder is None:
        return
    newest = (holder.iteration, holder.attempt)
    if newest > (place.iteration, place.attempt) or holder.dispatch > holding.dispatch:
        raise Stale(f"run {place.run}: iteration {newest[0]}, attempt {newest[1]} is under way")
    if fold.advancing is not None and fold.advancing.iteration >= place.iteration:
        raise Committed(fold.advancing.seq)
    closed = fold.closed_by
    if isinstance(closed, Commit) and (closed.iteration, closed.attempt) == (place.iteration, place.attempt):
        raise Committed(closed.seq)
    if isinstance(closed, Pause) and holder.dispatch == holding.dispatch:
        raise Committed(closed.seq)
    if (
        newest == (place.iteration, place.attempt)
        and holder.dispatch == holding.dispatch
        and holder.delivery > holding.delivery
    ):
        # This delivery's ack wait ran out while its process stood still; its successor may be live.
        raise fenced_by(holder)


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


async def _close_earlier_attempts(writer: Writer, halting: frozenset[str]) -> None:
    """A new attempt closes what earlier ones left open, and stops if a person must say how a call ended (Open 6)."""
    attempt = writer.place.attempt
    for call in resolved_before(writer.fold, attempt):
        assert call.intent is not None
        await append_result(writer, as_resolved(call), call.intent.name)
    halted: list[Halted] = []
    for call in open_before(writer.fold, attempt):
        assert call.intent is not None
        unsafe = call.intent.replay == "unsafe"
        if unsafe and call.intent.name in halting:
            halted.append(Halted(call))
            continue
        why = Interruption(partial=call.partial, cause="its holder died" if unsafe else "attempt ended")
        closing = ToolResult(position=call.position, intent=call.intent.seq, interrupted=why)
        await append_result(writer, closing, call.intent.name)
    if halted:
        pause = await writer.append(
            Pause(
                reason="halt",
                subjects=[each.subject for each in halted],
                cause=cause(halted),
                head=writer.fold.head or 0,
            )
        )
        assert isinstance(pause, Pause)
        raise signal(pause, halted[0].call)
