"""Large values lie in the object store; their records hold the digest (JOURNAL.md, Where it lives)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import cast

from pydantic_core import from_json, to_json

from agentbook.broker.connection import Connection
from agentbook.broker.outcomes import StreamFull, Undecided
from agentbook.errors import JournalTruncated, JournalUnavailable, PayloadTooLarge
from agentbook.journal.records import Interruption, Record, from_fields
from agentbook.seams import seam

INLINE_BYTES = 256 * 1024
"""A record larger than this, or than half of what the server accepts, is made smaller by spilling."""

FIELDS = ("response", "output", "input", "state", "content", "value")
"""Fields whose value may lie in the object store. What an interrupted call had emitted may, too, as one list."""

_INTERRUPTED = "interrupted"

Json = dict[str, object]


def is_blob(value: object) -> bool:
    """True for a value that stands for one in the object store. The codec escapes keys that begin with ``$``."""
    return isinstance(value, dict) and set(cast("Json", value)) == {"$blob"}


async def spill(connection: Connection, run: str, data: bytes, what: str) -> bytes:
    """Put a record's largest values into the object store until the rest is small enough.

    Args:
        data: the record, encoded.
        what: whose record it is, for the text of an error.

    Returns:
        The record with references in place of what was stored.

    Raises:
        PayloadTooLarge: the object store has no room.
        JournalUnavailable: the server did not decide before the append deadline.
    """
    limit = min(INLINE_BYTES, connection.max_payload // 2)
    if len(data) <= limit:
        return data
    fields = cast("Json", from_json(data))
    sizes = {name: len(to_json(fields[name])) for name in FIELDS if name in fields}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if len(data) <= limit:
            break
        fields[name] = {"$blob": await store(connection, run, to_json(fields[name]), what)}
        data = to_json(fields)
    interrupted = cast("Json | None", fields.get("interrupted"))
    if len(data) > limit and interrupted is not None:
        blob = await store(connection, run, to_json(interrupted["partial"]), what)
        interrupted["partial"] = [{"$blob": blob}]
        data = to_json(fields)
    seam("after_spill", cast("int", fields["iteration"]))
    return data


async def store(connection: Connection, run: str, value: bytes, what: str, *, name: str | None = None) -> Json:
    """Store one value, unless it is there already.

    Args:
        name: what to call it within the run; its digest if left out.

    Returns:
        What a record says of it. Raises as `spill`.
    """
    digest = hashlib.sha256(value).hexdigest()
    place = f"{run}/{name or digest}"
    try:
        if name is not None or await connection.blobs.size(place) != len(value):
            await connection.blobs.put(place, value)
    except StreamFull as error:
        advice = "make room in the object store: purge ended runs (`agentbook purge RUN`) or raise its limit"
        limit = min(INLINE_BYTES, connection.max_payload // 2)
        raise PayloadTooLarge(f"{what} (the object store is full: {error})", len(value), limit, advice) from None
    except Undecided as error:
        raise JournalUnavailable(f"the server did not decide {what} of run {run} in time: {error}") from None
    return {"sha256": digest, "size": len(value)}


async def fetch(connection: Connection, run: str, blob: object, *, name: str | None = None) -> bytes:
    """Read a value back and verify it; read once more before calling it missing.

    Raises:
        JournalTruncated: it is missing, or not what was stored.
    """
    wanted = cast("dict[str, Json]", blob)["$blob"]
    place = f"{run}/{name or wanted['sha256']}"
    for _ in range(2):
        data = await connection.blobs.get(place)
        if data is not None and hashlib.sha256(data).hexdigest() == wanted["sha256"]:
            return data
    raise JournalTruncated(
        f"a value of run {run} ({wanted['size']:,} bytes, object {place}) is missing from the object store or "
        "damaged. The run cannot go on safely without it."
    )


def references(record: Record) -> dict[str, str]:
    """The digests of a record's large values, and the fields they belong to."""
    found: dict[str, str] = {}
    for name in (*FIELDS, _INTERRUPTED):
        value = reference(record, name)
        if is_blob(value):
            found[str(cast("dict[str, Json]", value)["$blob"]["sha256"])] = name
    return found


def reference(record: Record, name: str) -> object:
    """What a record holds in a field that `references` names: what `fetch` reads its value by."""
    value = getattr(record, name, None) if name in record.model_fields_set else None
    if name == _INTERRUPTED and isinstance(value, Interruption):
        return value.partial[0] if len(value.partial) == 1 else None
    return value


async def filled(connection: Connection, record: Record) -> Record:
    """A record with its values in place of references. Raises as `fetch`."""
    values = {
        digest: await fetch(connection, record.run, reference(record, name))
        for digest, name in references(record).items()
    }
    return filled_from(values, record)


def filled_from(values: Mapping[str, bytes], record: Record) -> Record:
    """The same with values that are here, by digest."""
    wanted = references(record)
    if not wanted:
        return record
    fields = cast("Json", from_json(record.encode()))
    for digest, name in wanted.items():
        if name == _INTERRUPTED:
            cast("Json", fields[name])["partial"] = from_json(values[digest])
        else:
            fields[name] = from_json(values[digest])
    return from_fields(fields, record.seq)
