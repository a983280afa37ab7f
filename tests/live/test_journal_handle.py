"""JOURNAL.md, Replay rules and Open, through the handle that a turn is written with."""

import asyncio
import contextlib

import pytest
from live.journal_steps import Step, outcome, through_proxy

from agentbook.broker.connection import connect
from agentbook.errors import CallLimit, ConcurrentUse, Fenced, OutcomeUnknown, ReplayMismatch, RunCancelled, ToolError
from agentbook.journal.calls import ToolCall
from agentbook.journal.handle import Execution
from agentbook.journal.open import Limits
from agentbook.journal.records import ToolIntent, ToolResult

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
async def step(connection):
    step = Step(connection)
    yield step
    await step.audit()


class Effects:
    """What really happened, outside the journal."""

    def __init__(self):
        self.requests = 0
        self.starts = []

    async def answer(self):
        self.requests += 1
        return {"text": "answer", "n": self.requests}

    async def run(self, call):
        self.starts.append(call.name)
        return {"did": call.name, "key": call.key}

    async def die(self, call):
        """The effect happens, then the holder is gone."""
        self.starts.append(call.name)
        raise asyncio.CancelledError

    def executions(self, *names, replay="unsafe", run=None):
        return [Execution(ToolCall(name, {"n": 1}), replay, run or self.run) for name in names]


@pytest.fixture
def effects():
    return Effects()


async def test_f3_a_fenced_holder_does_not_spend_a_model_call(step, effects):
    old = await step.open()
    await step.open(worker="kernel 2")
    with pytest.raises(Fenced, match="kernel 2"):
        await old.model(effects.answer)
    assert effects.requests == 0


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
async def test_f3_a_fenced_holder_starts_no_tool(step, effects, replay):
    old = await step.open()
    await step.open(worker="kernel 2")
    with pytest.raises(Fenced):
        await old.tool(ToolCall("charge"), replay, effects.run)
    with pytest.raises(Fenced):
        await old.tools(effects.executions("a", "b", replay=replay))
    assert effects.starts == []


async def test_f3_a_holder_fenced_in_a_tool_writes_no_result_and_starts_nothing_more(step, effects):
    old = await step.open()

    async def slow(call):
        await effects.run(call)
        await step.open(worker="kernel 2")
        return "late"

    with pytest.raises(Fenced):
        await old.tool(ToolCall("charge"), "unsafe", slow)
    with pytest.raises(Fenced):
        await old.tool(ToolCall("search"), "safe", effects.run)
    with pytest.raises(Fenced):
        await old.commit("complete", state=None)
    assert effects.starts == ["charge"]
    assert await step.kinds() == ["claim", "tool.intent", "claim"]


async def test_f12_a_fence_survives_except_exception_in_a_tool_and_in_the_handler(step, effects):
    old = await step.open()

    async def stubborn(call):
        await step.open(worker="kernel 2")
        with contextlib.suppress(Exception):
            await call.emit("still here")
        return "done"

    async def handler():
        with contextlib.suppress(Exception):
            await old.tool(ToolCall("charge"), "unsafe", stubborn)
        return "went on"

    assert isinstance(await outcome(handler()), Fenced)


async def test_f12_a_fence_sticks_even_if_code_swallows_it(step, effects):
    old = await step.open()
    await step.open(worker="kernel 2")
    uses = [
        lambda: old.model(effects.answer),
        lambda: old.tool(ToolCall("search"), "safe", effects.run),
        lambda: old.tools(effects.executions("a", "b")),
        lambda: old.commit("complete", state=None),
        lambda: old.pause("requested"),
    ]
    signals = [await outcome(use()) for use in uses for _ in range(2)]
    assert isinstance(signals[0], Fenced)
    assert all(signal is signals[0] for signal in signals)
    assert (effects.requests, effects.starts) == (0, [])


async def test_a_stopped_handle_hands_out_nothing_more_not_even_what_is_recorded(step, effects):
    first = await step.open()
    await first.model(effects.answer)
    await first.tool(ToolCall("charge"), "unsafe", effects.run)
    journal = await step.open(delivery=2)
    stopped = RunCancelled("cancelled")
    journal.stop(stopped)
    before = await step.records()
    uses = [
        lambda: journal.model(effects.answer),
        lambda: journal.tool(ToolCall("charge"), "unsafe", effects.run),
        lambda: journal.commit("complete", state=None),
        lambda: journal.pause("requested"),
    ]
    assert [await outcome(use()) for use in uses] == [stopped] * 4
    assert await step.records() == before


async def test_f12_a_fence_swallowed_in_a_tool_still_ends_the_turn(step, effects):
    old = await step.open()

    async def swallows(call):
        await step.open(worker="kernel 2")
        with contextlib.suppress(BaseException):
            await call.emit("x")
        return "done"

    with pytest.raises(Fenced):
        await old.tool(ToolCall("charge"), "unsafe", swallows)
    with pytest.raises(Fenced):
        await old.model(effects.answer)
    assert effects.requests == 0


async def test_a_second_delivery_replays_what_is_recorded_and_repeats_nothing(step, effects):
    async def turn(journal):
        first = await journal.model(effects.answer)
        tools = await journal.tools(effects.executions("a", "b"))
        return [first, [tool.value() for tool in tools], await journal.model(effects.answer)]

    live = await turn(await step.open())
    before = await step.records()
    again = await step.open(delivery=2)
    assert await turn(again) == live
    assert (effects.requests, sorted(effects.starts)) == (2, ["a", "b"])
    assert (again.replayed, again.ran) == (4, 0)
    assert len(await step.records()) == len(before) + 1


async def test_another_request_digest_or_model_name_is_no_mismatch(step, effects):
    first = await (await step.open()).model(effects.answer, name="small", digest="1")
    again = await (await step.open(delivery=2)).model(effects.answer, name="large", digest="2")
    assert again == first
    assert effects.requests == 1


async def test_live_values_are_the_decoded_stored_ones(step, effects):
    value = {"items": [1, 2.5, None, True, "ü"]}

    async def answer():
        return value

    async def run(call):
        return value

    journal = await step.open()
    answered = await journal.model(answer)
    returned = (await journal.tool(ToolCall("a"), "safe", run)).value()
    assert answered == returned == value
    assert answered is not value
    assert returned is not value


async def test_what_a_tool_raises_is_its_result_and_is_replayed(step, effects):
    async def raises(call):
        effects.starts.append(call.name)
        raise ValueError("no such order")

    live = await (await step.open()).tool(ToolCall("find"), "unsafe", raises)
    again = await (await step.open(delivery=2)).tool(ToolCall("find"), "unsafe", raises)
    for result in (live, again):
        assert (result.error.type, result.error.message) == ("ValueError", "no such order")
        with pytest.raises(ToolError, match="no such order"):
            result.value()
    assert effects.starts == ["find"]


async def test_a_tool_that_says_it_does_not_know_is_interrupted_with_its_partials(step):
    async def unsure(call):
        await call.emit("sent")
        raise OutcomeUnknown("the bank did not answer")

    result = await (await step.open()).tool(ToolCall("charge"), "safe", unsure)
    assert (result.interrupted.partial, result.interrupted.cause) == (["sent"], "the bank did not answer")
    with pytest.raises(OutcomeUnknown):
        result.value()


async def test_a_model_request_that_raises_records_nothing(step, effects):
    async def refuses():
        raise ConnectionError("429")

    with pytest.raises(ConnectionError):
        await (await step.open()).model(refuses)
    assert await step.kinds() == ["claim"]
    assert await (await step.open(delivery=2)).model(effects.answer) == {"text": "answer", "n": 1}


@pytest.mark.parametrize("emitted", [[], ["one", {"two": 2}, None]])
async def test_h6_an_unsafe_call_that_was_started_is_never_started_again(step, effects, emitted):
    async def dies(call):
        for chunk in emitted:
            await call.emit(chunk)
        await effects.die(call)

    await outcome((await step.open()).tool(ToolCall("charge"), "unsafe", dies))
    result = await (await step.open(delivery=2)).tool(ToolCall("charge"), "unsafe", effects.run)
    assert effects.starts == ["charge"]
    assert (result.how, result.interrupted.partial) == ("interrupted", emitted)
    assert (await (await step.open(delivery=3)).tool(ToolCall("charge"), "unsafe", effects.run)).interrupted
    assert effects.starts == ["charge"]
    assert [kind for kind in await step.kinds() if kind == "tool.result"] == ["tool.result"]


async def test_a_safe_call_that_was_started_runs_again_under_its_intent_and_key(step, effects):
    await outcome((await step.open()).tool(ToolCall("search"), "safe", effects.die))
    result = await (await step.open(delivery=2)).tool(ToolCall("search"), "safe", effects.run)
    assert effects.starts == ["search", "search"]
    (intent,) = [record for record in await step.records() if isinstance(record, ToolIntent)]
    assert (result.how, result.value()["key"]) == ("re-ran", intent.key)


async def test_h5_after_one_of_three_finished_the_safe_runs_again_and_the_unsafe_is_unknown(step, effects):
    finished = asyncio.Event()

    async def dies_after_the_first(call):
        await finished.wait()
        await effects.die(call)

    async def finishes(call):
        return await effects.run(call)

    class Watch:
        def __call__(self, moment):
            if moment.name == "first" and moment.how == "ran":
                finished.set()

    def executions(run):
        return [
            Execution(ToolCall("first"), "unsafe", finishes),
            Execution(ToolCall("safe"), "safe", run),
            Execution(ToolCall("charge"), "unsafe", run),
        ]

    journal = await step.open()
    journal.observe = Watch()
    await outcome(journal.tools(executions(dies_after_the_first)))
    results = await (await step.open(delivery=2)).tools(executions(effects.run))
    assert [result.how for result in results] == ["replayed", "re-ran", "interrupted"]
    assert effects.starts.count("first") == 1
    assert effects.starts.count("charge") <= 1


async def test_tools_take_their_positions_in_call_order_run_at_once_and_answer_in_call_order(step):
    names = ["a", "b", "c", "d"]
    started = {name: asyncio.Event() for name in names}
    gates = {name: asyncio.Event() for name in [*names, "last"]}
    opens = dict(zip(reversed(names), ["c", "b", "a", "last"], strict=True))
    gates["d"].set()
    ended = []

    async def run(call):
        started[call.name].set()
        # All have started before any ends, and the last one ends first.
        for event in started.values():
            await event.wait()
        await gates[call.name].wait()
        ended.append(call.name)
        gates[opens[call.name]].set()
        return call.position

    journal = await step.open()
    results = await journal.tools([Execution(ToolCall(name), "safe", run) for name in names])
    assert ended == ["d", "c", "b", "a"]
    assert [(result.name, result.value()) for result in results] == list(zip(names, range(4), strict=True))
    records = await step.records()
    positions = {record.name: record.position for record in records if isinstance(record, ToolIntent)}
    assert positions == dict(zip(names, range(4), strict=True))
    assert journal.position == 4


async def test_j1_positions_follow_call_order_whatever_order_the_calls_end_in(step, effects):
    """Killed after two of three; resumed with the order of their ends reversed."""
    gates = {name: asyncio.Event() for name in "abc"}

    async def run(call):
        await gates[call.name].wait()
        return await effects.run(call)

    journal = await step.open()
    both = asyncio.Event()
    journal.observe = lambda moment: both.set() if journal.ran == 2 else None
    running = asyncio.create_task(journal.tools(effects.executions("a", "b", "c", replay="safe", run=run)))
    gates["a"].set()
    gates["c"].set()
    await both.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    results = await (await step.open(delivery=2)).tools(effects.executions("a", "b", "c", replay="safe"))
    assert [result.how for result in results] == ["replayed", "re-ran", "replayed"]
    assert [result.value()["did"] for result in results] == ["a", "b", "c"]
    assert sorted(effects.starts) == ["a", "b", "c"]


async def test_a_failing_tool_leaves_its_siblings_alone(step, effects):
    async def raises(call):
        raise ValueError("no")

    executions = [Execution(ToolCall("bad"), "safe", raises), *effects.executions("a", "b")]
    results = await (await step.open()).tools(executions)
    assert results[0].error.type == "ValueError"
    assert [result.value()["did"] for result in results[1:]] == ["a", "b"]


async def test_two_uses_of_one_handle_at_once_are_refused_and_the_first_goes_on(step, effects):
    journal = await step.open()
    begun, proceed = asyncio.Event(), asyncio.Event()

    async def slow(call):
        begun.set()
        await proceed.wait()
        return "slow"

    first = asyncio.create_task(journal.tool(ToolCall("slow"), "safe", slow))
    await begun.wait()
    for use in (
        journal.tool(ToolCall("x"), "safe", effects.run),
        journal.tools(effects.executions("x", "y")),
        journal.model(effects.answer),
    ):
        assert isinstance(await outcome(use), ConcurrentUse)
    proceed.set()
    assert (await first).value() == "slow"
    assert await step.kinds() == ["claim", "tool.intent", "tool.result"]
    assert (await journal.tool(ToolCall("x"), "safe", effects.run)).value()["did"] == "x"
    assert (effects.requests, effects.starts) == (0, ["x"])


async def test_the_calls_of_a_turn_are_bounded(step, effects):
    journal = await step.open(limits=Limits(max_calls=3))
    await journal.model(effects.answer)
    await journal.tool(ToolCall("a"), "safe", effects.run)
    before = await step.records()
    with pytest.raises(CallLimit, match="3"):
        await journal.tools(effects.executions("b", "c"))
    assert await step.records() == before
    assert effects.starts == ["a"]


async def test_the_default_bound_is_256_calls(step, effects):
    journal = await step.open()
    await journal.tools(effects.executions(*(f"t{n}" for n in range(256))))
    with pytest.raises(CallLimit, match="256"):
        await journal.model(effects.answer)
    assert effects.requests == 0


async def test_j4_a_changed_call_is_a_mismatch_that_writes_nothing_and_the_old_code_still_resumes(step, effects):
    journal = await step.open()
    await journal.model(effects.answer)
    await journal.tool(ToolCall("charge", {"cents": 5}), "unsafe", effects.run)
    changed = await step.open(delivery=2)
    await changed.model(effects.answer)
    before = await step.records()
    with pytest.raises(ReplayMismatch) as mismatch:
        await changed.tool(ToolCall("charge", {"cents": 6}), "unsafe", effects.run)
    assert mismatch.value.position == 1
    assert '{"cents":5}' in mismatch.value.recorded
    assert '{"cents":6}' in mismatch.value.attempted
    assert await step.records() == before
    same = await step.open(delivery=3)
    await same.model(effects.answer)
    kept = await same.tool(ToolCall("charge", {"cents": 5.0}), "unsafe", effects.run)
    assert kept.how == "replayed"
    assert (effects.requests, effects.starts) == (1, ["charge"])


async def test_a_mismatch_within_tools_starts_none_of_them(step, effects):
    await (await step.open()).tools(effects.executions("a", "b"))
    before = [*effects.starts]
    with pytest.raises(ReplayMismatch):
        await (await step.open(delivery=2)).tools(effects.executions("a", "c", "new"))
    assert effects.starts == before


async def test_f9_the_key_is_the_same_on_every_delivery_and_attempt(step, effects):
    async def key_of(journal, call, run=effects.run):
        seen = []

        async def keep(bound):
            seen.append(bound.key)
            return await run(bound)

        await outcome(journal.tool(call, "safe", keep))
        return seen[0]

    search = ToolCall("search", {"q": 1})
    first = await key_of(await step.open(), search, effects.die)
    assert first == f"{step.run}.agent.0.0"
    assert await key_of(await step.open(delivery=2), search, effects.die) == first
    retry = await step.open(attempt=2, dispatch=2)
    other = await key_of(retry, ToolCall("search", {"q": 2}))
    assert other != first
    assert await key_of(retry, ToolCall("search", {"q": 1.0})) == first


async def test_a_cancelled_caller_can_close_the_calls_it_cut(step, effects):
    journal = await step.open()
    begun = asyncio.Barrier(3)

    async def blocks(call):
        await call.emit("half")
        await begun.wait()
        await asyncio.Event().wait()

    executions = [Execution(ToolCall("search"), "safe", blocks), Execution(ToolCall("charge"), "unsafe", blocks)]
    running = asyncio.create_task(journal.tools(executions))
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await journal.close_cut_calls()
    results = {record.position: record for record in await step.records() if isinstance(record, ToolResult)}
    assert results[0].error.type == "Cancelled"
    assert (results[1].interrupted.cause, results[1].interrupted.partial) == ("cancelled", ["half"])


async def test_a_call_cancelled_while_its_intent_is_undecided_does_not_start(step, server, settings, effects):
    async with through_proxy(server, settings) as (proxy, lossy):
        journal = await step.over(lossy).open()
        proxy.lose_next_ack(cut=False)
        running = asyncio.create_task(journal.tool(ToolCall("charge"), "unsafe", effects.run))
        await proxy.stored.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert effects.starts == []
    # The next holder cannot know that.
    result = await (await step.open(delivery=2)).tool(ToolCall("charge"), "unsafe", effects.run)
    assert result.how == "interrupted"
    assert effects.starts == []


async def test_a_state_comes_back_over_turns_and_attempts(step):
    turns, messages = 5, []
    for iteration in range(turns):
        failing = await step.open(iteration=iteration, dispatch=2 * iteration + 1)
        assert failing.state == ({"messages": messages} if iteration else None)
        await failing.commit("fail", retriable=True)
        journal = await step.open(iteration=iteration, attempt=2, dispatch=2 * iteration + 2)
        messages = [*messages, "x" * 2000 + str(iteration)]
        await journal.commit("continue", state={"messages": messages})
    last = await step.open(iteration=turns, dispatch=2 * turns + 1)
    assert last.state == {"messages": messages}


async def test_x1_a_turn_survives_kills_of_the_server(own_server, effects):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    step = Step(connection)
    journal = await step.open()

    async def restart(call):
        own_server.kill()
        own_server.start()
        return await effects.run(call)

    await journal.model(effects.answer)
    own_server.kill()
    restarting = asyncio.create_task(asyncio.to_thread(own_server.start))
    await journal.tool(ToolCall("a"), "unsafe", effects.run)
    await restarting
    await journal.tool(ToolCall("b"), "unsafe", restart)
    await journal.commit("complete", state=None, output="done")
    assert [record.kind for record in await step.audit()] == [
        "claim", "model", "tool.intent", "tool.result", "tool.intent", "tool.result", "commit",
    ]  # fmt: skip
    assert (effects.requests, effects.starts) == (1, ["a", "b"])
    await connection.close()
