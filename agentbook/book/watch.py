"""Waiting for a run without a consumer: announcements wake us, the leader tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentbook.broker.connection import Connection
from agentbook.broker.wire import Message
from agentbook.errors import RunNotFound
from agentbook.protocol import runs
from agentbook.protocol.snapshot import RunSnapshot

_POLL_SECONDS = 1.0
_STORED_SECONDS = 0.02


async def until(connection: Connection, run: str, reached: Callable[[RunSnapshot], bool]) -> RunSnapshot:
    """Wait until a run's snapshot satisfies `reached`.

    Every save of the snapshot is also a core message on its subject. It may be heard a
    moment before it is stored, or be refused, so it only says that it is time to look.

    Raises:
        RunNotFound: there is no such run.
    """
    heard = asyncio.Event()

    async def wake(_: Message) -> None:
        heard.set()

    subscription = await connection.subscribe(connection.names.run(run), wake)
    try:
        patience = _POLL_SECONDS
        while True:
            # Cleared before the look: what is announced while we look must not be lost.
            heard.clear()
            versioned = await runs.load(connection, run)
            if versioned is None:
                raise RunNotFound(f"there is no run {run!r} in this book")
            if reached(versioned.snapshot):
                return versioned.snapshot
            try:
                async with asyncio.timeout(patience):
                    await heard.wait()
                patience = _STORED_SECONDS
            except TimeoutError:
                patience = min(patience * 4, _POLL_SECONDS)
    finally:
        await subscription.close()
