"""Run snapshots in their stream: created once, read from the leader, moved by compare-and-swap."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from pydantic_core import from_json

from agentbook.broker.connection import Connection
from agentbook.broker.names import RUNS
from agentbook.broker.outcomes import WrongLastSequence
from agentbook.errors import FormatVersion, JournalUnavailable
from agentbook.protocol.snapshot import VERSION, RunSnapshot
from agentbook.protocol.store import store

_WRITE = "Agentbook-Write"
"""Names one write, so that its writer knows it again: two writers may save the same bytes."""

_PATIENCE = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0)


@dataclass(frozen=True, slots=True)
class Versioned:
    """A snapshot and the sequence it is stored at: the expectation of the next save."""

    snapshot: RunSnapshot
    seq: int


async def create(connection: Connection, snapshot: RunSnapshot) -> Versioned | None:
    """Store a run's first snapshot; None if the id is taken. This write is the claim on the id."""
    return await _write(connection, snapshot, 0)


async def load(connection: Connection, run: str) -> Versioned | None:
    """Read a run's snapshot from the stream's leader; None if there is no such run.

    Raises:
        FormatVersion: it was written by another version.
    """
    stored = await connection.last(RUNS, connection.names.run(run))
    if stored is None:
        return None
    fields = from_json(stored.data)
    if fields.get("v") != VERSION:
        raise FormatVersion(
            f"run {run} has format version {fields.get('v')!r}, this agentbook reads {VERSION}: upgrade it."
        )
    return Versioned(RunSnapshot.model_validate(fields), stored.seq)


async def save(
    connection: Connection, snapshot: RunSnapshot, expect: int, *, ttl: str | None = None
) -> Versioned | None:
    """Store a run's next snapshot; None if another writer came first.

    Args:
        ttl: for how long it is kept; None for ever.
    """
    return await _write(connection, snapshot, expect, ttl)


async def _write(
    connection: Connection, snapshot: RunSnapshot, expect: int, ttl: str | None = None
) -> Versioned | None:
    subject = connection.names.run(snapshot.run)
    data = snapshot.encode()
    write = os.urandom(8).hex()
    for pause in _PATIENCE:
        try:
            ack = await store(
                connection, subject, data,
                what=f"the snapshot of run {snapshot.run}", expect=expect, ttl=ttl, headers={_WRITE: write},
            )  # fmt: skip
            return Versioned(snapshot, ack.seq)
        except WrongLastSequence:
            stored = await connection.last(RUNS, subject)
            # A lost ack looks the same (JOURNAL.md, Append): our own write at the tail means that we won.
            if stored is not None and stored.headers.get(_WRITE) == write:
                return Versioned(snapshot, stored.seq)
            if (stored.seq if stored is not None else 0) != expect:
                return None
        # On R3 another write can be proposed and not yet applied: who won is not decided.
        await asyncio.sleep(pause)
    raise JournalUnavailable(f"the snapshot of run {snapshot.run} is still undecided: try again")
