"""Request and reply over one inbox, decided as early as the wire knows."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentbook.broker.outcomes import Denied, NoResponders, Undecided
from agentbook.broker.wire import Message, Wire

_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


@dataclass(slots=True)
class _Waiting:
    subject: str
    future: asyncio.Future[Message]


class Requests:
    """Matches replies to the requests in flight.

    nats-py's own `request` waits for its time-out when the connection drops or the
    server denies the subject; here both end it at once.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._prefix = ""
        self._tokens = itertools.count()
        self._waiting: dict[str, _Waiting] = {}
        self._no_inbox: Denied | None = None

    async def open(self) -> None:
        """Subscribe to the inbox. Call it once, after the wire is open."""
        self._prefix = self._wire.inbox() + "."
        await self._wire.subscribe(self._prefix + "*", self._reply)
        self._wire.on_drop.add(self._dropped)

    async def call(
        self, subject: str, data: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Message:
        """Send a request and wait for its reply.

        Raises:
            NoResponders: nobody listens on `subject`.
            Denied: we may not publish there, or not receive replies.
            NotConnected: it was not sent.
            Undecided: no reply in `timeout` seconds, or the connection dropped.
        """
        if self._no_inbox is not None:
            raise self._no_inbox
        token = str(next(self._tokens))
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(subject, future)
        try:
            async with asyncio.timeout(timeout):
                await self._wire.publish(subject, data, self._prefix + token, headers)
                reply = await future
        except TimeoutError:
            raise Undecided(f"no answer on {subject} in {timeout:g} s") from None
        finally:
            del self._waiting[token]
        if reply.status == "503" and not reply.data:
            raise NoResponders(f"nobody answers on {subject}")
        return reply

    def _dropped(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(Undecided("the connection dropped"))

    def refused(self, text: str) -> None:
        """The server denied something: find out whose request it was."""
        match = _DENIED.search(text)
        if match is None:
            return
        verb, subject = match[1].lower(), match[2].lower()
        if verb == "subscription":
            if subject.startswith(self._prefix.lower()):
                self._no_inbox = Denied(f"this user may not subscribe to {self._prefix}*")
                self._fail(lambda _: True, str(self._no_inbox))
            return
        self._fail(lambda waiting: waiting.subject.lower() == subject, f"this user may not publish to {match[2]}")

    def _fail(self, which: Callable[[_Waiting], bool], text: str) -> None:
        for waiting in self._waiting.values():
            if which(waiting) and not waiting.future.done():
                waiting.future.set_exception(Denied(text))

    async def _reply(self, message: Message) -> None:
        waiting = self._waiting.get(message.subject[len(self._prefix) :])
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(message)
