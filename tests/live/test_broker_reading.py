"""Pages end by their marker, a short read is an error, a follower misses and repeats nothing."""

import asyncio
from contextlib import aclosing

import pytest

from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL, RUNS
from agentbook.broker.outcomes import ApiError, ShortRead

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def fill(connection, subject, count, size=1, start=0):
    acks = await asyncio.gather(
        *(connection.publish(subject, f"{number}".encode().ljust(size)) for number in range(start, start + count))
    )
    return [ack.seq for ack in acks]


async def consumers(connection, stream):
    return (await connection.info(stream))["state"]["consumer_count"]


async def test_a_read_of_5000_messages_between_others_is_whole_and_in_order(connection):
    mine, other = connection.names.journal("r", "mine"), connection.names.journal("r", "other")
    written = []
    for number in range(0, 5000, 500):
        written += await fill(connection, mine, 500, start=number)
        await fill(connection, other, 37)
    purged = written[:1000]
    await connection.api.call(
        f"STREAM.PURGE.{connection.names.stream(JOURNAL)}", {"filter": mine, "seq": purged[-1] + 1}
    )
    await fill(connection, other, 3)
    read = [stored async for stored in connection.read(JOURNAL, mine, upto=written[-1])]
    assert [stored.seq for stored in read] == written[1000:]
    assert [int(stored.data) for stored in read] == list(range(1000, 5000))
    assert {stored.subject for stored in read} == {mine}
    assert await consumers(connection, JOURNAL) == 0


async def test_a_read_starts_and_ends_where_it_is_told(connection):
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 10)
    read = [stored.seq async for stored in connection.read(JOURNAL, subject, start=written[3], upto=written[6])]
    assert read == written[3:7]
    assert [stored async for stored in connection.read(JOURNAL, subject, start=written[-1] + 1)] == []


async def test_j5_a_read_of_50_megabytes_is_whole(connection):
    subject = connection.names.journal("r", "s")
    written = []
    for _ in range(4):
        written += await fill(connection, subject, 50, size=256 * 1024)
    read = [(stored.seq, len(stored.data)) async for stored in connection.read(JOURNAL, subject, upto=written[-1])]
    assert read == [(seq, 256 * 1024) for seq in written]


async def test_j5_a_short_read_is_an_error_that_says_where_it_ended(connection):
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 3)
    read = []

    async def whole():
        async for stored in connection.read(JOURNAL, subject, upto=written[-1] + 1):
            read.append(stored.seq)

    with pytest.raises(ShortRead) as short:
        await whole()
    assert read == written
    assert (short.value.reached, short.value.upto) == (written[-1], written[-1] + 1)
    with pytest.raises(ShortRead) as short:
        _ = [stored async for stored in connection.read(JOURNAL, connection.names.journal("r", "none"), upto=1)]
    assert short.value.reached == 0


async def test_j7_a_read_that_comes_too_early_is_repeated_before_it_counts_as_short(connection):
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 2)
    late = asyncio.get_running_loop().call_later(
        0.05, lambda: writing.append(asyncio.ensure_future(fill(connection, subject, 1)))
    )
    writing = []
    read = [stored.seq async for stored in connection.read(JOURNAL, subject, upto=written[-1] + 1)]
    assert read == [*written, written[-1] + 1]
    late.cancel()
    await asyncio.gather(*writing)


async def test_a_read_without_an_end_lists_the_newest_of_each_subject(connection):
    for status in ("running", "completed"):
        for run in ("a", "b"):
            await connection.publish(connection.names.run(run), status.encode())
    read = [stored async for stored in connection.read(RUNS, connection.names.run("*"))]
    assert [(stored.subject, stored.data) for stored in read] == [
        (connection.names.run("a"), b"completed"),
        (connection.names.run("b"), b"completed"),
    ]


async def test_the_leader_is_asked_for_the_last_message_and_for_one_by_sequence(connection):
    subject = connection.names.journal("r", "s")
    assert await connection.last(JOURNAL, subject) is None
    first = await connection.publish(subject, b"1", msg_id="c.0")
    second = await connection.publish(subject, bytes(range(256)))
    tail = await connection.last(JOURNAL, subject)
    assert (tail.seq, tail.subject, tail.data) == (second.seq, subject, bytes(range(256)))
    assert (await connection.at(JOURNAL, first.seq)).headers == {"Nats-Msg-Id": "c.0"}
    assert await connection.at(JOURNAL, second.seq + 1) is None


async def test_purge_keeps_the_newest_and_count_counts_wildcards(connection):
    subject = connection.names.journal("r", "s")
    await fill(connection, subject, 5)
    await fill(connection, connection.names.journal("r", "t"), 2)
    assert await connection.count(JOURNAL, connection.names.journal("r", "*")) == 7
    assert await connection.purge(JOURNAL, subject, keep=1) == 4
    assert await connection.count(JOURNAL, subject) == 1
    assert await connection.purge(JOURNAL, subject) == 1
    assert await connection.count(JOURNAL, subject) == 0


async def test_a_journal_record_cannot_be_deleted_by_itself(connection):
    ack = await connection.publish(connection.names.journal("r", "s"), b"1")
    with pytest.raises(ApiError):
        await connection.api.call(f"STREAM.MSG.DELETE.{connection.names.stream(JOURNAL)}", {"seq": ack.seq})


async def test_follow_catches_up_goes_on_and_leaves_no_consumer(connection):
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 700)
    await fill(connection, connection.names.journal("r", "other"), 5)
    seen = []
    async with aclosing(connection.follow(JOURNAL, subject, start=written[100])) as following:
        async for stored in following:
            seen.append(stored.seq)
            if len(seen) == 600:
                assert await consumers(connection, JOURNAL) == 1
                written += await fill(connection, subject, 5)
            if len(seen) == 605:
                break
    assert seen == written[100:]
    assert await consumers(connection, JOURNAL) == 0


async def test_follow_of_a_large_journal_keeps_its_order_under_flow_control(connection):
    subject = connection.names.journal("r", "s")
    written = []
    for _ in range(5):
        written += await fill(connection, subject, 100, size=100_000)
    seen = []
    async with aclosing(connection.follow(JOURNAL, subject)) as following:
        async for stored in following:
            seen.append(stored.seq)
            if len(seen) == len(written):
                break
    assert seen == written


async def test_x1_follow_misses_and_repeats_nothing_over_a_restart_of_the_server(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 3)
    seen = []
    async with asyncio.timeout(20), aclosing(connection.follow(JOURNAL, subject)) as following:
        async for stored in following:
            seen.append(stored.seq)
            if len(seen) in (3, 5):
                own_server.kill()
                own_server.start()
                for number in range(2):
                    ack = await connection.publish_decided(subject, b"x", msg_id=f"{len(seen)}.{number}")
                    written.append(ack.seq)
            if len(seen) == 7:
                break
    assert seen == written
    assert await consumers(connection, JOURNAL) == 0
    await connection.close()


async def test_follow_goes_on_after_its_consumer_was_deleted(connection, monkeypatch):
    monkeypatch.setattr("agentbook.broker.follow._HEARTBEAT", 0.2)
    subject = connection.names.journal("r", "s")
    await fill(connection, subject, 1)
    stream = connection.names.stream(JOURNAL)
    seen = []
    async with asyncio.timeout(10), aclosing(connection.follow(JOURNAL, subject)) as following:
        async for stored in following:
            seen.append(stored.seq)
            if len(seen) == 1:
                for name in (await connection.api.call(f"CONSUMER.NAMES.{stream}"))["consumers"]:
                    await connection.api.call(f"CONSUMER.DELETE.{stream}.{name}")
                await fill(connection, subject, 2)
            if len(seen) == 3:
                break
    assert seen == sorted(set(seen))


async def test_follow_does_not_trust_a_consumer_whose_numbers_have_a_gap(connection):
    subject = connection.names.journal("r", "s")
    written = await fill(connection, subject, 2)
    stream = connection.names.stream(JOURNAL)
    seen = []
    async with asyncio.timeout(10), aclosing(connection.follow(JOURNAL, subject)) as following:
        async for stored in following:
            seen.append(stored.seq)
            if len(seen) == 2:
                (name,) = (await connection.api.call(f"CONSUMER.NAMES.{stream}"))["consumers"]
                config = (await connection.api.call(f"CONSUMER.INFO.{stream}.{name}"))["config"]
                # The next one is lost on its way through the client.
                subscriptions = connection._wire._client._subs
                number = next(n for n, one in subscriptions.items() if one.subject == config["deliver_subject"])
                deaf = subscriptions.pop(number)
                written += await fill(connection, subject, 1)
                await connection.subscribe("a.round.trip", print)
                subscriptions[number] = deaf
                written += await fill(connection, subject, 1)
            if len(seen) == 4:
                break
    assert seen == written


async def test_following_a_stream_that_is_not_there_is_an_error(connection):
    with pytest.raises(ApiError):
        _ = [stored async for stored in connection.follow("NOWHERE", "x")]
