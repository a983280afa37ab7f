# pyright: basic
"""The one module that touches nats-py, whose annotations are not strict enough to build on.

Everything above speaks in `Message`, `Subscription` and the outcomes of `outcomes.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import nats.errors
from nats.aio.client import Client

from agentbook.broker.outcomes import NotConnected, TooLarge
from agentbook.broker.target import Target

logging.getLogger("agentbook").addHandler(logging.NullHandler())
log = logging.getLogger(__name__)

STATUS = "Status"
DESCRIPTION = "Description"


@dataclass(frozen=True, slots=True)
class Message:
    """A core NATS message.

    Attributes:
        reply: the subject an answer is expected on, or None.
        headers: one value for each name; ``Status`` and ``Description`` of an inline status.
    """

    subject: str
    data: bytes
    reply: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str | None:
        """The inline status, for example ``503`` (no responders), or None."""
        return self.headers.get(STATUS)


Handler = Callable[[Message], Awaitable[None]]


class Subscription:
    """An interest in a subject; its handler gets one message at a time."""

    def __init__(self, inner) -> None:
        self._inner = inner

    async def close(self) -> None:
        """Stop receiving. Closing twice is fine."""
        try:
            await self._inner.unsubscribe()
        except nats.errors.Error:
            log.debug("unsubscribe", exc_info=True)

    async def drain(self) -> None:
        """Stop receiving, after the handler has had what the server sent until it knew so."""
        try:
            async with asyncio.timeout(1):
                await self._inner.drain()
        except (nats.errors.Error, OSError, TimeoutError):
            log.debug("drain", exc_info=True)
            await self.close()


class ConnectFailed(Exception):
    """No server of the target took us.

    Attributes:
        causes: what each one said, in the order they were tried.
    """

    def __init__(self, causes: list[Exception]) -> None:
        super().__init__("; ".join(str(cause) or type(cause).__name__ for cause in causes))
        self.causes = causes


class _GiveUp(Exception):
    """Ends nats-py's first connect, which would try for ever."""


class Wire:
    """One NATS connection, bound to the loop that opened it, which reconnects for ever."""

    def __init__(self, on_status: Callable[[str], None], on_error: Callable[[str], None]) -> None:
        self._client = Client()
        self._on_status = on_status
        self._on_error = on_error
        self._connecting: list[Exception] | None = []
        self._tries = 1
        self.up = asyncio.Event()
        self.on_drop: set[Callable[[], None]] = set()

    async def open(self, target: Target, *, name: str, timeout: float) -> None:
        """Connect to the first server of `target` that takes us.

        Raises:
            ConnectFailed: each was tried once.
        """
        self._tries = len(target.servers)
        try:
            await self._client.connect(
                target.servers,
                name=name,
                user=target.user,
                password=target.password,
                token=target.token,
                dont_randomize=True,
                connect_timeout=timeout,  # pyright: ignore[reportArgumentType] - a float serves
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1 if target.embedded else 0.5,  # pyright: ignore[reportArgumentType]
                ping_interval=10,
                # A publish buffered while disconnected would be sent after its caller gave up.
                pending_size=0,
                error_cb=self._failed,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                closed_cb=self._closed,
            )
        except (_GiveUp, nats.errors.Error, OSError, ssl.SSLError, TimeoutError) as error:
            causes = self._connecting or [error]
            self._connecting = None
            await self._shut(0.2)
            raise ConnectFailed(list(causes)) from None
        except BaseException:
            self._connecting = None
            await self._shut(0.2)
            raise
        self._connecting = None
        self.up.set()

    @property
    def info(self) -> dict[str, object]:
        """What the server said about itself."""
        return self._client._server_info

    @property
    def max_payload(self) -> int:
        """The largest message, headers included, that the server accepts."""
        return self._client.max_payload

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    @property
    def closed(self) -> bool:
        """True once it will not reconnect any more."""
        return self._client.is_closed

    def inbox(self) -> str:
        """A fresh subject for answers."""
        return self._client.new_inbox()

    async def publish(
        self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand a message to the socket.

        Raises:
            NotConnected: it was certainly not sent.
            TooLarge: it was certainly not sent.
        """
        size = len(data)
        if headers:
            # The server counts them too, and closes the connection of whoever exceeds the limit.
            size += 14 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        if size > self._client.max_payload:
            raise TooLarge(size, self._client.max_payload)
        try:
            await self._client.publish(subject, data, reply, headers=dict(headers) if headers else None)
        except (
            nats.errors.ConnectionClosedError,
            nats.errors.ConnectionDrainingError,
            nats.errors.OutboundBufferLimitError,
            OSError,
        ) as error:
            raise NotConnected(f"not connected ({error})") from None

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Call `handler` with each message, one after the other."""

        async def deliver(message) -> None:
            try:
                await handler(Message(message.subject, message.data, message.reply or None, message.headers or {}))
            except Exception:
                log.exception("a handler of %s failed", subject)

        try:
            return Subscription(await self._client.subscribe(subject, queue=queue, cb=deliver))
        except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError) as error:
            raise NotConnected(f"not connected ({error})") from None

    async def flush(self, timeout: float = 10) -> None:
        """Wait until the server has seen everything sent so far, or the connection drops; at most `timeout` seconds."""
        if not self.up.is_set():
            return  # nobody would answer; what is subscribed is sent again with the connection
        # Not nats-py's own: a pong for a flush that was given up finds a cancelled future, and ends its read loop.
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def dropped() -> None:
            # nats-py forgets its pongs with the connection.
            if not pong.done():
                pong.set_result(False)

        self.on_drop.add(dropped)
        try:
            await self._client._send_ping(pong)
            await asyncio.wait([pong], timeout=timeout)
        except (nats.errors.Error, OSError, AssertionError, AttributeError):
            log.debug("flush", exc_info=True)
        finally:
            self.on_drop.discard(dropped)

    async def close(self) -> None:
        """Close and leave no task behind."""
        await self._shut(2.0)

    async def _shut(self, patience: float) -> None:
        client = self._client
        if client.is_connected:
            # The last acks and announcements.
            await self.flush(1)
        # What is left will never be sent. nats-py would try, and stop half closed at the first failure.
        client._pending = []
        client._pending_data_size = 0
        tasks = [
            client._reading_task,
            client._ping_interval_task,
            client._flusher_task,
            client._reconnection_task,
            *(subscription._wait_for_msgs_task for subscription in client._subs.values()),
        ]
        # After a failed TLS handshake the transport never says that it is closed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await client.close()
        # nats-py cancels its tasks without waiting for them: a loop that stops now would warn of each.
        current = asyncio.current_task()
        alive = [task for task in tasks if task is not None and task is not current and not task.done()]
        if alive:
            await asyncio.wait(alive, timeout=1)

    async def _failed(self, error: Exception) -> None:
        if self._connecting is not None:
            self._connecting.append(error)
            if len(self._connecting) >= self._tries:
                raise _GiveUp
            return
        log.debug("nats: %s", error)
        self._on_error(str(error))

    async def _disconnected(self) -> None:
        if self._connecting is None:
            self.up.clear()
            for dropped in list(self.on_drop):
                dropped()
            self._on_status("disconnected")

    async def _reconnected(self) -> None:
        self.up.set()
        self._on_status("reconnected")

    async def _closed(self) -> None:
        if self._connecting is None:
            # Wake those who wait for the connection: each finds it closed.
            self.up.set()
            self._on_status("closed")


class Inbox:
    """A subject for several answers, read in order; a dropped connection ends the wait for them."""

    _DROPPED = Message("", b"", None, {STATUS: "dropped"})

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self.subject = wire.inbox()

    async def open(self, suffix: str = "") -> Inbox:
        self._subscription = await self._wire.subscribe(self.subject + suffix, self._queue.put)
        self._wire.on_drop.add(self._drop)
        return self

    async def next(self) -> Message:
        """The next message.

        Raises:
            NotConnected: the connection dropped since the last call.
        """
        message = await self._queue.get()
        if message is self._DROPPED:
            raise NotConnected("the connection dropped")
        return message

    async def close(self, *, drain: bool = False) -> list[Message]:
        """Stop, and hand over what arrived unread, or with `drain` (a round trip) all that was sent."""
        self._wire.on_drop.discard(self._drop)
        if self._subscription is not None:
            await (self._subscription.drain() if drain and self._wire.connected else self._subscription.close())
        rest: list[Message] = []
        while not self._queue.empty():
            message = self._queue.get_nowait()
            if message is not self._DROPPED:
                rest.append(message)
        return rest

    def _drop(self) -> None:
        self._queue.put_nowait(self._DROPPED)
