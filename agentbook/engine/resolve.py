"""Resolving a halted call: the record, then the event that sets the run going (JOURNAL.md, Resolution)."""

from __future__ import annotations

from agentbook.broker.connection import Connection
from agentbook.errors import NotHalted, RunEnded, RunNotFound
from agentbook.journal import resolve as journal
from agentbook.journal.redact import Redactor
from agentbook.journal.resolve import Answer
from agentbook.protocol import runs
from agentbook.protocol.events import event_of
from agentbook.protocol.store import store


async def resolve(
    connection: Connection,
    run: str,
    subject: str,
    answer: Answer,
    *,
    redactor: Redactor,
    min_age: float | None = None,
) -> None:
    """Say how a halted call of a run ended; once none is left open, the run goes on.

    Args:
        subject: the call's key.
        min_age: refuse if the call was started less than so many seconds ago.

    Raises:
        RunNotFound: there is no such run.
        RunEnded: the run has ended or was purged.
        NotHalted, HaltInFlight, HaltTooYoung, AlreadyResolved: as `agentbook.journal.resolve.resolve`.
    """
    current = await runs.load(connection, run)
    if current is None:
        raise RunNotFound(f"there is no run {run!r}")
    snapshot = current.snapshot
    if snapshot.status == "purged":
        raise RunEnded(f"run {run} was purged")
    of, _, rest = subject.partition(".")
    name = rest.partition(".")[0]
    step = snapshot.steps.get(name)
    if of != run or step is None:
        like = f"{run}.{next(iter(snapshot.steps))}.0.1"
        raise NotHalted(f"run {run} has no call {subject!r}: a call's key looks like {like}")
    record = await journal.resolve(
        connection,
        (run, name),
        subject,
        answer,
        deadline=connection.settings.append_deadline,
        redactor=redactor,
        head=step.head,
        min_age=min_age,
        ended=snapshot.status if snapshot.ended else None,
    )
    if record is None:
        return
    event = event_of(record)
    await store(
        connection,
        connection.names.history(run),
        event.encode(),
        what=f"the event {event.type} of run {run}",
        msg_id=event.message_id,
    )
