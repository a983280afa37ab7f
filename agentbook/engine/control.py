"""Cancelling, resuming and retrying a run: each a compare-and-swap of its snapshot, then `ensure`."""

from __future__ import annotations

import json
from typing import Literal

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL, TASKS
from agentbook.broker.outcomes import ShortRead
from agentbook.engine.advance import dispatched, finish
from agentbook.engine.ensure import ensure
from agentbook.errors import JournalUnavailable, NotHalted, RunEnded, RunNotFound
from agentbook.journal.instants import now
from agentbook.journal.records import FENCING, Claim, Commit, Pause, decode
from agentbook.protocol import runs
from agentbook.protocol.holder import ask_holder
from agentbook.protocol.runs import Versioned
from agentbook.protocol.snapshot import TERMINAL, Final, RunSnapshot, StepSnapshot
from agentbook.seams import seam

Resumed = Literal["ended", "viewing", "dispatched"]


async def cancel(connection: Connection, run: str, reason: str | None = None) -> Versioned:
    """Cancel a run at once, and tell its holders.

    Returns:
        The run as it ended: another end may have come first.

    Raises:
        RunNotFound: there is no such run.
    """
    while True:
        current = await _load(connection, run)
        if not current.snapshot.ended:
            final = Final(status="cancelled", reason=reason, at=now())
            saved = await runs.save(connection, finish(current.snapshot, final), current.seq)
            if saved is None:
                continue
            seam("after_save")
            current = saved
        if current.snapshot.status == "cancelled":
            # At most once: a holder that misses it learns of the end by its next heartbeat.
            await connection.send(connection.names.cancel(run), json.dumps({"reason": reason}).encode())
        await ensure(connection, current)
        return current


async def resume(connection: Connection, run: str, *, force: bool = False) -> Resumed:
    """Make sure that somebody takes the run up, unless a live holder has it.

    Args:
        force: fence a live holder too.

    Returns:
        ``ended``, ``viewing`` (a live holder or a wait has it) or ``dispatched`` (it is on its way).

    Raises:
        RunNotFound: there is no such run.
    """
    while True:
        current = await _load(connection, run)
        snapshot = current.snapshot
        if snapshot.ended:
            await ensure(connection, current)
            return "ended"
        open_steps = [name for name, step in snapshot.steps.items() if step.status not in TERMINAL]
        standings = {name: await _standing(connection, snapshot, name) for name in open_steps}
        wanted = [
            name
            for name, standing in standings.items()
            if standing in ("idle", "abandoned") or (standing == "held" and force)
        ]
        if wanted:
            saved = await _dispatch_again(connection, current, wanted)
            if saved is None:
                continue
            current = saved
        await ensure(connection, current)
        return "dispatched" if wanted or "on its way" in standings.values() else "viewing"


async def retry(connection: Connection, run: str) -> Versioned:
    """Begin the halted turn of a run again, as a new attempt.

    Raises:
        RunNotFound: there is no such run.
        RunEnded: it has ended.
        NotHalted: it is running or waiting.
    """
    while True:
        current = await _load(connection, run)
        snapshot = current.snapshot
        if snapshot.ended:
            raise RunEnded(f"run {run} is {snapshot.status}: start it again under another id")
        halted = [name for name, step in snapshot.steps.items() if step.status == "halted"]
        if not halted:
            raise NotHalted(f"run {run} is {snapshot.status}, not halted: there is no turn to begin again")
        saved = await _dispatch_again(connection, current, halted, new_attempt=True)
        if saved is not None:
            await ensure(connection, saved)
            return saved


async def _load(connection: Connection, run: str) -> Versioned:
    current = await runs.load(connection, run)
    if current is None:
        raise RunNotFound(f"there is no run {run!r}")
    return current


async def _dispatch_again(
    connection: Connection, current: Versioned, names: list[str], *, new_attempt: bool = False
) -> Versioned | None:
    """Save the run with a next dispatch of these steps; None if another writer came first."""
    before = current.snapshot
    saved = await runs.save(connection, dispatched(before, names, new_attempt=new_attempt), current.seq)
    if saved is None:
        return None
    seam("after_save")
    for name in names:
        # The delivery that a dead or fenced holder has not settled goes with its subject.
        superseded = connection.names.task(before.type, before.run, name, before.steps[name].dispatch)
        await connection.purge(TASKS, superseded)
    return saved


Standing = Literal["idle", "left alone", "on its way", "abandoned", "held"]


async def _standing(connection: Connection, run: RunSnapshot, name: str) -> Standing:
    """What resuming a step would find (ENGINE.md, "Liveness is advice")."""
    step = run.steps[name]
    if step.status == "halted":
        return "idle"
    if step.status == "waiting":
        return "idle" if step.wait is None else "left alone"
    if run.driver == "cell":
        # No task is ever sent for it: the cell that takes it over asks for itself.
        return "left alone"
    if not await _claimed(connection, run.run, name, step):
        return "on its way"
    return "abandoned" if await ask_holder(connection, run.run, name) is None else "held"


async def _claimed(connection: Connection, run: str, name: str, step: StepSnapshot) -> bool:
    """True if the newest claim is of the step's current dispatch and still open."""
    subject = connection.names.journal(run, name)
    stored = await connection.last(JOURNAL, subject)
    if stored is None:
        return False
    tail = decode(stored.data, stored.seq)
    if isinstance(tail, Claim):
        return tail.dispatch == step.dispatch
    if isinstance(tail, Commit | Pause) or tail.kind in FENCING:
        return False
    # Any other record was written under the newest claim. A claim of the current dispatch
    # came after the record whose event led to that dispatch, so only those are read.
    after = step.accepted_seq or 0
    try:
        async for earlier in connection.read(JOURNAL, subject, start=after + 1, upto=stored.seq):
            record = decode(earlier.data, earlier.seq)
            if isinstance(record, Claim) and record.claim == tail.claim:
                return record.dispatch == step.dispatch
    except ShortRead as error:
        raise JournalUnavailable(f"the journal of run {run} cannot be read to its end yet: {error}") from error
    return False
