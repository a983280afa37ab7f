"""JOURNAL.md, Where it lives: large values in the object store (S4)."""

import asyncio

import pytest
from live.journal_steps import Step, outcome
from pydantic_core import to_json

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.broker.names import JOURNAL, PAYLOADS
from agentbook.broker.streams import stream_name
from agentbook.errors import JournalTruncated, PayloadTooLarge, RunFailed
from agentbook.journal.audit import audit
from agentbook.journal.load import FoldCache, load
from agentbook.journal.spill import filled, references

pytestmark = pytest.mark.live

LARGE = "ü" + "x" * (3 * 1024 * 1024)


class Fetches:
    """A tool that returns what does not fit into a message."""

    def __init__(self, value=LARGE):
        self.value = value
        self.starts = 0

    async def run(self, call):
        self.starts += 1
        return self.value

    def agent(self, *more, model=None):
        @tool(replay="unsafe")
        async def fetch(*, call: ToolCall) -> str:
            return await self.run(call)

        return Agent("clerk", model=model or ScriptedModel([ToolCall("fetch"), *more]), tools=[fetch])


@pytest.fixture
def step(connection):
    return Step(connection)


async def stored_bytes(connection):
    """Bytes in the object store, and its stream's name."""
    name = stream_name(connection.names, PAYLOADS)
    return (await connection.api.call(f"STREAM.INFO.{name}"))["state"]["bytes"], name


async def limit_store(connection, limit):
    name = stream_name(connection.names, PAYLOADS)
    config = (await connection.api.call(f"STREAM.INFO.{name}"))["config"]
    await connection.api.call(f"STREAM.UPDATE.{name}", {**config, "max_bytes": limit})


def sizes(connection, run):
    async def read():
        subject = connection.names.journal(run, "agent")
        return [len(stored.data) async for stored in connection.read(JOURNAL, subject)]

    return read


def test_s4_a_value_of_3_mb_travels_on_a_server_that_takes_1_mb(book, new_book):
    fetches = Fetches()
    model = ScriptedModel([ToolCall("fetch"), lambda request: str(len(request.messages[-1].output))])
    run = book.start(fetches.agent(model=model), "go", run_id="r")
    assert run.wait(30) == str(len(LARGE))
    assert fetches.starts == 1
    assert max(book.service.call(sizes(book.connection, "r"))) < 256 * 1024
    again = new_book()
    assert again.start(fetches.agent(model=model), "go", run_id="r").wait(20) == str(len(LARGE))
    assert fetches.starts == 1
    assert run.check()


@pytest.mark.anyio
async def test_a_replayed_large_value_is_the_live_one_and_is_stored_once(step):
    fetches = Fetches({"a": LARGE, "b": [1, None]})
    journal = await step.open()
    live = (await journal.tool(ToolCall("fetch"), "unsafe", fetches.run)).value()
    used, _ = await stored_bytes(step.connection)
    replayed = (await (await step.open(delivery=2)).tool(ToolCall("fetch"), "unsafe", fetches.run)).value()
    assert live == replayed == fetches.value
    assert fetches.starts == 1
    other = await step.open(delivery=3)
    await other.tool(ToolCall("fetch"), "unsafe", fetches.run)
    await other.tool(ToolCall("again"), "unsafe", fetches.run)
    assert (await stored_bytes(step.connection))[0] < used * 1.1
    assert await audit(step.connection, step.run, "agent")


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["input", "partial", "response", "state", "output"])
async def test_every_field_that_can_be_large_comes_back(step, what):
    async def emits(call):
        await call.emit(LARGE)
        raise asyncio.CancelledError

    journal = await step.open()
    if what == "response":
        assert await journal.model(lambda: asyncio.sleep(0, LARGE)) == LARGE
        assert await (await step.open(delivery=2)).model(lambda: asyncio.sleep(0, "other")) == LARGE
    elif what == "partial":
        await outcome(journal.tool(ToolCall("a"), "unsafe", emits))
        result = await (await step.open(delivery=2)).tool(ToolCall("a"), "unsafe", emits)
        assert result.interrupted.partial == [LARGE]
    elif what == "input":
        call = ToolCall("a", {"text": LARGE})
        await journal.tool(call, "unsafe", lambda call: asyncio.sleep(0, len(call.input["text"])))
        assert (await (await step.open(delivery=2)).tool(call, "unsafe", emits)).value() == len(LARGE)
    else:
        more = {"output": LARGE} if what == "output" else {}
        await journal.commit("complete" if more else "continue", state={"messages": [LARGE]}, **more)
        fold = await load(step.connection, step.run, "agent", None, FoldCache())
        assert fold.state == {"messages": [LARGE]}
    for stored in [stored async for stored in step.connection.read(JOURNAL, step.subject)]:
        assert len(stored.data) < 256 * 1024
    assert await audit(step.connection, step.run, "agent")


def test_s4_with_the_object_store_full_the_call_ends_in_an_error_with_both_sizes_and_does_not_run_again(book):
    fetches = Fetches()
    book.service.call(limit_store, book.connection, 1_000_000)
    run = book.start(fetches.agent("sorry"), "go", run_id="r")
    assert run.wait(30) == "sorry"
    assert fetches.starts == 1
    (result,) = [record for record in run.journal() if record.kind == "tool.result"]
    assert result.error.type == "PayloadTooLarge"
    for said in ("fetch", "object store is full", "purge ended runs", f"{len(to_json(LARGE)):,} bytes", "262,144"):
        assert said in result.error.message


@pytest.mark.anyio
@pytest.mark.parametrize("attempt", [1, 2])
async def test_with_the_object_store_full_an_unknown_outcome_stays_unknown(step, attempt):
    async def emits(call):
        await call.emit("x" * 200_000)
        await call.emit("y" * 200_000)
        raise asyncio.CancelledError

    await outcome((await step.open()).tool(ToolCall("charge"), "unsafe", emits))
    await limit_store(step.connection, 1000)
    journal = await step.open(delivery=2, attempt=attempt, dispatch=attempt)
    result = await journal.tool(ToolCall("charge"), "unsafe", emits)
    assert result.error is None
    assert "its partial output is lost" in result.interrupted.cause
    assert await audit(step.connection, step.run, "agent")


@pytest.mark.anyio
async def test_what_an_interrupted_call_emitted_is_in_an_exported_and_a_new_attempts_record(step):
    async def emits(call):
        for number in range(5):
            await call.emit(f"{number}" * 200_000)
        raise asyncio.CancelledError

    await outcome((await step.open()).tool(ToolCall("charge"), "unsafe", emits))
    journal = await step.open(attempt=2, dispatch=2)
    result = await journal.tool(ToolCall("charge"), "unsafe", emits)
    assert (result.how, result.interrupted.partial) == ("reused", [f"{number}" * 200_000 for number in range(5)])
    closing = next(record for record in await step.records() if record.kind == "tool.result")
    assert list(references(closing).values()) == ["interrupted"]
    assert (await filled(step.connection, closing)).interrupted == result.interrupted


def test_s4_with_the_object_store_full_a_large_answer_of_a_model_fails_the_run_with_its_name(book):
    model = ScriptedModel([LARGE])
    book.service.call(limit_store, book.connection, 1_000_000)
    run = book.start(Agent("clerk", model=model), "go", run_id="r")
    with pytest.raises(RunFailed, match=r"the response of scripted .*object store is full.* bytes") as failed:
        run.wait(30)
    assert failed.value.error_type == "PayloadTooLarge"
    assert model.requests == 1


@pytest.mark.anyio
async def test_a_full_object_store_leaves_the_journal_usable(step):
    journal = await step.open()
    await limit_store(step.connection, 1_000_000)
    with pytest.raises(PayloadTooLarge, match="the state of the turn"):
        await journal.commit("continue", state=[LARGE])
    await limit_store(step.connection, -1)
    await journal.commit("continue", state=[LARGE])
    assert await audit(step.connection, step.run, "agent")


async def damage(step, how):
    """Lose or spoil the one large value of a step; its digest."""
    connection, names = step.connection, step.connection.names
    (digest,) = next(found for record in await step.records() if (found := references(record)))
    if how == "missing":
        await connection.blobs.remove(f"{step.run}/{digest}")
    elif how == "another":
        await connection.blobs.put(f"{step.run}/{digest}", b"x" * len(to_json(LARGE)))
    else:
        chunks = {"filter": f"$O.{names.stream(PAYLOADS)}.C.>", "keep": 1}
        await connection.api.call(f"STREAM.PURGE.{stream_name(names, PAYLOADS)}", chunks)
    return digest


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["missing", "another", "cut"])
async def test_a_damaged_value_is_found_by_check_and_refused_on_resume(step, how):
    fetches = Fetches()
    await (await step.open()).tool(ToolCall("fetch"), "unsafe", fetches.run)
    assert await audit(step.connection, step.run, "agent")
    digest = await damage(step, how)
    before = await step.records()
    (violation,) = (await audit(step.connection, step.run, "agent")).violations
    assert (violation.rule, violation.seq) == ("large values present", before[-1].seq)
    assert digest in violation.text
    with pytest.raises(JournalTruncated, match=r"3,145,732 bytes.*missing from the object store or damaged"):
        await step.open(delivery=2)
    assert await step.records() == before
    assert fetches.starts == 1


@pytest.mark.anyio
async def test_a_damaged_value_of_a_turn_that_is_over_stops_nobody_but_check_tells(step):
    fetches = Fetches()
    journal = await step.open()
    await journal.tool(ToolCall("fetch"), "unsafe", fetches.run)
    await journal.commit("continue", state=["small"])
    await damage(step, "missing")
    assert (await step.open(iteration=1, dispatch=2)).state == ["small"]
    assert not await audit(step.connection, step.run, "agent")
