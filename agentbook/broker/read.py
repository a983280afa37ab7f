"""Reading what a stream holds: single messages from the leader, and pages of many."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import cast

from agentbook.broker.api import NO_MESSAGE, Api, Json
from agentbook.broker.outcomes import ApiError, NoResponders, ShortRead, Stored, Undecided
from agentbook.broker.wire import Inbox, Message, Wire
from agentbook.errors import JournalUnavailable

_BATCH = 512
_BATCH_BYTES = 8 * 1024 * 1024
_SILENCE = 5.0
_SHORT_READS = 6

_META = frozenset(
    {
        "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending",
        "Nats-Last-Sequence", "Nats-UpTo-Sequence", "Status", "Description",
    }
)  # fmt: skip


async def from_leader(api: Api, stream: str, which: Json) -> Stored | None:
    """One message by ``STREAM.MSG.GET``, which only the stream's leader answers."""
    try:
        answer = await api.call(f"STREAM.MSG.GET.{stream}", which)
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    message = cast("Json", answer["message"])
    return Stored(
        seq=cast("int", message["seq"]),
        subject=cast("str", message["subject"]),
        data=base64.b64decode(cast("str", message.get("data", ""))),
        headers=parse_headers(base64.b64decode(cast("str", message.get("hdrs", "")))),
    )


async def pages(
    wire: Wire, api: Api, stream: str, subject: str, start: int, upto: int | None, deadline: float
) -> AsyncIterator[Stored]:
    """Messages of a subject in order, by batched direct gets, each ended by its marker.

    A replica may answer late, so a read that ends before `upto` is repeated a few times
    from where it stopped before it counts as short.

    Raises:
        ShortRead: `upto` is given and no message with that sequence was reached.
        JournalUnavailable: no page was answered before the deadline.
    """
    reached = start - 1
    short = 0
    while upto is None or reached < upto:
        batch, more = await _page(wire, api, stream, subject, reached + 1, deadline)
        for stored in batch:
            if upto is not None and stored.seq > upto:
                raise ShortRead(stream, subject, reached, upto)
            reached = stored.seq
            yield stored
            if reached == upto:
                return
        if batch and more:
            short = 0
            continue
        if upto is None:
            return
        short += 1
        if short >= _SHORT_READS:
            raise ShortRead(stream, subject, reached if reached >= start else 0, upto)
        await asyncio.sleep(0.01 * 2**short)


async def _page(
    wire: Wire, api: Api, stream: str, subject: str, start: int, deadline: float
) -> tuple[list[Stored], bool]:
    last: Undecided | None = None
    async for _ in api.tries(deadline):
        try:
            return await _page_once(wire, stream, subject, start)
        except Undecided as undecided:
            last = undecided
    raise JournalUnavailable(f"{stream} did not answer a read in {deadline:g} s: {last}")


async def _page_once(wire: Wire, stream: str, subject: str, start: int) -> tuple[list[Stored], bool]:
    """One batch, and whether the server says that more is pending."""
    inbox = await Inbox(wire).open()
    try:
        body = {"seq": start, "next_by_subj": subject, "batch": _BATCH, "max_bytes": _BATCH_BYTES}
        await wire.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode(), inbox.subject)
        batch: list[Stored] = []
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    message = await inbox.next()
            except TimeoutError:
                raise Undecided(f"a page of {stream} stopped arriving") from None
            if message.status is None:
                batch.append(_stored(message))
            elif message.status == "204":
                return batch, int(message.headers.get("Nats-Num-Pending", "0")) > 0
            elif message.status == "404":
                return [], False
            elif message.status == "503":
                raise NoResponders(f"nobody answers reads of {stream}")
            else:
                raise Undecided(f"{message.status} {message.headers.get('Description', '')}")
    finally:
        await inbox.close()


def _stored(message: Message) -> Stored:
    headers = message.headers
    return Stored(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        data=message.data,
        headers={name: value for name, value in headers.items() if name not in _META},
    )


def parse_headers(raw: bytes) -> dict[str, str]:
    """The header block of a stored message."""
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name] = value.strip()
    return headers
