"""A connection to a provisioned JetStream: what the rest of agentbook speaks to."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import cast

from agentbook.broker import pull as pulling
from agentbook.broker import read as reading
from agentbook.broker.api import Api, Json
from agentbook.broker.blobs import Blobs
from agentbook.broker.folder import Folder
from agentbook.broker.follow import follow
from agentbook.broker.handshake import check_server, check_tls, refusal
from agentbook.broker.names import Names
from agentbook.broker.outcomes import Ack, NoResponders, NotConnected, Stored, Undecided
from agentbook.broker.pull import Delivery, Puller
from agentbook.broker.requests import Requests
from agentbook.broker.streams import provision as provision_streams
from agentbook.broker.target import Target
from agentbook.broker.wire import ConnectFailed, Message, Subscription, Wire
from agentbook.settings import Settings

log = logging.getLogger(__name__)

_CONNECT = 5.0
"""Seconds for each server of a target."""


class Connection:
    """One NATS connection. It belongs to the loop that opened it, and reconnects for ever.

    Streams and consumers are given by their base name (`names.JOURNAL`), subjects in full.

    Attributes:
        names: every name under this book's namespace.
        settings: the book's settings.
        url: where it is connected, without credentials, for messages.
    """

    def __init__(self, wire: Wire, requests: Requests, target: Target, settings: Settings) -> None:
        self._wire = wire
        self._requests = requests
        folder = Folder(settings.dir) if target.embedded else None
        self.api = Api(wire, requests, settings.append_deadline, folder)
        self.names = Names(settings.namespace)
        self.settings = settings
        self.url = target.url

    @property
    def max_payload(self) -> int:
        """The largest message, headers included, that the server accepts."""
        return self._wire.max_payload

    @property
    def connected(self) -> bool:
        return self._wire.connected

    @property
    def server_info(self) -> Mapping[str, object]:
        """What the server said about itself when it took us."""
        return self._wire.info

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        msg_id: str | None = None,
        ttl: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Ack:
        """Try once to store a message.

        Args:
            expect: the sequence that must be the subject's last, 0 for none.
            msg_id: the id by which the server recognises a repeat.
            ttl: for how long it is kept, for example ``30d``; None for ever.

        Raises:
            WrongLastSequence: `expect` does not hold, or not yet.
            SubjectFull: the subject holds its one message.
            StreamFull: the stream has no room.
            TooLarge: it exceeds `max_payload`.
            Denied: the user may not publish there.
            Undecided: it may or may not be stored.
            PublishError: the server refused it for another reason.
        """
        return await self.api.publish(subject, data, _headers(expect, msg_id, ttl, headers), timeout)

    async def publish_decided(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        msg_id: str | None = None,
        ttl: str | None = None,
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> Ack:
        """Publish the same message again, with back-off, until the server decides.

        A lost ack followed by a repeat with `expect` ends in `WrongLastSequence`: the caller
        recognises its own message (JOURNAL.md, Append).

        Raises:
            Undecided: not decided in `deadline` seconds (default: the setting `append_deadline`).
            PublishError: as `publish`.
        """
        deadline = self.settings.append_deadline if deadline is None else deadline
        merged = _headers(expect, msg_id, ttl, headers)
        last = Undecided("the connection is closed")
        async for left in self.api.tries(deadline):
            try:
                return await self.api.publish(subject, data, merged, min(5.0, left))
            except Undecided as undecided:
                last = undecided
        if hint := self.api.hint():
            raise Undecided(f"{last}{hint}", last.code) from last
        raise last

    async def send(self, subject: str, data: bytes) -> None:
        """Announce something on core NATS; while there is no connection, to nobody."""
        try:
            await self._wire.publish(subject, data)
        except NotConnected:
            log.debug("not connected: nothing was sent on %s", subject)

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes | None:
        """Ask on core NATS. None: nobody listens.

        Raises:
            TimeoutError: no answer within `timeout` seconds, or no connection to ask on.
        """
        try:
            return (await self._requests.call(subject, data, timeout)).data
        except NoResponders:
            return None
        except Undecided as undecided:
            raise TimeoutError(str(undecided)) from None

    async def respond(self, message: Message, data: bytes) -> None:
        """Answer a message that expects one."""
        if message.reply is not None:
            await self.send(message.reply, data)

    async def subscribe(
        self, subject: str, handler: Callable[[Message], Awaitable[None]], queue: str | None = None
    ) -> Subscription:
        """Call `handler` with each core message, one after the other.

        The interest is known to the server when this returns.

        Raises:
            NotConnected: the connection is closed.
        """
        subscription = await self._wire.subscribe(subject, handler, queue or "")
        await self._wire.flush()
        return subscription

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message of a subject, from the stream's leader.

        Raises:
            JournalUnavailable: no answer before the append deadline.
        """
        return await reading.from_leader(self.api, self.names.stream(stream), {"last_by_subj": subject})

    async def at(self, stream: str, seq: int) -> Stored | None:
        """The message with a sequence, from the stream's leader. Raises as `last`."""
        return await reading.from_leader(self.api, self.names.stream(stream), {"seq": seq})

    def read(self, stream: str, subject: str, *, start: int = 1, upto: int | None = None) -> AsyncIterator[Stored]:
        """Messages of a subject (wildcards allowed) in order, in pages.

        Args:
            upto: the sequence of a message of this subject, and the last one yielded;
                None yields what there is.

        Raises:
            ShortRead: no message with sequence `upto` was reached, even after a few repeats.
            JournalUnavailable: a page did not arrive before the append deadline.
        """
        return reading.pages(
            self._wire, self.api, self.names.stream(stream), subject, start, upto, self.settings.append_deadline
        )

    def pages(self, stream: str, subject: str) -> AsyncIterator[Stored]:
        """What a subject of a stream holds now; the stream by its full name."""
        return reading.pages(self._wire, self.api, stream, subject, 1, None, self.settings.append_deadline)

    @property
    def blobs(self) -> Blobs:
        """The object store."""
        return Blobs(self)

    def follow(self, stream: str, subject: str, *, start: int = 1) -> AsyncGenerator[Stored, None]:
        """Messages of a subject as they come, over restarts; never one twice or out of order.

        Close the iterator (`contextlib.aclosing`) to delete its consumer at once.
        """
        return follow(self._wire, self.api, self.names.stream(stream), subject, start, "follow-")

    async def ensure_consumer(
        self, stream: str, durable: str, *, filters: list[str], ack_wait: float, max_deliver: int = -1
    ) -> float:
        """Create a durable pull consumer if there is none; never change one.

        Returns:
            Its ack wait in seconds, which may be another's choice.
        """
        return await pulling.ensure_consumer(
            self.api, self.names.stream(stream), self.names.stream(durable), filters, ack_wait, max_deliver
        )

    async def pull(self, stream: str, durable: str) -> Puller:
        """Begin to fetch from a durable consumer."""
        return await Puller(self._wire, self.api, self.names.stream(stream), self.names.stream(durable)).open()

    async def purge(self, stream: str, subject: str, *, keep: int = 0) -> int:
        """Remove the messages of a subject, all but the newest `keep`. Returns how many."""
        body: Json = {"filter": subject, **({"keep": keep} if keep else {})}
        answer = await self.api.call(f"STREAM.PURGE.{self.names.stream(stream)}", body, timeout=30.0)
        return cast("int", answer["purged"])

    async def count(self, stream: str, subject: str) -> int:
        """How many messages a subject (wildcards allowed) holds, by the leader's word."""
        total = offset = 0
        while True:
            body: Json = {"subjects_filter": subject, "offset": offset}
            answer = await self.api.call(f"STREAM.INFO.{self.names.stream(stream)}", body)
            subjects = cast("dict[str, int] | None", cast("Json", answer["state"]).get("subjects")) or {}
            total += sum(subjects.values())
            offset += len(subjects)
            if not subjects or offset >= cast("int", answer.get("total", 0)):
                return total

    async def info(self, stream: str) -> Json:
        """The stream's ``config`` and ``state``, by the leader's word.

        Raises:
            ApiError: there is no such stream.
        """
        return await self.api.call(f"STREAM.INFO.{self.names.stream(stream)}")

    async def close(self) -> None:
        """Close the connection. What is in flight ends undecided."""
        await self._wire.close()


async def connect(
    target: Target,
    settings: Settings,
    *,
    on_status: Callable[[str], None] | None = None,
    provision: bool = False,
) -> Connection:
    """Connect, and check that the server can serve a book.

    Args:
        on_status: called with ``connected``, ``disconnected``, ``reconnected``, ``closed``.
        provision: create the streams that are missing.

    Raises:
        ServerNotFound: no server answers there.
        ServerTooOld: it lacks message schedules.
        JetStreamDisabled: it runs, or this user's account does, without JetStream.
        ServerError: it refuses us; the text says why.
    """
    heard = on_status or _quietly
    # Errors arrive only once the wire is open, when `requests` exists.
    wire = Wire(heard, lambda text: requests.refused(text))
    requests = Requests(wire)
    await check_tls(target, _CONNECT)
    try:
        await wire.open(target, name=f"agentbook {os.getpid()}", timeout=_CONNECT)
    except ConnectFailed as failed:
        raise refusal(target, failed.causes, _CONNECT) from None
    connection = Connection(wire, requests, target, settings)
    try:
        await requests.open()
        await check_server(wire.info, connection.api, target.url)
        if provision:
            await provision_streams(connection)
    except BaseException:
        await connection.close()
        raise
    heard("connected")
    return connection


def _quietly(status: str) -> None:
    log.debug("connection: %s", status)


def _headers(
    expect: int | None, msg_id: str | None, ttl: str | None, headers: Mapping[str, str] | None
) -> dict[str, str] | None:
    merged = dict(headers) if headers else {}
    if expect is not None:
        merged["Nats-Expected-Last-Subject-Sequence"] = str(expect)
    if msg_id is not None:
        merged["Nats-Msg-Id"] = msg_id
    if ttl is not None:
        merged["Nats-TTL"] = ttl
    return merged or None


__all__ = ["Connection", "Delivery", "Message", "Puller", "Subscription", "connect"]
