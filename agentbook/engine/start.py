"""Starting a run, idempotent on its id (ENGINE.md, Runs, steps, dispatch)."""

from __future__ import annotations

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.codec import digest
from agentbook.engine.ensure import ensure
from agentbook.errors import RunConflict, RunEnded
from agentbook.ids import check_any_run_id, check_name
from agentbook.protocol import runs
from agentbook.protocol.runs import Versioned
from agentbook.protocol.snapshot import RunSnapshot
from agentbook.seams import seam


async def start(connection: Connection, snapshot: RunSnapshot) -> tuple[Versioned, bool]:
    """Create a run and dispatch it, or attach to the run that has its id.

    Args:
        snapshot: the run as it begins.

    Returns:
        The run as it stands, and True if this call created it.

    Raises:
        ConfigError: an id or name cannot be a subject. Nothing was written.
        RunConflict: the id is taken by a run of another agent, input or driver, or by a journal without a run.
        RunEnded: the run of this id was purged.
    """
    check_any_run_id(snapshot.run)
    check_name(snapshot.what, snapshot.type)
    for name in snapshot.steps:
        check_name("step", name)
    while True:
        existing = await runs.load(connection, snapshot.run)
        if existing is not None:
            return await _attach(connection, existing, snapshot), False
        await _refuse_a_past(connection, snapshot)
        # This create-only write is the claim on the id: of several starters one gets it.
        created = await runs.create(connection, _stamped(snapshot))
        if created is not None:
            seam("after_save")
            await ensure(connection, created)
            return created, True


def _stamped(snapshot: RunSnapshot) -> RunSnapshot:
    steps = {
        name: step.model_copy(update={"first_dispatch": step.first_dispatch or snapshot.created})
        for name, step in snapshot.steps.items()
    }
    return snapshot.model_copy(update={"steps": steps})


async def _attach(connection: Connection, existing: Versioned, wanted: RunSnapshot) -> Versioned:
    run = existing.snapshot
    if run.status == "purged":
        raise RunEnded(f"run {run.run} was purged, its id cannot be used again yet: start it under another id")
    if _identity(run) != _identity(wanted):
        raise RunConflict(
            f"run id {run.run} is taken:\n  it is {_described(run)}\n  this is {_described(wanted)}\n"
            "Use another run id, or start it with the same agent and input to attach to it."
        )
    # Its starter may have died before the effects: finish them.
    await ensure(connection, existing)
    return existing


def _identity(run: RunSnapshot) -> tuple[str, str, str, str | None, str]:
    return run.what, run.type, run.driver, run.parent, digest(run.input)


def _described(run: RunSnapshot) -> str:
    child = f", a child of {run.parent}" if run.parent else ""
    return f"{run.what} {run.type} driven by a {run.driver}{child}, input {digest(run.input)[:12]}"


async def _refuse_a_past(connection: Connection, snapshot: RunSnapshot) -> None:
    """A journal without a run would answer the new run with another one's results."""
    for name in snapshot.steps:
        past = await connection.last(JOURNAL, connection.names.journal(snapshot.run, name))
        if past is not None:
            raise RunConflict(
                f"run id {snapshot.run} has a journal (record {past.seq} in step {name}) but no run: its snapshot "
                "was deleted, or it was purged. Use another run id, or purge what is left of it."
            )
