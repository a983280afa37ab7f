"""Purging a run: whatever is stored of it, for good (JOURNAL.md, Purge)."""

from __future__ import annotations

from typing import cast

from agentbook.broker.connection import Connection
from agentbook.broker.names import DEAD, HISTORY, INPUTS, JOURNAL, MEMO, TASKS, TIMERS
from agentbook.errors import RunNotFound, UsageError
from agentbook.journal.instants import now
from agentbook.journal.purge import TOMBSTONE_TTL
from agentbook.journal.purge import purge as purge_journal
from agentbook.protocol import runs
from agentbook.protocol.snapshot import Final, RunSnapshot, StepSnapshot
from agentbook.seams import seam


async def purge(connection: Connection, run: str) -> None:
    """Remove an ended run, or the journals of one whose snapshot is gone; its id stays refused for 30 days.

    Harmless to repeat, also after a crash within.

    Raises:
        RunNotFound: there is no such run.
        UsageError: it has not ended.
    """
    while True:
        current = await runs.load(connection, run)
        if current is None:
            steps = await _steps_left(connection, run)
            if not steps:
                raise RunNotFound(f"there is no run {run!r}")
            break
        snapshot = current.snapshot
        steps = list(snapshot.steps)
        if not snapshot.ended:
            raise UsageError(f"run {run} is {snapshot.status}, only an ended run can be purged: cancel it first")
        if snapshot.status == "purged":
            break
        if await runs.save(connection, _emptied(snapshot), current.seq, ttl=TOMBSTONE_TTL) is not None:
            seam("after_save")
            break
    for step in steps:
        await purge_journal(connection, run, step, deadline=connection.settings.append_deadline)
    names = connection.names
    for stream, subject in (
        (MEMO, names.memo(run, "*")),
        (INPUTS, names.subject("input", run, ">")),
        (TIMERS, names.subject("timer", run, ">")),
        (TIMERS, names.subject("wake", run, ">")),
        (TASKS, names.task("*", run, "*", "*")),
        (HISTORY, names.history(run)),
        (DEAD, names.dead(run)),
    ):
        await connection.purge(stream, subject)
    await connection.blobs.remove(f"{run}/")


async def _steps_left(connection: Connection, run: str) -> list[str]:
    """The steps whose journals are there although their run's snapshot is gone."""
    body: dict[str, object] = {"subjects_filter": connection.names.journal(run, "*")}
    info = await connection.api.call(f"STREAM.INFO.{connection.names.stream(JOURNAL)}", body)
    subjects = cast("dict[str, dict[str, int] | None]", info["state"]).get("subjects") or {}
    return [subject.rpartition(".")[2] for subject in subjects]


def _emptied(run: RunSnapshot) -> RunSnapshot:
    """What is left to say that the id is taken: nothing of what a person or a model said."""
    return RunSnapshot(
        run=run.run,
        what=run.what,
        type=run.type,
        driver=run.driver,
        parent=run.parent,
        created=run.created,
        status="purged",
        final=Final(status="purged", at=now()),
        steps={name: StepSnapshot(status="purged", dispatch=step.dispatch) for name, step in run.steps.items()},
    )
