"""Durable consumers are made once; pulling takes no more than it has room for."""

import asyncio
import threading
import time

import pytest

from agentbook.broker.connection import connect
from agentbook.broker.names import TASKS
from agentbook.broker.outcomes import ConsumerGone

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def durable(connection, ack_wait=1.0):
    return await connection.ensure_consumer(
        TASKS, "w-k", filters=[connection.names.task("k", "*", "*", "*")], ack_wait=ack_wait
    )


async def dispatch(connection, *numbers):
    for number in numbers:
        await connection.publish(connection.names.task("k", "r", "s", number), b"%d" % number)


async def info(connection):
    stream, name = connection.names.stream(TASKS), connection.names.stream("w-k")
    return await connection.api.call(f"CONSUMER.INFO.{stream}.{name}")


async def reaches(connection, figure, value):
    """Wait until the consumer's figure is this."""
    async with asyncio.timeout(5):
        while (await info(connection))[figure] != value:  # noqa: ASYNC110 - the effect is in the server
            await asyncio.sleep(0.01)


async def test_a_consumer_is_created_once_and_its_ack_wait_read_back(connection):
    waits = await asyncio.gather(*(durable(connection, wait) for wait in (7.0, 8.0, 9.0)))
    assert len(set(waits)) == 1
    assert await durable(connection, 2.0) == waits[0]
    config = (await info(connection))["config"]
    assert (config["max_ack_pending"], config["max_deliver"], config["ack_policy"]) == (-1, -1, "explicit")


async def test_fetch_takes_what_is_there_up_to_its_room(connection):
    await durable(connection)
    await dispatch(connection, 1, 2, 3)
    puller = await connection.pull(TASKS, "w-k")
    first = await puller.fetch(2, 1)
    second = await puller.fetch(2, 1)
    assert [delivery.data for delivery in first + second] == [b"1", b"2", b"3"]
    assert {delivery.delivered for delivery in first} == {1}
    assert [delivery.seq for delivery in first] == [1, 2]
    for delivery in first + second:
        await delivery.ack()
    began = time.monotonic()
    assert await puller.fetch(2, 0.3) == []
    assert 0.25 < time.monotonic() - began < 1
    assert (await info(connection))["num_waiting"] == 0
    await puller.close()


async def test_fetch_returns_as_soon_as_something_comes(connection):
    await durable(connection)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(5, 30))
    await reaches(connection, "num_waiting", 1)
    began = time.monotonic()
    await dispatch(connection, 1)
    (delivery,) = await fetching
    assert time.monotonic() - began < 1
    await delivery.ack()
    await puller.close()


async def test_nak_delivers_again_now_or_later_and_in_progress_keeps(connection):
    await durable(connection, ack_wait=0.5)
    await dispatch(connection, 1)
    puller = await connection.pull(TASKS, "w-k")
    (delivery,) = await puller.fetch(1, 2)
    await delivery.nak()
    (delivery,) = await puller.fetch(1, 2)
    assert delivery.delivered == 2
    await delivery.nak(0.3)
    began = time.monotonic()
    (delivery,) = await puller.fetch(1, 2)
    assert delivery.delivered == 3
    assert time.monotonic() - began > 0.2
    for _ in range(4):
        assert await puller.fetch(1, 0.3) == []
        await delivery.in_progress()
    assert await puller.fetch(1, 0.2) == []
    (delivery,) = await puller.fetch(1, 2)
    assert delivery.delivered == 4
    await delivery.ack()
    await puller.close()


async def test_a_cancelled_fetch_loses_no_delivery(connection):
    await durable(connection, ack_wait=30)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(1, 5))
    await reaches(connection, "num_waiting", 1)
    fetching.cancel()
    await dispatch(connection, 1)
    async with asyncio.timeout(3):
        deliveries = await puller.fetch(1, 3)
    assert [delivery.data for delivery in deliveries] == [b"1"]
    await deliveries[0].ack()
    await puller.close()


async def test_what_arrived_unread_is_given_back_when_the_puller_closes(connection):
    await durable(connection, ack_wait=30)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(1, 5))
    await reaches(connection, "num_waiting", 1)
    fetching.cancel()
    await dispatch(connection, 1)
    await reaches(connection, "num_ack_pending", 1)
    await puller.close()
    other = await connection.pull(TASKS, "w-k")
    assert [delivery.delivered for delivery in await other.fetch(1, 3)] == [2]
    await other.close()


async def test_a_puller_that_closes_while_a_delivery_is_on_its_way_gives_it_back(server, settings, connection):
    await durable(connection, ack_wait=30)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(1, 5))
    await reaches(connection, "num_waiting", 1)
    fetching.cancel()

    async def elsewhere():
        other = await connect(server.target, settings)
        await dispatch(other, 1)
        await reaches(other, "num_ack_pending", 1)
        await other.close()

    # Our loop does not turn meanwhile, so the delivery waits in the socket, unread.
    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()
    await puller.close()
    other = await connection.pull(TASKS, "w-k")
    assert [delivery.data for delivery in await other.fetch(1, 3)] == [b"1"]
    await other.close()


async def test_x1_a_fetch_that_waits_survives_a_restart_of_the_server(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    await durable(connection)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(1, 20))
    await asyncio.sleep(0.05)
    own_server.kill()
    own_server.start()
    await connection.publish_decided(connection.names.task("k", "r", "s", 1), b"1", msg_id="1")
    async with asyncio.timeout(10):
        (delivery,) = await fetching
    assert delivery.data == b"1"
    await delivery.ack()
    await puller.close()
    await connection.close()


async def test_f7_a_deleted_consumer_is_told(connection):
    await durable(connection)
    puller = await connection.pull(TASKS, "w-k")
    fetching = asyncio.create_task(puller.fetch(1, 20))
    await reaches(connection, "num_waiting", 1)
    stream, name = connection.names.stream(TASKS), connection.names.stream("w-k")
    await connection.api.call(f"CONSUMER.DELETE.{stream}.{name}")
    async with asyncio.timeout(5):
        with pytest.raises(ConsumerGone):
            await fetching
    with pytest.raises(ConsumerGone):
        await puller.fetch(1, 5)
    await puller.close()
