"""JOURNAL.md, Memo and State: what a long run stores and reads, and memos that must not be believed."""

import asyncio
import dataclasses

import pytest
from live.journal_steps import Step
from pydantic_core import to_json

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL, MEMO
from agentbook.journal import memo
from agentbook.journal.load import FoldCache, load
from agentbook.journal.records import Commit, StepValue, decode

pytestmark = pytest.mark.live

TURNS = 200


@pytest.fixture
async def step(connection):
    step = Step(connection)
    yield step
    await step.audit()


async def read_by(target, settings, run):
    """A fold as a fresh process loads it, and the bytes that came in over its connection."""
    fresh = await connect(target, settings)
    try:
        before = fresh._wire._client.stats["in_bytes"]
        fold = await load(fresh, run, "agent", None, FoldCache())
        return fold, fresh._wire._client.stats["in_bytes"] - before
    finally:
        await fresh.close()


@dataclasses.dataclass
class Figures:
    """What a run of many turns stored and read.

    Attributes:
        turns: bytes of each turn's records, without full states.
        full: bytes of the full states.
        state: bytes of the state at the end.
        read: bytes that an open of the last turn reads.
    """

    turns: list[int]
    full: int
    state: int
    read: int


@pytest.fixture
def figures(book):
    @tool(replay="safe")
    def look_up(number: int) -> str:
        return f"{number}: " + "what was found " * 100

    replies = [ToolCall("look_up", {"number": number}) for number in range(TURNS - 1)]
    agent = Agent("clerk", model=ScriptedModel([*replies, "done"]), tools=[look_up], max_iterations=TURNS)
    assert book.start(agent, "go", run_id="r").wait(50) == "done"

    async def measure():
        turns, full = [0] * TURNS, 0
        subject = book.connection.names.journal("r", "agent")
        async for stored in book.connection.read(JOURNAL, subject, upto=None):
            record = decode(stored.data, stored.seq)
            size = len(stored.data)
            if isinstance(record, Commit) and record.snapshot is None:
                full += len(to_json(record.state))
                size -= len(to_json(record.state))
            turns[record.iteration] += size
        fold, read = await read_by(book.target, book.settings, "r")
        return Figures(turns, full, len(to_json(fold.state)), read)

    return book.service.call(measure)


def test_s7_a_run_of_200_turns_stores_as_much_in_its_last_turns_as_in_its_first_and_reads_twice_its_state(
    figures, capsys
):
    first, last = figures.turns[1:21], figures.turns[-21:-1]
    ratio = sum(last) / sum(first)
    everything = sum(figures.turns)
    with capsys.disabled():
        print(
            f"\n{TURNS} turns: {sum(first) / 20:,.0f} bytes a turn at the start, {sum(last) / 20:,.0f} at the end "
            f"({ratio:.2f}×); full states {figures.full:,} of {everything + figures.full:,} bytes; "
            f"state {figures.state:,} bytes, an open of the last turn reads {figures.read:,} "
            f"({figures.read / figures.state:.2f}×)"
        )
    assert ratio < 1.5
    assert figures.full < everything * 1.5
    assert figures.read < 2.2 * figures.state


async def grown(step, turns=6):
    """A step of a few turns whose memo is due; the last one stays under way."""
    for turn in range(turns):
        journal = await step.open(iteration=turn, dispatch=turn + 1)
        await journal.tool(ToolCall("a", {"n": turn}), "unsafe", lambda call: asyncio.sleep(0, "y" * 2000))
        await journal.commit("continue", state={"messages": ["x" * 500] * (turn + 1)})
    journal.writer.fold.memo_size = 0
    await journal.writer.remember()
    journal = await step.open(iteration=turns, dispatch=turns + 1)
    await journal.tool(ToolCall("a", {"n": turns}), "unsafe", lambda call: asyncio.sleep(0, "y"))
    return journal


async def stored_memo(step):
    return await step.connection.last(MEMO, step.connection.names.memo(step.run, "agent"))


async def from_the_head(step):
    """The fold of every record, whatever memo there is."""
    name = step.connection.names.memo(step.run, "agent")
    await step.connection.purge(MEMO, name)
    return await load(step.connection, step.run, "agent", None, FoldCache())


@pytest.mark.anyio
async def test_a_memo_spares_reading_from_the_head(step, server, settings):
    await grown(step)
    found = memo.build(memo.parse((await stored_memo(step)).data))
    fold, short = await read_by(server.target, settings, step.run)
    whole, long = await from_the_head(step), (await read_by(server.target, settings, step.run))[1]
    assert fold == whole
    assert found.upto < fold.upto
    assert short < long / 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    "change",
    [
        lambda fields: {**fields, "claim": "f" * 32},
        lambda fields: {**fields, "n": fields["n"] + 1},
        lambda fields: {**fields, "upto": fields["upto"] + 10_000},
        lambda fields: {**fields, "v": 2},
        lambda fields: {**fields, "fold": {}},
        lambda fields: {**fields, "fold": {"$blob": {"sha256": "0" * 64, "size": 3}}},
        lambda fields: "junk",
    ],
    ids=["another claim", "another number", "ahead", "version", "empty", "its blob is gone", "junk"],
)
async def test_a_memo_of_another_journal_or_form_is_not_believed(step, change):
    journal = await grown(step)
    fields = memo.parse((await stored_memo(step)).data)
    fields["fold"]["state"] = {"messages": ["a lie"]}
    name = step.connection.names.memo(step.run, "agent")
    await step.connection.publish(name, to_json(change(fields)))
    fold = await load(step.connection, step.run, "agent", None, FoldCache())
    assert fold == journal.writer.fold


@pytest.mark.anyio
async def test_a_lost_or_late_memo_costs_nothing_but_time(step):
    journal = await grown(step)
    old = (await stored_memo(step)).data
    journal.writer.fold.memo_size = 0
    for number in range(20):
        await journal.writer.append(StepValue(name="x", value="y" * 2000 + str(number)))
    await journal.writer.remember()
    assert (await stored_memo(step)).data != old
    await step.connection.publish(step.connection.names.memo(step.run, "agent"), old)
    fold = await load(step.connection, step.run, "agent", None, FoldCache())
    assert fold == await from_the_head(step) == journal.writer.fold


@pytest.mark.anyio
async def test_a_memo_larger_than_a_message_lies_in_the_object_store(connection):
    step = Step(connection)
    messages = []
    for turn in range(12):
        journal = await step.open(iteration=turn, dispatch=turn + 1)
        await journal.tool(ToolCall("a"), "safe", lambda call: asyncio.sleep(0, "y" * 100_000))
        messages = [*messages, f"{turn}" * 100_000]
        await journal.commit("continue", state={"messages": messages})
        await journal.writer.remember()
    stored = await stored_memo(step)
    assert len(stored.data) < 1000
    upto = memo.parse(stored.data)["upto"]
    # Without the records before it, only the memo can tell the state.
    await connection.api.call(f"STREAM.PURGE.{connection.names.stream(JOURNAL)}", {"filter": step.subject, "seq": upto})
    fold = await load(connection, step.run, "agent", None, FoldCache())
    assert fold.state == {"messages": messages}


def test_f11_check_finds_a_memo_that_lies(book):
    run = book.start(Agent("clerk", model=ScriptedModel(["done"])), "go", run_id="r")
    assert run.wait(20) == "done"
    name = book.connection.names.memo("r", "agent")

    async def lie():
        stored = await book.connection.last(MEMO, name)
        fields = memo.parse(stored.data)
        fields["fold"]["state"] = {"messages": ["a lie"]}
        await book.connection.publish(name, to_json(fields))
        return stored.data

    truth = book.service.call(lie)
    (violation,) = run.check().violations
    assert violation.rule == "memo and rest fold to the whole"
    assert "state" in violation.text
    book.service.call(book.connection.publish, name, truth)
    assert run.check()
