"""Run snapshots in their stream: created once, read from the leader, moved by compare-and-swap."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import from_json

from agentbook.broker.connection import Connection
from agentbook.broker.names import RUNS
from agentbook.broker.outcomes import WrongLastSequence
from agentbook.errors import FormatVersion
from agentbook.protocol.snapshot import VERSION, RunSnapshot


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
        raise FormatVersion(f"run {run} has format version {fields.get('v')!r}, this agentbook reads {VERSION}")
    return Versioned(RunSnapshot.model_validate(fields), stored.seq)


async def save(connection: Connection, snapshot: RunSnapshot, expect: int) -> Versioned | None:
    """Store a run's next snapshot; None if another writer came first."""
    return await _write(connection, snapshot, expect)


async def _write(connection: Connection, snapshot: RunSnapshot, expect: int) -> Versioned | None:
    try:
        ack = await connection.publish_decided(connection.names.run(snapshot.run), snapshot.encode(), expect=expect)
    except WrongLastSequence:
        # A lost ack looks the same (JOURNAL.md, Append): our own bytes at the tail mean that we won.
        stored = await connection.last(RUNS, connection.names.run(snapshot.run))
        if stored is not None and stored.seq > expect and stored.data == snapshot.encode():
            return Versioned(snapshot, stored.seq)
        return None
    return Versioned(snapshot, ack.seq)
