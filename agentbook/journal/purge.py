"""Removing a journal so that nothing of it comes back (JOURNAL.md, Purge)."""

from __future__ import annotations

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.ids import new_claim_id
from agentbook.journal.append import Lost, Place, Writer
from agentbook.journal.fold import Fold
from agentbook.journal.records import Purged, decode
from agentbook.journal.redact import Redactor

TOMBSTONE_TTL = "720h"
"""30 days: longer than any holder stands still and then wakes."""


async def purge(connection: Connection, run: str, step: str, *, deadline: float) -> None:
    """Leave nothing of a step's journal but a tombstone that fences everyone; harmless to repeat.

    Raises:
        JournalUnavailable: the server did not decide before the deadline.
        JournalFull: there is no room even for the tombstone.
    """
    subject = connection.names.journal(run, step)
    while True:
        # First, because on a full stream the tombstone alone would be refused.
        await connection.purge(JOURNAL, subject, keep=1)
        stored = await connection.last(JOURNAL, subject)
        tail = None if stored is None else decode(stored.data, stored.seq)
        if isinstance(tail, Purged):
            return
        # A journal that nobody has begun needs one as well: its first holder may stand still before its claim.
        iteration, attempt, upto = (0, 1, 0) if tail is None else (tail.iteration, tail.attempt, tail.seq)
        place = Place(run, step, iteration, attempt)
        writer = Writer(connection, place, new_claim_id(), Fold(upto=upto), deadline=deadline, redactor=Redactor())
        try:
            await writer.append_claim(Purged(), what="the tombstone", ttl=TOMBSTONE_TTL)
        except Lost:
            continue
