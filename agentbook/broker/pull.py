"""Pulling work from a durable consumer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from agentbook.broker.api import CONSUMER_EXISTS, CONSUMER_NOT_FOUND, Api, Json
from agentbook.broker.outcomes import ApiError, ConsumerGone, NotConnected, TooLarge, Undecided
from agentbook.broker.wire import Inbox, Message, Wire

log = logging.getLogger(__name__)


async def ensure_consumer(
    api: Api, stream: str, durable: str, filters: list[str], ack_wait: float, max_deliver: int
) -> float:
    """Create a durable pull consumer unless it exists, and say its ack wait in seconds."""
    config: Json = {
        "durable_name": durable,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": round(ack_wait * 1e9),
        "max_deliver": max_deliver,
        # The default of 1,000 stalls whoever has more deliveries open (ENGINE.md).
        "max_ack_pending": -1,
        **({"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}),
    }
    body: Json = {"stream_name": stream, "config": config, "action": "create"}
    try:
        answer = await api.call(f"CONSUMER.CREATE.{stream}.{durable}", body)
    except ApiError as error:
        if error.code not in CONSUMER_EXISTS:
            raise
        answer = await api.call(f"CONSUMER.INFO.{stream}.{durable}")
    return cast("int", cast("Json", answer["config"])["ack_wait"]) / 1e9


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message of a consumer, to be settled.

    Settling never raises: what is lost with a connection is delivered again.

    Attributes:
        seq: its sequence in the stream.
        delivered: how often it was delivered, this time included.
    """

    subject: str
    data: bytes
    seq: int
    delivered: int
    headers: dict[str, str]
    _reply: str = field(repr=False)
    _wire: Wire = field(repr=False)

    async def ack(self) -> None:
        """It is done."""
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0) -> None:
        """Deliver it again, after `delay` seconds."""
        await self._settle(b"-NAK" if delay <= 0 else f'-NAK {{"delay": {round(delay * 1e9)}}}'.encode())

    async def in_progress(self) -> None:
        """Begin its ack wait anew."""
        await self._settle(b"+WPI")

    async def _settle(self, verb: bytes) -> None:
        try:
            await self._wire.publish(self._reply, verb)
        except NotConnected:
            log.debug("not connected: %s of %s was not sent", verb, self.subject)


class Puller:
    """Fetches deliveries; leaves no request behind while nobody is fetching."""

    def __init__(self, wire: Wire, api: Api, stream: str, durable: str) -> None:
        self._wire = wire
        self._api = api
        self._stream = stream
        self._durable = durable
        self._inbox = Inbox(wire)
        self._requests = 0
        self._closed = False

    async def open(self) -> Puller:
        await self._inbox.open(".*")
        return self

    async def fetch(self, n: int, wait: float) -> list[Delivery]:
        """Up to `n` deliveries: what is there now, else the first one within `wait` seconds.

        Raises:
            ConsumerGone: the durable consumer was deleted.
            NotConnected: the connection was closed.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while not self._closed:
            try:
                # What is there now; only if that is nothing, wait for one. So no open
                # request can hand a message to a caller that has no room for it.
                found = await self._request(n, None, end)
                if not found and (left := end - loop.time()) > 0.01:
                    found = await self._request(1, left, end)
                if found or end - loop.time() <= 0.01:
                    return found
            except Undecided as undecided:
                if self._wire.closed:
                    raise
                await self._check(undecided)
            left = end - loop.time()
            if left <= 0:
                return []
            await self._pause(min(0.1, left), left)
        return []

    async def close(self) -> None:
        """Stop; what arrived and was not fetched goes back to the stream at once."""
        self._closed = True
        for message in await self._inbox.close(drain=True):
            if message.status is None:
                await self._delivery(message).nak()

    async def _request(self, n: int, expires: float | None, end: float) -> list[Delivery]:
        self._requests += 1
        inbox = f"{self._inbox.subject}.{self._requests}"
        body = {"batch": n, "no_wait": True} if expires is None else {"batch": n, "expires": round(expires * 1e9)}
        await self._wire.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}", json.dumps(body).encode(), inbox
        )
        found: list[Delivery] = []
        patience = 5.0 if expires is None else expires + 1.0
        try:
            async with asyncio.timeout(patience):
                while len(found) < n:
                    message = await self._inbox.next()
                    if message.status is None:
                        # It may answer an earlier, cancelled fetch: it is a delivery all the same.
                        found.append(self._delivery(message))
                    elif message.subject == inbox:
                        return self._ended(message, found)
        except TimeoutError:
            if expires is None and not found:
                raise Undecided("no answer to a pull") from None
        except BaseException:
            for delivery in found:
                await delivery.nak()
            raise
        return found

    async def _pause(self, pause: float, left: float) -> None:
        if self._wire.up.is_set():
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wire.up.wait()

    def _ended(self, message: Message, found: list[Delivery]) -> list[Delivery]:
        if message.status in ("404", "408"):
            return found
        if found:
            return found
        raise Undecided(f"{message.status} {message.headers.get('Description', '')}")

    async def _check(self, undecided: Undecided) -> None:
        if isinstance(undecided, NotConnected):
            return
        try:
            await self._api.once(f"CONSUMER.INFO.{self._stream}.{self._durable}")
        except ApiError as error:
            if error.code == CONSUMER_NOT_FOUND:
                raise ConsumerGone(f"consumer {self._durable} of {self._stream} is gone", error.code) from None
        except (Undecided, TooLarge):
            pass

    def _delivery(self, message: Message) -> Delivery:
        assert message.reply is not None
        numbers = ack_numbers(message.reply)
        return Delivery(
            subject=message.subject,
            data=message.data,
            seq=numbers.stream_seq,
            delivered=numbers.delivered,
            headers=message.headers,
            _reply=message.reply,
            _wire=self._wire,
        )


class AckNumbers(NamedTuple):
    delivered: int
    stream_seq: int
    consumer_seq: int


def ack_numbers(reply: str) -> AckNumbers:
    """The numbers in an ack subject, with or without a domain."""
    tokens = reply.split(".")
    # $JS.ACK.[domain.account.]stream.consumer.delivered.stream_seq.consumer_seq.time.pending[.token]
    first = 4 if len(tokens) <= 9 else 6
    return AckNumbers(*(int(token) for token in tokens[first : first + 3]))
