"""Following a subject: each message once, in order, over restarts of the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator

from agentbook.broker.api import Api, Json
from agentbook.broker.outcomes import ApiError, Stored, Undecided
from agentbook.broker.pull import ack_numbers
from agentbook.broker.wire import Inbox, Message, Wire

_HEARTBEAT = 5.0
_INACTIVE = 30.0


async def follow(
    wire: Wire, api: Api, stream: str, subject: str, start: int, prefix: str
) -> AsyncGenerator[Stored, None]:
    """Messages of a subject from sequence `start` on, as they come.

    One ephemeral ordered consumer at a time. It lives in the server's memory, so a dropped
    connection, a gap in its numbering or a missed heartbeat makes a new one, right after the
    last message that was yielded. It is deleted when the iterator is closed, and
    forgotten by the server if we die.

    Raises:
        ApiError: the stream does not exist.
        NotConnected: the connection was closed.
    """
    reached = start - 1
    while True:
        await wire.up.wait()
        inbox = await Inbox(wire).open()
        name = f"{prefix}{os.urandom(8).hex()}"
        try:
            await _create(api, stream, name, subject, reached + 1, inbox.subject)
            async for stored in _deliveries(wire, inbox):
                reached = stored.seq
                yield stored
        except Undecided:
            # Not up: wait above. Up, but not ready: give the server a moment.
            await asyncio.sleep(0.1)
        finally:
            await inbox.close()
            await _delete(api, stream, name)


async def _create(api: Api, stream: str, name: str, subject: str, start: int, inbox: str) -> None:
    config: Json = {
        "name": name,
        "filter_subject": subject,
        "deliver_subject": inbox,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "ack_policy": "none",
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": round(_HEARTBEAT * 1e9),
        "inactive_threshold": round(_INACTIVE * 1e9),
        "mem_storage": True,
        "num_replicas": 1,
    }
    body: Json = {"stream_name": stream, "config": config, "action": "create"}
    await api.once(f"CONSUMER.CREATE.{stream}.{name}.{subject}", body)


async def _deliveries(wire: Wire, inbox: Inbox) -> AsyncGenerator[Stored, None]:
    """What one consumer delivers; ends when it can no longer be trusted to be complete."""
    expected = 1
    while True:
        try:
            async with asyncio.timeout(_HEARTBEAT * 2.5):
                message = await inbox.next()
        except TimeoutError:
            return
        if message.status is None:
            stored, number = _stored(message)
            if number != expected:
                return
            expected += 1
            yield stored
        elif message.status == "100":
            if message.reply is not None:
                await wire.publish(message.reply, b"")
            elif (stalled := message.headers.get("Nats-Consumer-Stalled")) is not None:
                await wire.publish(stalled, b"")
            last = message.headers.get("Nats-Last-Consumer")
            if last is not None and int(last) != expected - 1:
                return
        else:
            return


def _stored(message: Message) -> tuple[Stored, int]:
    assert message.reply is not None
    numbers = ack_numbers(message.reply)
    return Stored(numbers.stream_seq, message.subject, message.data, message.headers), numbers.consumer_seq


async def _delete(api: Api, stream: str, name: str) -> None:
    # Else it is gone with the server, or goes with its inactivity limit.
    with contextlib.suppress(ApiError, Undecided):
        await api.once(f"CONSUMER.DELETE.{stream}.{name}", timeout=1.0)
