"""A wait that is given up at any moment takes nothing with it."""

import asyncio
import contextlib
import os
import signal

import pytest

from agentbook.broker.connection import connect
from agentbook.broker.names import RUNS

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def test_a_subscription_that_is_cancelled_at_any_moment_leaves_the_connection_hearing(server, settings):
    async def ignore(message):
        pass

    connection = await connect(server.target, settings, provision=True)
    deaf = None
    for moments in range(1, 40):
        subscribing = asyncio.create_task(connection.subscribe(f"nothing.{moments}", ignore))
        for _ in range(moments):
            await asyncio.sleep(0)
        subscribing.cancel()
        await asyncio.wait([subscribing])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                assert await connection.last(RUNS, connection.names.run("nobody")) is None
                continue
        deaf = moments
        break
    await connection.close()
    assert deaf is None


async def test_a_server_that_stood_still_for_longer_than_a_flush_waits_is_heard_again(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    os.kill(own_server.pid, signal.SIGSTOP)
    await connection._wire.flush(1)
    os.kill(own_server.pid, signal.SIGCONT)
    hears = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(8):
            hears = await connection.last(RUNS, connection.names.run("nobody")) is None
    await connection.close()
    assert hears
