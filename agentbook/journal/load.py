"""Read a journal up to its tail: from this worker's cache, from a memo, or from the head (JOURNAL.md, Open 2)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import cast

from pydantic_core import from_json

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL, MEMO
from agentbook.broker.outcomes import ShortRead, Stored
from agentbook.errors import JournalTruncated, RunEnded
from agentbook.journal import memo
from agentbook.journal.fold import Fold
from agentbook.journal.records import Claim, Commit, Purged, Record, decode
from agentbook.journal.spill import fetch, filled, is_blob

_CACHED_FOLDS = 256


class FoldCache:
    """The folds this worker's own commits and pauses left, by step; the oldest go first.

    One is used only if the journal's tail is still the record it ends at.
    """

    def __init__(self, size: int = _CACHED_FOLDS) -> None:
        self._size = size
        self._folds: OrderedDict[tuple[str, str], Fold] = OrderedDict()

    def keep(self, run: str, step: str, fold: Fold) -> None:
        """Keep a fold whose writer has written its last record."""
        self._folds[run, step] = fold
        self._folds.move_to_end((run, step))
        while len(self._folds) > self._size:
            self._folds.popitem(last=False)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._folds

    def take(self, run: str, step: str, tail: int) -> Fold | None:
        """The fold up to `tail`, if it is here; it is handed over, not shared."""
        fold = self._folds.pop((run, step), None)
        return fold if fold is not None and fold.upto == tail else None


async def load(connection: Connection, run: str, step: str, head: int | None, cache: FoldCache) -> Fold:
    """The fold of a step's journal up to the tail that the stream's leader names.

    Args:
        head: the sequence of its first record, if that is known.

    Raises:
        JournalTruncated: records that must be there are gone.
        RunEnded: the run was purged.
    """
    subject = connection.names.journal(run, step)
    remembered: Stored | None = None
    if (run, step) in cache:
        tail = await connection.last(JOURNAL, subject)
    else:
        tail, remembered = await asyncio.gather(connection.last(JOURNAL, subject), _remembered(connection, run, step))
    if tail is None:
        if head is not None:
            raise JournalTruncated(
                f"journal head missing: run {run} began at record {head}, but its journal is empty. "
                "It cannot be resumed safely; start it under another id."
            )
        return Fold()
    if isinstance(decode(tail.data, tail.seq), Purged):
        raise RunEnded(f"run {run} was purged; start it under another id")
    cached = cache.take(run, step, tail.seq)
    if cached is not None:
        return cached
    fold = await _from_memo(connection, subject, run, step, remembered, tail)
    return fold if fold is not None else await _from_head(connection, subject, run, tail, head)


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


async def _from_memo(
    connection: Connection, subject: str, run: str, step: str, remembered: Stored | None, tail: Stored
) -> Fold | None:
    """The memo's fold and what came after it; None if the journal holds another record where the memo ends."""
    found = await read_memo(connection, run, step, remembered)
    if found is None or found.upto > tail.seq:
        return None
    rest = await _read(connection, subject, tail, found.upto)
    last = decode(rest[0].data, rest[0].seq)
    if (last.seq, last.claim, last.n) != (found.upto, found.claim, found.n):
        return None
    await _add(connection, found.fold, rest[1:])
    return found.fold


async def _remembered(connection: Connection, run: str, step: str) -> Stored | None:
    """The newest memo any replica holds; the leader's own answer would be a third longer, and no better."""
    found = [stored async for stored in connection.read(MEMO, connection.names.memo(run, step))]
    return found[-1] if found else None


async def read_memo(connection: Connection, run: str, step: str, remembered: Stored | None) -> memo.Memo | None:
    """A stored memo with its fold; None if there is none that can be read."""
    stored = memo.parse(remembered.data) if remembered is not None else None
    if remembered is None or stored is None:
        return None
    if is_blob(stored["fold"]):
        try:
            blob = cast("dict[str, object]", stored["fold"])
            stored["fold"] = from_json(await fetch(connection, run, blob, name=memo.memo_name(step)))
        except JournalTruncated:
            return None  # a newer memo has taken its place, or none is there: read the journal instead
    found = memo.build(stored)
    if found is not None:
        found.fold.memo_size = len(remembered.data)
    return found


async def _from_head(connection: Connection, subject: str, run: str, tail: Stored, head: int | None) -> Fold:
    stored = await _read(connection, subject, tail, head or 1)
    first = decode(stored[0].data, stored[0].seq)
    named = head if head is not None else first.head if isinstance(first, Claim) else None
    if (named is not None and named != first.seq) or not isinstance(first, Claim):
        raise JournalTruncated(
            f"journal head missing: run {run} began at record {named or 'unknown'}, the first one there is "
            f"{first.seq}. It cannot be resumed safely; start it under another id."
        )
    fold = Fold()
    await _add(connection, fold, stored)
    return fold


async def _add(connection: Connection, fold: Fold, stored: list[Stored]) -> None:
    """Fold records, with the large values of those that still matter."""
    records = [decode(message.data, message.seq) for message in stored]
    commits = [record for record in records if isinstance(record, Commit) and record.advancing]
    last = commits[-1] if commits else None
    full = (last.snapshot or last.seq) if last is not None else 0
    done = last.iteration if last is not None else -1
    for record, message in zip(records, stored, strict=True):
        if isinstance(record, Commit) and record.seq < full:
            # A later full state stands for it.
            record = record.model_copy(update={"state": None, "snapshot": None})
        elif record.iteration > done or isinstance(record, Commit):
            record = await filled(connection, record)
        fold.add(record, len(message.data))


async def _read(connection: Connection, subject: str, tail: Stored, start: int) -> list[Stored]:
    try:
        return [stored async for stored in connection.read(JOURNAL, subject, start=start, upto=tail.seq)]
    except ShortRead as error:
        raise JournalTruncated(f"{subject} could not be read up to record {tail.seq}: {error}") from None
