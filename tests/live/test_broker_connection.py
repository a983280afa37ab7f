"""Publishing: each outcome is seen for real, and decided as early as it can be."""

import asyncio
import time

import pytest
from nats_servers import NatsServer

from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL, TASKS
from agentbook.broker.outcomes import (
    Denied,
    NoResponders,
    NotConnected,
    PublishError,
    StreamFull,
    SubjectFull,
    TooLarge,
    Undecided,
    WrongLastSequence,
)
from agentbook.broker.target import Target
from agentbook.errors import JournalUnavailable, ServerError
from agentbook.settings import Settings

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def tiny(connection, name, **config):
    subject = connection.names.subject(name)
    body = {"name": connection.names.stream(name), "subjects": [subject], "discard": "new", **config}
    await connection.api.call(f"STREAM.CREATE.{body['name']}", body)
    return subject


async def test_a_publish_expects_the_last_sequence_of_its_subject(connection):
    subject = connection.names.journal("r", "s")
    first = await connection.publish(subject, b"1", expect=0)
    with pytest.raises(WrongLastSequence):
        await connection.publish(subject, b"2", expect=0)
    assert (await connection.publish(subject, b"2", expect=first.seq)).seq == first.seq + 1


async def test_of_200_racing_publishers_with_one_expectation_one_wins(connection):
    subject = connection.names.journal("r", "s")

    async def race():
        try:
            return await connection.publish(subject, b"x", expect=0)
        except WrongLastSequence:
            return None

    won = [ack for ack in await asyncio.gather(*(race() for _ in range(200))) if ack]
    assert len(won) == 1


async def test_a_repeated_message_id_is_told_as_a_duplicate(connection):
    subject = connection.names.history("r")
    first = await connection.publish(subject, b"1", msg_id="r.1")
    again = await connection.publish(subject, b"1", msg_id="r.1")
    assert (again.seq, again.duplicate, first.duplicate) == (first.seq, True, False)


async def test_headers_and_ttl_travel_with_a_message(connection):
    subject = connection.names.journal("r", "s")
    ack = await connection.publish(subject, b"1", msg_id="c.0", ttl="1h", headers={"X-Why": "café"})
    stored = await connection.at(JOURNAL, ack.seq)
    assert stored.headers["X-Why"] == "café"
    assert stored.headers["Nats-TTL"] == "1h"
    assert stored.headers["Nats-Msg-Id"] == "c.0"


async def test_a_dispatch_published_twice_is_subject_full(connection):
    task = connection.names.task("billing", "r", "agent", 1)
    await connection.publish(task, b"1")
    with pytest.raises(SubjectFull):
        await connection.publish(task, b"1")


@pytest.mark.parametrize("limit", [{"max_msgs": 2}, {"max_bytes": 200}])
async def test_x2_a_full_stream_is_stream_full_until_there_is_room(connection, limit):
    subject = await tiny(connection, "tiny", **limit)
    outcomes = await asyncio.gather(*(connection.publish(subject, b"x" * 50) for _ in range(9)), return_exceptions=True)
    assert isinstance(outcomes[-1], StreamFull)
    await connection.api.call(f"STREAM.PURGE.{connection.names.stream('tiny')}")
    await connection.publish(subject, b"x")


async def test_what_is_too_large_is_told_with_both_sizes_and_keeps_the_connection(connection):
    subject = connection.names.journal("r", "s")
    limit = connection.max_payload
    with pytest.raises(TooLarge) as refused:
        await connection.publish(subject, b"x" * (limit + 1))
    assert (refused.value.size, refused.value.limit) == (limit + 1, limit)
    with pytest.raises(TooLarge):
        # The payload alone would fit. The server would count the headers and hang up.
        await connection.publish(subject, b"x" * limit, msg_id="c.0")
    assert await connection.publish(subject, b"x" * (limit - 200), msg_id="c.0")


async def test_what_the_stream_finds_too_large_is_too_large(connection):
    subject = await tiny(connection, "tiny", max_msg_size=10)
    with pytest.raises(TooLarge):
        await connection.publish(subject, b"x" * 11)


async def test_a_publish_with_a_bad_ttl_keeps_the_servers_reason(connection):
    with pytest.raises(PublishError, match="TTL"):
        await connection.publish(connection.names.journal("r", "s"), b"x", ttl="soon")


async def test_a_publish_that_no_stream_takes_is_undecided_at_once(connection):
    began = time.monotonic()
    with pytest.raises(NoResponders):
        await connection.publish("nobody.listens", b"x")
    assert time.monotonic() - began < 1


async def test_publish_decided_gives_up_at_its_deadline_and_says_why(connection):
    began = time.monotonic()
    with pytest.raises(Undecided, match="nobody answers"):
        await connection.publish_decided("nobody.listens", b"x", deadline=0.4)
    assert 0.3 < time.monotonic() - began < 2


async def test_denied_is_told_at_once_and_to_its_own_publisher_only(tmp_path):
    users = """authorization { users: [
      { user: all, password: p },
      { user: few, password: p, permissions: { publish: ["$JS.API.>", "journal.r.*"], subscribe: "_INBOX.>" } },
      { user: deaf, password: p, permissions: { publish: ">", subscribe: "x" } } ] }"""
    server = NatsServer(tmp_path, users).start()
    try:
        settings = Settings(append_deadline=5)

        def as_user(name):
            return Target(server.target.url, user=name, password="p")

        await (await connect(as_user("all"), settings, provision=True)).close()
        connection = await connect(as_user("few"), settings)
        began = time.monotonic()
        outcomes = await asyncio.gather(
            connection.publish("journal.r.s", b"x"),
            connection.publish("journal.other.s", b"x"),
            connection.publish_decided("history.r", b"x"),
            return_exceptions=True,
        )
        assert [type(outcome).__name__ for outcome in outcomes] == ["Ack", "Denied", "Denied"]
        assert isinstance(outcomes[1], Denied)
        assert "journal.other.s" in str(outcomes[1])
        assert time.monotonic() - began < 2
        await connection.close()
        with pytest.raises(ServerError, match=r"may not subscribe.*grant it"):
            await connect(as_user("deaf"), settings)
    finally:
        server.kill()


async def test_requests_tell_nobody_from_silence(connection):
    assert await connection.request("nobody.listens", b"?", 1) is None

    async def mute(message):
        pass

    async def answer(message):
        await connection.respond(message, b"you said " + message.data)

    silent = await connection.subscribe("silent", mute)
    with pytest.raises(TimeoutError):
        await connection.request("silent", b"?", 0.1)
    answering = await connection.subscribe("answering", answer)
    assert await connection.request("answering", b"?", 1) == b"you said ?"
    await silent.close()
    await answering.close()
    await answering.close()
    assert await connection.request("answering", b"?", 1) is None


async def test_a_handler_that_raises_is_called_again_and_nothing_is_printed(connection, capfd):
    seen = asyncio.Queue()

    async def handler(message):
        await seen.put(message.data)
        raise ValueError("a bug of the handler")

    await connection.subscribe("s", handler)
    await connection.send("s", b"1")
    await connection.send("s", b"2")
    assert [await seen.get(), await seen.get()] == [b"1", b"2"]
    assert capfd.readouterr() == ("", "")


async def test_x1_what_is_in_flight_when_the_server_dies_is_undecided_at_once_and_decided_later(own_server, capfd):
    heard = []
    gone, back = asyncio.Event(), asyncio.Event()

    def on_status(status):
        heard.append(status)
        if status in ("disconnected", "reconnected"):
            (gone if status == "disconnected" else back).set()

    connection = await connect(own_server.target, own_server.settings, on_status=on_status, provision=True)
    subject = connection.names.journal("r", "s")
    first = await connection.publish(subject, b"1", expect=0)

    async def mute(message):
        pass

    await connection.subscribe("mute", mute)
    waiting = asyncio.create_task(connection.request("mute", b"?", 30))
    await asyncio.sleep(0)
    own_server.kill()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await waiting
    async with asyncio.timeout(5):
        await gone.wait()
    with pytest.raises(NotConnected):
        await connection.publish(subject, b"2", expect=first.seq)
    with pytest.raises(TimeoutError):
        await connection.request("mute", b"?", 1)
    await connection.send("mute", b"nobody hears it")
    decided = asyncio.create_task(connection.publish_decided(subject, b"2", expect=first.seq, msg_id="c.1"))
    tail = asyncio.create_task(connection.last(JOURNAL, subject))
    own_server.start()
    assert (await decided).seq == first.seq + 1
    assert (await tail).seq >= first.seq
    async with asyncio.timeout(5):
        await back.wait()
    # The one that was not sent was not kept and sent afterwards.
    assert await connection.count(JOURNAL, subject) == 2
    await connection.close()
    assert heard == ["connected", "disconnected", "reconnected", "disconnected", "closed"]
    assert capfd.readouterr() == ("", "")


async def test_a_lost_ack_shows_as_wrong_last_sequence_with_the_own_message_as_tail(connection):
    subject = connection.names.journal("r", "s")
    await connection.publish(subject, b"1", expect=0, msg_id="c.0")
    # The same message again, as after a lost ack.
    with pytest.raises(WrongLastSequence):
        await connection.publish_decided(subject, b"1", expect=0, msg_id="c.0")
    assert (await connection.last(JOURNAL, subject)).headers["Nats-Msg-Id"] == "c.0"


async def test_an_unanswered_read_is_journal_unavailable_at_the_deadline(own_server):
    settings = Settings(namespace="t", append_deadline=0.3)
    connection = await connect(own_server.target, settings, provision=True)
    own_server.kill()
    with pytest.raises(JournalUnavailable):
        await connection.last(JOURNAL, connection.names.journal("r", "s"))
    with pytest.raises(JournalUnavailable):
        _ = [stored async for stored in connection.read(JOURNAL, connection.names.journal("r", "s"))]
    own_server.start()
    await connection.close()


async def test_close_ends_what_is_in_flight_and_leaves_no_task(own_server):
    before = asyncio.all_tasks()
    connection = await connect(own_server.target, own_server.settings, provision=True)
    await connection.ensure_consumer(TASKS, "w", filters=[connection.names.subject("task", ">")], ack_wait=1)
    puller = await connection.pull(TASKS, "w")

    async def following():
        return [stored async for stored in connection.follow(JOURNAL, connection.names.journal("r", "s"))]

    work = [
        asyncio.create_task(puller.fetch(1, 60)),
        asyncio.create_task(following()),
        asyncio.create_task(connection.publish_decided("nobody.listens", b"x")),
    ]
    await connection.request("nobody.listens", b"", 1)
    began = time.monotonic()
    await connection.close()
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(*work, return_exceptions=True)
    assert time.monotonic() - began < 3
    assert all(isinstance(outcome, Undecided) for outcome in outcomes), outcomes
    assert asyncio.all_tasks() == before


async def test_x1_after_a_long_absence_a_publish_is_decided_as_soon_as_the_server_is_back(own_server):
    back = asyncio.Event()
    connection = await connect(
        own_server.target,
        own_server.settings,
        on_status=lambda status: back.set() if status == "reconnected" else None,
        provision=True,
    )
    own_server.kill()
    publishing = asyncio.create_task(connection.publish_decided(connection.names.journal("r", "s"), b"x"))
    # Long enough for a back-off to have grown to its second.
    await asyncio.sleep(2.5)
    own_server.start()
    await back.wait()
    async with asyncio.timeout(0.25):
        await publishing
    await connection.close()


def test_a_loop_that_ends_right_after_close_without_a_server_has_nothing_to_warn_of(own_server, capfd):
    async def session():
        gone = asyncio.Event()
        connection = await connect(
            own_server.target,
            own_server.settings,
            on_status=lambda status: gone.set() if status == "disconnected" else None,
            provision=True,
        )
        await connection.subscribe("s", lambda message: asyncio.sleep(0))
        own_server.kill()
        await gone.wait()
        await connection.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(session())
    assert asyncio.all_tasks(loop) == set()
    loop.close()
    assert capfd.readouterr() == ("", "")


async def test_close_waits_for_a_handler_that_ends_what_it_began(connection, server, settings):
    mine = await connect(server.target, settings)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(message):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    await mine.subscribe("work", handler)
    await mine.send("work", b"")
    await begun.wait()
    await mine.close()
    assert ended.is_set()


def test_a_loop_that_ends_right_after_close_has_nothing_to_warn_of(own_server, capfd):
    async def session():
        connection = await connect(own_server.target, own_server.settings, provision=True)
        await connection.subscribe("s", lambda message: asyncio.sleep(0))
        await connection.publish(connection.names.history("r"), b"x")
        await connection.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(session())
    assert asyncio.all_tasks(loop) == set()
    loop.close()
    assert capfd.readouterr() == ("", "")
