"""The effects that a saved snapshot asks for, each harmless to repeat (ENGINE.md).

They follow from the snapshot, not from the event that led to it: so a crash between
a save and its effects is finished by whoever comes next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from agentbook.broker.connection import Connection
from agentbook.broker.names import HISTORY
from agentbook.broker.outcomes import SubjectFull
from agentbook.protocol.dispatch import Dispatch
from agentbook.protocol.events import RunEvent
from agentbook.protocol.runs import Versioned
from agentbook.protocol.snapshot import RunSnapshot, StepSnapshot
from agentbook.protocol.store import store

_END: dict[str, Literal["run.completed", "run.failed", "run.cancelled", "run.aborted"]] = {
    "completed": "run.completed",
    "failed": "run.failed",
    "cancelled": "run.cancelled",
    "aborted": "run.aborted",
}


async def ensure(connection: Connection, versioned: Versioned) -> None:
    """Do what a snapshot asks for and is not done yet.

    Raises:
        JournalUnavailable: the server did not decide in time.
        JournalFull: a stream has no room.
    """
    run = versioned.snapshot
    if run.ended:
        await _publish_end(connection, run)
    elif run.driver == "worker":
        for name, step in run.steps.items():
            if step.status == "running":
                await _dispatch(connection, run, name, step)


def dispatch_of(run: RunSnapshot, name: str) -> Dispatch:
    """The task message of a step's newest dispatch."""
    step = run.steps[name]
    return Dispatch(
        run=run.run,
        step=name,
        dispatch=step.dispatch,
        iteration=step.iteration,
        attempt=step.attempt,
        journal_seq=step.accepted_seq,
        head=step.head,
    )


async def _dispatch(connection: Connection, run: RunSnapshot, name: str, step: StepSnapshot) -> None:
    subject = connection.names.task(run.type, run.run, name, step.dispatch)
    # The subject holds one message, and the dispatch's number is in its name: full means done.
    with suppress(SubjectFull):
        await store(connection, subject, dispatch_of(run, name).encode(), what=f"a dispatch of run {run.run}")


async def _publish_end(connection: Connection, run: RunSnapshot) -> None:
    kind = _END.get(run.status)
    if kind is None:
        return
    event = RunEvent(type=kind, run=run.run, status=run.status)
    if await _in_history(connection, run.run, event.message_id):
        return
    await store(
        connection, connection.names.history(run.run), event.encode(),
        what=f"the end of run {run.run}", msg_id=event.message_id,
    )  # fmt: skip


async def _in_history(connection: Connection, run: str, message_id: str) -> bool:
    """The server knows an id again for two minutes only; a crash may be repaired much later."""
    async for stored in connection.read(HISTORY, connection.names.history(run), upto=None):
        if stored.headers.get("Nats-Msg-Id") == message_id:
            return True
    return False
