"""JOURNAL.md, Append: one writer wins, a lost ack is recognised, a fenced writer is told by whom."""

import asyncio
import os
from dataclasses import replace

import pytest
from live.journal_steps import Step, outcome, through_proxy
from nats_servers import NatsServer

from agentbook.broker.connection import connect
from agentbook.broker.outcomes import StreamFull
from agentbook.errors import (
    ConfigError,
    Fenced,
    JournalFull,
    JournalTruncated,
    JournalUnavailable,
    PayloadTooLarge,
    RunCancelled,
)
from agentbook.journal.append import Lost
from agentbook.journal.calls import ToolCall
from agentbook.journal.records import Claim, Commit, StepValue
from agentbook.settings import Settings

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
def step(connection):
    return Step(connection)


def claim(worker):
    return Claim(worker=worker, dispatch=1, delivery=1, code="c", prev=None, head=None)


def value(number):
    return StepValue(name="x", value=number)


@pytest.mark.parametrize("connections", [1, 4])
async def test_of_many_racing_writers_one_wins(step, server, settings, connections):
    others = [await connect(server.target, settings) for _ in range(connections - 1)]
    steps = [step, *(step.over(other) for other in others)]
    writers = [steps[number % connections].writer(f"{number:032x}") for number in range(80)]
    won = await asyncio.gather(*(outcome(writer.append_claim(claim("w"))) for writer in writers))
    assert sum(isinstance(result, Claim) for result in won) == 1
    assert sum(isinstance(result, Lost) for result in won) == 79
    assert len(await step.audit()) == 1
    for other in others:
        await other.close()


async def test_f1_of_many_holders_only_the_newest_writes(step):
    journals = await asyncio.gather(*(step.open(worker=f"kernel {n}") for n in range(4)))
    newest = (await step.records())[-1]
    results = await asyncio.gather(*(outcome(journal.writer.append(value(1))) for journal in journals))
    for journal, result in zip(journals, results, strict=True):
        if journal.writer.claim == newest.claim:
            assert isinstance(result, StepValue)
        else:
            assert isinstance(result, Fenced)
    assert await step.kinds() == ["claim"] * 4 + ["step.value"]
    await step.audit()


async def test_j10_a_fenced_writer_is_told_who_when_and_at_which_record(step):
    old = await step.open(worker="kernel 1")
    first = await step.open(worker="kernel 2")
    await first.writer.append(value(1))
    await step.open(worker="kernel 3")
    with pytest.raises(Fenced) as fence:
        await old.writer.append(value(2))
    taken_over = (await step.records())[1]
    assert (fence.value.by, fence.value.at, fence.value.when) == ("kernel 2", taken_over.seq, taken_over.at)
    assert fence.value.run == step.run
    assert "kernel 2" in str(fence.value)
    assert str(taken_over.seq) in str(fence.value)


async def test_records_of_a_claim_are_numbered_from_0_and_dedupe_by_claim_and_number(step):
    journal = await step.open()
    for number in range(3):
        await journal.writer.append(value(number))
    records = await step.audit()
    assert [record.n for record in records] == [0, 1, 2, 3]
    stored = await step.connection.at("AGENT_JOURNAL", records[2].seq)
    assert stored.headers["Nats-Msg-Id"] == f"{journal.writer.claim}.2"
    assert stored.headers["Nats-Expected-Last-Subject-Sequence"] == str(records[1].seq)


async def a_turn(journal):
    """Six appends: claim (by open), model, intent, partial, result, commit."""

    async def charge(call):
        await call.emit("charging")
        return "charged"

    async def answer():
        return "charge it"

    assert await journal.model(answer) == "charge it"
    charged = await journal.tool(ToolCall("charge", {"cents": 5}), "unsafe", charge)
    assert charged.value() == "charged"
    return await journal.commit("complete", state={"messages": ["charge it"]}, output="charged")


TURN = ["claim", "model", "tool.intent", "tool.partial", "tool.result", "commit"]


@pytest.mark.parametrize("nth", range(1, 7), ids=TURN)
async def test_j11_a_lost_ack_of_each_append_of_a_turn_is_adopted_and_nothing_is_doubled(step, server, settings, nth):
    async with through_proxy(server, settings) as (proxy, lossy):
        proxy.lose_next_ack(nth, cut=True)
        committed = await a_turn(await step.over(lossy).open())
        assert proxy.lost == 1
    records = await step.audit()
    assert [record.kind for record in records] == TURN
    assert [record.n for record in records] == list(range(6))
    assert records[-1].seq == committed.seq


async def test_j11_an_ack_lost_in_silence_is_adopted_too(step, server, settings):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(cut=False)
        stored = await journal.writer.append(value(1))
        assert proxy.lost == 1
        assert (await journal.writer.append(value(2))).n == 2
    records = await step.audit()
    assert [record.seq for record in records][1] == stored.seq
    assert [getattr(record, "value", None) for record in records] == [None, 1, 2]


async def test_a_lost_ack_and_a_takeover_before_the_repeat_fence(step, server, settings):
    """The record is stored, then another claim: the writer must not adopt what it cannot follow."""
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(cut=False)
        appending = asyncio.create_task(outcome(journal.writer.append(value(1))))
        await proxy.stored.wait()
        await step.open(worker="kernel 2")
        proxy.disconnect()
        fence = await appending
    assert isinstance(fence, Fenced)
    assert fence.by == "kernel 2"
    assert await step.kinds() == ["claim", "step.value", "claim"]
    await step.audit()


@pytest.mark.parametrize("reached", [True, False], ids=["stored", "not sent"])
async def test_a_cancelled_append_is_decided_before_the_next_one(step, server, settings, reached):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        if reached:
            proxy.lose_next_ack(cut=False)
        else:
            proxy.deaf = True
        appending = asyncio.create_task(journal.writer.append(value(1)))
        await (proxy.stored if reached else proxy.swallowed).wait()
        appending.cancel()
        assert isinstance(await outcome(asyncio.gather(appending, return_exceptions=True)), list)
        assert appending.cancelled()
        proxy.deaf = False
        proxy.disconnect()
        await journal.writer.append(value(2))
    records = await step.audit()
    assert [getattr(record, "value", None) for record in records] == [None, 1, 2]


async def test_a_cancelled_append_is_decided_before_a_model_call_is_spent(step, server, settings):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(cut=False)
        appending = asyncio.create_task(journal.writer.append(value(1)))
        await proxy.stored.wait()
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        await journal.writer.confirm_tail()
        assert journal.writer.tail == await step.tail()


async def test_an_empty_subject_under_a_holder_is_truncated(step):
    journal = await step.open()
    await step.connection.purge("AGENT_JOURNAL", step.subject)
    with pytest.raises(JournalTruncated, match=step.run):
        await journal.writer.append(value(1))
    with pytest.raises(JournalTruncated):
        await journal.writer.confirm_tail()
    assert await step.records() == []


async def test_no_decision_until_the_deadline_is_unavailable_and_the_record_is_decided_later(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    step = Step(connection)
    writer = step.writer("a" * 32, deadline=0.5)
    await writer.append_claim(claim("w"))
    own_server.kill()
    with pytest.raises(JournalUnavailable, match=r"0\.5 s"):
        await writer.append(value(1))
    own_server.start()
    async with asyncio.timeout(10):
        while isinstance(await outcome(writer.append(value(2))), JournalUnavailable):
            pass
    assert [getattr(record, "value", None) for record in await step.audit()] == [None, 1, 2]
    await connection.close()


async def test_x1_a_killed_server_in_the_middle_of_appends_loses_and_doubles_nothing(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    step = Step(connection)
    journal = await step.open()
    halfway = asyncio.Event()

    async def many():
        for number in range(300):
            await journal.writer.append(value(number))
            if number == 150:
                halfway.set()

    appending = asyncio.create_task(many())
    await halfway.wait()
    own_server.kill()
    assert not appending.done()
    own_server.start()
    async with asyncio.timeout(30):
        await appending
    records = await step.audit()
    assert [record.value for record in records[1:]] == list(range(300))
    await connection.close()


async def test_a_full_stream_names_what_did_not_fit_and_the_run_goes_on_once_there_is_room(step):
    connection, other = step.connection, Step(step.connection)
    filler, journal = await other.open(), await step.open()
    await filler.writer.append(value("x" * 1000))
    config = (await connection.info("AGENT_JOURNAL"))["config"]
    name = connection.names.stream("AGENT_JOURNAL")
    used = (await connection.info("AGENT_JOURNAL"))["state"]["bytes"]
    await connection.api.call(f"STREAM.UPDATE.{name}", config | {"max_bytes": used + 600})
    with pytest.raises(JournalFull) as full:
        await journal.writer.append(value("y" * 1000), what="the result of charge")
    assert "the result of charge" in str(full.value)
    assert step.run in str(full.value)
    await connection.purge("AGENT_JOURNAL", other.subject)
    await journal.writer.append(value(1))
    assert [record.n for record in await step.audit()] == [0, 1]


async def fill(connection, subject):
    while True:
        await connection.publish(subject, os.urandom(500_000))


async def test_a_stored_record_is_adopted_although_there_is_no_room_for_its_repeat(tmp_path):
    """Its ack is lost, then the account is over its limit: the order of the server's checks decides."""
    server = NatsServer(tmp_path / "nats", jetstream="max_file_store: 4MB").start()
    settings = Settings(namespace="t")
    owner = await connect(server.target, settings, provision=True)
    filler = owner.names.history("filler")
    try:
        async with through_proxy(server, settings) as (proxy, lossy):
            step = Step(owner)
            journal = await step.over(lossy).open()
            proxy.lose_next_ack(cut=False)
            appending = asyncio.create_task(journal.writer.append(value(1)))
            await proxy.stored.wait()
            with pytest.raises(StreamFull):
                await fill(owner, filler)
            proxy.disconnect()
            await appending
            await owner.purge("AGENT_HISTORY", filler)
            await journal.writer.append(value(2))
        assert [getattr(record, "value", None) for record in await step.audit()] == [None, 1, 2]
    finally:
        await owner.close()
        server.kill()


async def test_a_record_that_the_server_does_not_accept_names_both_sizes_and_leaves_the_journal_usable(step):
    journal = await step.open()
    size = step.connection.max_payload
    with pytest.raises(PayloadTooLarge) as large:
        # A name is no value that could lie in the object store.
        await journal.writer.append(StepValue(name="x" * size, value=1), what="the result of charge")
    assert (large.value.what, large.value.limit) == ("the result of charge", size)
    assert large.value.size > size
    await journal.writer.append(value(1))
    assert [record.n for record in await step.audit()] == [0, 1]


async def test_a_fence_sticks_to_the_writer(step):
    old = await step.open()
    await step.open(worker="kernel 2")
    raised = [await outcome(old.writer.append(value(n))) for n in range(3)]
    raised.append(await outcome(old.writer.confirm_tail()))
    raised.append(await outcome(old.writer.append(Commit(action="complete", head=1))))
    assert all(signal is raised[0] for signal in raised)
    assert isinstance(raised[0], Fenced)


async def test_a_writer_that_was_settled_from_outside_writes_nothing_though_its_claim_is_the_newest(step):
    writer = (await step.open()).writer
    cancelled = writer.settle(RunCancelled("cancelled"))
    assert writer.settle(Fenced(step.run, "kernel 2", 1, "now")) is cancelled
    assert await outcome(writer.append(value(1))) is cancelled
    assert await outcome(writer.confirm_tail()) is cancelled
    assert await step.kinds() == ["claim"]


async def test_a_denied_subject_is_a_configuration_error_that_names_it(tmp_path):
    users = """authorization { users: [
        { user: all, password: p },
        { user: some, password: p, permissions: { publish: { deny: ["*.journal.>"] } } },
    ] }"""
    server = NatsServer(tmp_path / "nats", users).start()
    try:
        settings = Settings(namespace="t")
        owner = await connect(replace(server.target, user="all", password="p"), settings, provision=True)
        denied = await connect(replace(server.target, user="some", password="p"), settings)
        journal = await Step(owner).open()
        with pytest.raises(ConfigError, match=r"t\.journal\."):
            await Step(denied).open()
        assert isinstance(await journal.writer.append(value(1)), StepValue)
        await owner.close()
        await denied.close()
    finally:
        server.kill()
