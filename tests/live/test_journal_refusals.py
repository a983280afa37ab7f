"""What the journal refuses, on a real server, beside what its own tests hold."""

import asyncio
import contextlib

import pytest
from live.journal_steps import Step, outcome, through_proxy

from agentbook.errors import Fenced, JournalFull, JournalTruncated, Stale
from agentbook.journal.calls import ToolCall
from agentbook.journal.handle import Execution
from agentbook.journal.records import ToolIntent, ToolResult

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
def step(connection):
    return Step(connection)


async def done(call):
    return "done"


async def die(call):
    raise asyncio.CancelledError


async def answer():
    return "r"


async def test_a_batch_of_a_new_attempt_gives_different_calls_different_keys(step):
    await (await step.open()).commit("fail", retriable=True)
    journal = await step.open(attempt=2, dispatch=2)
    executions = [Execution(ToolCall("charge", {"cents": n}), "unsafe", done) for n in (10, 20)]
    await journal.tools(executions)
    keys = [record.key for record in await step.records() if isinstance(record, ToolIntent)]
    assert len(set(keys)) == 2, keys


async def test_a_batch_of_a_new_attempt_honours_an_unsafe_call_once(step):
    charge = ToolCall("charge", {"cents": 10})
    first = await step.open()
    await first.tool(charge, "unsafe", done)
    await first.commit("fail", retriable=True)
    journal = await step.open(attempt=2, dispatch=2)
    results = await journal.tools([Execution(charge, "unsafe", done)] * 2)
    assert sorted(result.how for result in results) == ["ran", "reused"]
    await step.audit()


async def test_state_changed_in_place_is_stored(step):
    await (await step.open()).commit("continue", state={"messages": ["a" * 2000]})
    journal = await step.open(iteration=1, dispatch=2)
    state = journal.state
    state["messages"].append("b")
    await journal.commit("continue", state=state)
    after = await step.open(iteration=2, dispatch=3)
    assert after.state["messages"][1:] == ["b"]


@pytest.mark.parametrize("end", ["commit", "pause"])
async def test_nothing_is_written_after_a_holders_own_end(step, end):
    journal = await step.open()
    await (journal.commit("complete", state=None) if end == "commit" else journal.pause("requested"))
    await outcome(journal.model(answer))
    await outcome(journal.tool(ToolCall("x"), "safe", done))
    await outcome(journal.commit("complete", state=None))
    assert (await step.kinds())[-1] == end
    await step.audit()


@pytest.mark.parametrize("end", ["commit", "pause"])
async def test_an_end_while_a_call_runs_is_concurrent_use(step, end):
    journal = await step.open()
    begun, proceed = asyncio.Event(), asyncio.Event()

    async def slow(call):
        begun.set()
        await proceed.wait()

    running = asyncio.create_task(outcome(journal.tool(ToolCall("slow"), "unsafe", slow)))
    await begun.wait()
    await outcome(journal.commit("complete", state=None) if end == "commit" else journal.pause("requested"))
    proceed.set()
    await running
    await step.audit()


async def test_a_tool_that_emits_after_it_ended_writes_nothing(step):
    journal = await step.open()
    kept = []

    async def keeps(call):
        kept.append(call)
        return "done"

    await journal.tool(ToolCall("x"), "safe", keeps)
    await journal.commit("complete", state=None)
    await outcome(kept[0].emit("late"))
    assert (await step.kinds())[-1] == "commit"
    await step.audit()


async def test_closing_a_call_cut_while_its_result_is_undecided_does_not_answer_it_twice(step, server, settings):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(2, cut=False)
        running = asyncio.create_task(journal.tool(ToolCall("charge"), "unsafe", done))
        await proxy.stored.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await journal.close_cut_calls()
    assert (await step.kinds()).count("tool.result") == 1, await step.kinds()
    await step.audit()


async def test_a_call_cut_while_its_intent_is_undecided_is_closed(step, server, settings):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(1, cut=False)
        running = asyncio.create_task(journal.tool(ToolCall("charge"), "unsafe", done))
        await proxy.stored.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await journal.close_cut_calls()
    assert await step.kinds() == ["claim", "tool.intent", "tool.result"]


async def test_a_safe_call_that_was_running_again_is_closed_when_it_is_cut(step):
    await outcome((await step.open()).tool(ToolCall("search"), "safe", die))
    journal = await step.open(delivery=2)
    begun = asyncio.Event()

    async def blocks(call):
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(journal.tool(ToolCall("search"), "safe", blocks))
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await journal.close_cut_calls()
    last = (await step.records())[-1]
    assert isinstance(last, ToolResult)
    assert last.error.type == "Cancelled"


@pytest.mark.parametrize("lost", [2, 3])
async def test_a_journal_that_lost_an_intent_with_its_head_is_truncated(step, lost):
    journal = await step.open()

    async def emits(call):
        await call.emit(1)

    await journal.tool(ToolCall("x"), "safe", emits)
    await step.connection.purge("AGENT_JOURNAL", step.subject, keep=4 - lost)
    result = await outcome(step.open(delivery=2))
    assert isinstance(result, JournalTruncated), repr(result)


async def test_f3_a_holder_fenced_before_it_runs_a_safe_call_again_does_not_start_it(step):
    starts = []

    async def run(call):
        starts.append(call.key)

    await outcome((await step.open()).tool(ToolCall("search"), "safe", die))
    old = await step.open(delivery=2)
    await step.open(delivery=3, worker="kernel 2")
    result = await outcome(old.tool(ToolCall("search"), "safe", run))
    assert isinstance(result, Fenced)
    assert starts == []


async def test_an_error_text_with_a_lone_surrogate_is_still_a_result(step):
    async def raises(call):
        raise ValueError("no file \udcff")

    journal = await step.open()
    result = await outcome(journal.tool(ToolCall("x"), "unsafe", raises))
    assert result.error.type == "ValueError", repr(result)
    await step.audit()


async def test_an_input_with_a_nan_is_refused_or_stored_as_it_is(step):
    journal = await step.open()
    call = ToolCall("x", {"price": float("nan")})
    live = await outcome(journal.tool(call, "safe", done))
    kinds = await step.kinds()
    if kinds != ["claim"]:
        intent = (await step.records())[1]
        assert intent.input != {"price": None}, (live, intent)


async def test_a_commit_that_leaves_a_recorded_call_open_is_not_stored(step):
    """The code changed so that the turn ends where the journal has an open intent."""
    journal = await step.open()
    await journal.model(answer)
    await outcome(journal.tool(ToolCall("charge"), "unsafe", die))
    changed = await step.open(delivery=2)
    await changed.model(answer)
    await outcome(changed.commit("complete", state=None))
    await step.audit()


async def test_a_claim_of_a_later_dispatch_is_stale_whatever_its_iteration(step):
    await (await step.open(dispatch=5)).commit("continue", state=None)
    assert isinstance(await outcome(step.open(iteration=1, dispatch=3)), Stale)


async def test_a_full_stream_under_an_emit_is_not_the_tools_own_error(step):
    connection = step.connection
    journal = await step.open()

    async def emits(call):
        config = (await connection.info("AGENT_JOURNAL"))["config"]
        used = (await connection.info("AGENT_JOURNAL"))["state"]["bytes"]
        await connection.api.call(
            f"STREAM.UPDATE.{connection.names.stream('AGENT_JOURNAL')}", config | {"max_bytes": used + 4000}
        )
        await call.emit("x" * 6000)
        return "charged"

    result = await outcome(journal.tool(ToolCall("charge"), "unsafe", emits))
    assert isinstance(result, JournalFull), result
    assert "tool.result" not in await step.kinds()


async def test_a_swallowed_mismatch_does_not_let_the_turn_go_on(step):
    requests = []

    async def ask():
        requests.append(1)
        return "r"

    await (await step.open()).tool(ToolCall("a"), "unsafe", done)
    journal = await step.open(delivery=2)
    with contextlib.suppress(Exception):
        await journal.tool(ToolCall("b"), "unsafe", done)
    before = await step.records()
    await outcome(journal.model(ask))
    await outcome(journal.commit("complete", state=None))
    assert (requests, await step.records()) == ([], before)

