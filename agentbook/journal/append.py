"""The only way to write a journal (JOURNAL.md, Append).

Every record is published with the sequence its writer saw last; a writer that lost the
tail cannot write. That is the fence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.broker.outcomes import (
    Denied,
    PublishError,
    Stored,
    StreamFull,
    TooLarge,
    Undecided,
    WrongLastSequence,
)
from agentbook.errors import (
    ConfigError,
    Fenced,
    JournalFull,
    JournalTruncated,
    JournalUnavailable,
    PayloadTooLarge,
    Signal,
    UsageError,
)
from agentbook.journal.fold import Fold
from agentbook.journal.instants import now
from agentbook.journal.memo import Memo, memo_name
from agentbook.journal.records import Claim, Commit, Pause, Purged, Record, Resolution, decode
from agentbook.journal.redact import Redactor
from agentbook.journal.spill import spill, store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """What a writer writes for: the step of a run, its iteration and attempt."""

    run: str
    step: str
    iteration: int
    attempt: int


@dataclass(slots=True)
class _Pending:
    """A record that was sent, and whose fate is not known yet.

    Attributes:
        n: its number within the claim.
        data: what is stored.
        whole: the same with its large values in place.
        what: whose record it is, for errors.
        ttl: for how long it is kept, None for ever.
    """

    n: int
    data: bytes
    whole: bytes
    what: str
    ttl: str | None


class Lost(Exception):
    """Another claim's record is at the tail."""


class Writer:
    """Writes one claim's records, in order, and folds each one that is stored.

    Attributes:
        fold: the fold of everything up to the writer's tail.
        redactor: knows what must not be written.
        settled: the signal that ended this writer; it is raised again by every later append.
    """

    def __init__(
        self, connection: Connection, place: Place, claim: str, fold: Fold, *, deadline: float, redactor: Redactor
    ) -> None:
        self.place = place
        self.redactor = redactor
        self.claim = claim
        self.fold = fold
        self.settled: Signal | None = None
        self._connection = connection
        self._subject = connection.names.journal(place.run, place.step)
        self._deadline = deadline
        self._next = 0
        self._ended = ""
        self._pending: _Pending | None = None
        self._lock = asyncio.Lock()

    @property
    def tail(self) -> int:
        """The sequence this writer expects at the tail."""
        return self.fold.upto

    def settle(self, signal: Signal) -> Signal:
        """Keep the first signal that ends this writer; later calls raise it again."""
        self.settled = self.settled or signal
        return self.settled

    async def append(self, record: Record, *, what: str = "a record") -> Record:
        """Store a record after everything this writer saw.

        Args:
            record: the record's own fields; its envelope is stamped here.
            what: whose record it is, for errors about its size.

        Returns:
            The record as it is stored.

        Raises:
            Fenced: a newer claim has the journal.
            JournalTruncated: the journal's subject is empty.
            JournalUnavailable: the server did not decide before the deadline.
            JournalFull: the stream has no room.
            PayloadTooLarge: the server does not accept a message of that size.
        """
        async with self._lock:
            if self._ended:
                raise UsageError(
                    f"run {self.place.run}: this holder wrote its {self._ended}, which is its last record: "
                    "return from the handler after it"
                )
            try:
                await self._ready()
                return await self._append(record, what)
            except Lost:
                raise self.settle(await self.fenced()) from None

    async def append_claim(
        self, claim: Claim | Resolution | Purged, *, what: str = "the claim", ttl: str | None = None
    ) -> Record:
        """Store the record that fences, this writer's first; `Lost`: the tail moved, and its caller decides again."""
        async with self._lock:
            return await self._append(claim, what, ttl)

    async def confirm_tail(self) -> None:
        """Read the tail from the leader: a fenced holder must not spend a model call.

        Raises:
            Fenced: a newer claim has the journal.
            JournalTruncated: the journal's subject is empty.
        """
        async with self._lock:
            try:
                await self._ready()
                await self._own_tail()
            except Lost:
                raise self.settle(await self.fenced()) from None

    async def remember(self) -> None:
        """Store a memo of the fold, if the records since the last one outweigh it.

        A cache: whatever goes wrong costs the next open some time, and nothing else.
        """
        fold = self.fold
        if fold.unremembered <= fold.memo_size:
            return
        found = Memo(fold.upto, self.claim, self._next - 1, fold)
        data = found.encode()
        fold.memo_size = len(data)
        if fold.unremembered <= len(data):
            return
        place = self.place
        try:
            if len(data) > self._connection.max_payload // 2:
                blob = await store(
                    self._connection, place.run, found.encode_fold(), "a memo", name=memo_name(place.step)
                )
                data = found.encode(blob)
            await self._connection.publish(self._connection.names.memo(place.run, place.step), data)
        except (PublishError, PayloadTooLarge, JournalUnavailable) as error:
            log.debug("no memo of run %s: %s", place.run, error)
            return
        fold.unremembered = 0

    async def decide_pending(self) -> None:
        """Decide what a cancelled caller left undecided, so that the fold holds it or it was never stored.

        Raises as `append`.
        """
        async with self._lock:
            try:
                await self._ready()
            except Lost:
                raise self.settle(await self.fenced()) from None

    async def _ready(self) -> None:
        if self.settled is not None:
            raise self.settled
        if self._pending is not None:
            # A cancelled caller left it undecided: its number belongs to it until it is decided.
            await self._decide(self._pending)

    async def _append(self, record: Record, what: str, ttl: str | None = None) -> Record:
        place = self.place
        stamped = record.stamped(
            run=place.run, step=place.step, iteration=place.iteration, attempt=place.attempt,
            claim=self.claim, n=self._next, at=now(),
        )  # fmt: skip
        whole = self.redactor.encoded(stamped.encode())
        data = await spill(self._connection, place.run, whole, what)
        self._pending = _Pending(self._next, data, whole, what, ttl)
        return await self._decide(self._pending)

    async def _decide(self, pending: _Pending) -> Record:
        try:
            seq = await self._publish(pending)
        except (JournalFull, PayloadTooLarge, ConfigError):
            self._pending = None  # refused before it was stored: its number is free again
            raise
        self._pending = None
        self._next = pending.n + 1
        stored = decode(pending.whole, seq)
        self.fold.add(stored, len(pending.data))
        self._ended = stored.kind if isinstance(stored, Commit | Pause) else ""
        return stored

    async def _publish(self, pending: _Pending) -> int:
        """Send one record until it is decided; its sequence, or `Lost`."""
        last: PublishError = Undecided("the connection is closed")
        async for left in self._connection.api.tries(self._deadline):
            try:
                ack = await self._connection.publish(
                    self._subject,
                    pending.data,
                    expect=self.tail,
                    msg_id=f"{self.claim}.{pending.n}",
                    ttl=pending.ttl,
                    timeout=min(5.0, left),
                )
                return ack.seq
            except WrongLastSequence as error:
                last = error
                seq = await self._own_record(pending)
                if seq is not None:
                    return seq
            except Undecided as error:
                last = error
            except StreamFull as error:
                raise JournalFull(
                    f"the journal has no room for {pending.what} of run {self.place.run} "
                    f"({len(pending.data):,} bytes): purge ended runs (`agentbook purge RUN`) or raise the stream's "
                    f"limit. The run goes on from here once there is room. The server said: {error}"
                ) from None
            except TooLarge as error:
                raise PayloadTooLarge(pending.what, error.size, error.limit) from None
            except Denied as error:
                raise ConfigError(
                    f"this connection may not publish to {self._subject}: give its user that permission. {error}"
                ) from None
        code = f" (code {last.code})" if last.code else ""
        raise JournalUnavailable(
            f"the server did not decide {pending.what} of run {self.place.run} within {self._deadline:g} s{code}: "
            f"{last}. Nothing is guessed; the run is tried again when the server answers."
        )

    async def _own_record(self, pending: _Pending) -> int | None:
        """After a refusal: the sequence if our own record is the tail, None to try again, or `Lost`."""
        tail = await self._tail()
        if tail is None:
            # On R3 another record can be proposed and not yet applied: the tail is still what we expect.
            return None
        if (tail.claim, tail.n) == (self.claim, pending.n):
            return tail.seq
        raise Lost

    async def _own_tail(self) -> None:
        if await self._tail() is not None:
            raise Lost

    async def _tail(self) -> Record | None:
        """The record at the tail if it is not the one this writer saw last."""
        stored = await self._connection.last(JOURNAL, self._subject)
        if stored is None and self.tail:
            raise JournalTruncated(
                f"the journal of run {self.place.run} is empty, but record {self.tail} was there: it was purged or "
                "its stream was replaced. The run cannot go on safely; start it under another id."
            )
        if stored is None or stored.seq <= self.tail:
            return None
        return decode(stored.data, stored.seq)

    async def fenced(self) -> Signal:
        """Who took the journal: the first fencing record after our own tail."""
        tail = await self._connection.last(JOURNAL, self._subject)
        async for stored in self._since(tail):
            record = decode(stored.data, stored.seq)
            if record.claim != self.claim:
                return fenced_by(record)
        return Fenced(self.place.run, "a newer claim", tail.seq if tail else 0, "unknown")

    async def _since(self, tail: Stored | None) -> AsyncIterator[Stored]:
        if tail is not None:
            async for stored in self._connection.read(JOURNAL, self._subject, start=self.tail + 1, upto=tail.seq):
                yield stored


def fenced_by(record: Record) -> Fenced:
    """The signal for a holder that finds another claim's record."""
    match record:
        case Claim():
            who = record.worker
        case Resolution():
            who = f"a resolution by {record.by}"
        case Purged():
            who = "a purge"
        case _:
            who = f"claim {record.claim[:4]}"
    return Fenced(record.run, who, record.seq, record.at)
