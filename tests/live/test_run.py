"""How runs go and end: models, tools, what the model reads of them, bounds, failures, cancellation."""

import asyncio
import threading
import time

import pytest

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.book.watch import until
from agentbook.errors import RunCancelledError, RunEnded, RunFailed, RunNotFound
from agentbook.models import ModelReply, ToolRequest
from agentbook.protocol import runs

pytestmark = pytest.mark.live

DONE = "done"


def read(request):
    """What the model reads of its last calls, as it would see it."""
    return request.messages[-1]


def ask(book, *replies, tools=(), wait=20, **more):
    """Run an agent; its answer and its model."""
    model = ScriptedModel(replies)
    run = book.start(Agent("asked", model=model, tools=tools, **more), "hi", run_id="r")
    return run.wait(wait), model


@tool(replay="safe")
async def double(number: int) -> int:
    """Twice a number."""
    return number * 2


@tool(replay="safe")
def shout(text: str) -> str:
    """The text, loud."""
    return text.upper()


@tool(replay="safe")
async def broken(why: str) -> str:
    """Raise."""
    raise LookupError(why)


def test_a_plain_async_function_is_a_model(book):
    async def model(request):
        return f"{request.system}: {request.messages[0].content}"

    run = book.start(Agent("asked", model=model, instructions="be brief"), {"order": 42})
    assert run.wait(20) == "be brief: {'order': 42}"


def test_sync_and_async_tools_run_and_their_results_reach_the_model_in_call_order(book):
    calls = [ToolCall("shout", {"text": "hi"}), ToolCall("double", {"number": 21})]
    answer, model = ask(book, calls, DONE, tools=[double, shout])
    assert answer == DONE
    assert [(message.name, message.output) for message in model.asked()[1].messages[-2:]] == [
        ("shout", "HI"),
        ("double", 42),
    ]


def test_a_sync_tool_blocks_no_other_tool(book):
    met = threading.Barrier(2)

    @tool(replay="safe")
    def meet(name: str) -> str:
        """Wait for the other call."""
        met.wait(20)
        return name

    answer, _ = ask(book, [ToolCall("meet", {"name": "a"}), ToolCall("meet", {"name": "b"})], DONE, tools=[meet])
    assert answer == DONE


def test_a_tool_that_raises_is_a_result_that_the_model_reads(book):
    answer, model = ask(book, ToolCall("broken", {"why": "no such order"}), DONE, tools=[broken])
    assert answer == DONE
    error = read(model.asked()[1]).error
    assert (error.type, error.message) == ("LookupError", "no such order")


def test_an_unknown_tool_is_an_error_that_names_the_tools_there_are(book):
    _, model = ask(book, ToolCall("refund", {}), DONE, tools=[double, shout])
    error = read(model.asked()[1]).error
    assert error.type == "LookupError"
    assert "refund" in error.message
    assert "double, shout" in error.message


@pytest.mark.parametrize(
    ("given", "named"),
    [({}, "number"), ({"number": "many"}, "number"), ({"number": 1, "speed": 2}, "speed"), ([1], "object")],
    ids=["missing", "wrong type", "unknown", "not an object"],
)
def test_arguments_that_do_not_fit_are_an_error_that_names_the_argument_and_nothing_runs(book, given, named):
    started = []

    @tool(replay="unsafe")
    async def pay(number: int) -> int:
        """Pay."""
        started.append(number)
        return number

    call = ModelReply(tool_calls=[ToolRequest(id="c", name="pay", input=given)])
    _, model = ask(book, call, DONE, tools=[pay])
    assert named in read(model.asked()[1]).error.message
    assert started == []


def giving_up(replay):
    @tool(replay=replay)
    async def gives_up() -> str:
        """Raise what only a canceller should."""
        raise asyncio.CancelledError("gave up")

    return gives_up


def test_a_tool_that_raises_cancelled_by_itself_ends_its_call_and_not_the_run(book):
    answer, model = ask(book, ToolCall("gives_up"), DONE, tools=[giving_up("safe")])
    assert answer == DONE
    assert "CancelledError" in read(model.asked()[1]).error.message


def test_an_unsafe_tool_that_raises_cancelled_by_itself_may_have_happened(book):
    answer, model = ask(book, ToolCall("gives_up"), DONE, tools=[giving_up("unsafe")])
    assert answer == DONE
    assert "may have happened" in read(model.asked()[1]).interrupted.cause


def test_one_of_several_tools_that_raises_cancelled_by_itself_leaves_the_others_alone(book):
    calls = [ToolCall("gives_up"), ToolCall("double", {"number": 1})]
    answer, model = ask(book, calls, DONE, tools=[giving_up("safe"), double])
    assert answer == DONE
    first, second = model.asked()[1].messages[-2:]
    assert first.error is not None
    assert second.output == 2


def test_what_a_model_raises_fails_the_run_with_that_error(book):
    with pytest.raises(RunFailed, match="the provider is down") as caught:
        ask(book, ConnectionError("the provider is down"))
    assert (caught.value.error_type, caught.value.error_message) == ("ConnectionError", "the provider is down")
    assert book.get("r").status == "failed"
    with pytest.raises(RunFailed):
        book.get("r").result()


def test_a_model_that_raises_cancelled_by_itself_fails_the_run(book):
    async def model(request):
        raise asyncio.CancelledError("gave up")

    with pytest.raises(RunFailed) as caught:
        book.start(Agent("asked", model=model), "hi").wait(20)
    assert caught.value.error_type == "CancelledError"


def test_max_iterations_allows_exactly_so_many_turns_and_names_itself(book):
    calls = [ToolCall("double", {"number": n}) for n in range(5)]
    model = ScriptedModel([*calls, DONE])
    with pytest.raises(RunFailed, match="max_iterations") as caught:
        book.start(Agent("asked", model=model, tools=[double], max_iterations=3), "hi", run_id="r").wait(20)
    assert "limit is 3" in str(caught.value)
    assert model.requests == 3
    assert book.get("r").info.turns == 3


def test_a_run_of_as_many_turns_as_it_may_take_completes(book):
    calls = [ToolCall("double", {"number": n}) for n in range(2)]
    assert ask(book, *calls, DONE, tools=[double], max_iterations=3)[0] == DONE


@pytest.mark.anyio
async def test_awaiting_raises_what_waiting_raises(book):
    with pytest.raises(RunFailed, match="down"):
        await book.start(Agent("asked", model=ScriptedModel([ConnectionError("down")])), "hi")


def test_a_handler_that_swallows_every_exception_swallows_no_cancellation(book):
    """F12: `except Exception` around everything, in a tool."""
    started = threading.Event()

    @tool(replay="unsafe")
    async def stubborn() -> str:
        """Swallow every exception."""
        while True:
            try:
                started.set()
                await asyncio.sleep(60)
            except Exception:  # noqa: BLE001 - the point of this test
                pass

    run = book.start(Agent("asked", model=ScriptedModel([ToolCall("stubborn"), DONE]), tools=[stubborn]), "hi")
    assert started.wait(20)
    run.cancel()
    wait_for(lambda: book.status()["holding"] == [])
    assert [record.kind for record in run.journal()] == ["claim", "model", "tool.intent", "tool.result"]


def wait_for(condition, seconds=20):
    """Wait on an effect that nobody announces."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Cancelled:
    """A run that is cancelled while its two tools run."""

    def __init__(self, book):
        self.started = {"look": threading.Event(), "pay": threading.Event()}

        @tool(replay="safe")
        async def look() -> str:
            """Never return."""
            self.started["look"].set()
            await asyncio.Event().wait()
            return "never"

        @tool(replay="unsafe")
        async def pay() -> str:
            """Never return."""
            self.started["pay"].set()
            await asyncio.Event().wait()
            return "never"

        model = ScriptedModel([[ToolCall("look"), ToolCall("pay")], DONE])
        self.model = model
        self.run = book.start(Agent("asked", model=model, tools=[look, pay]), "hi", run_id="r")
        assert all(event.wait(20) for event in self.started.values())


def test_a_cancelled_run_is_cancelled_at_once_and_who_waits_is_told_why(book):
    cancelled = Cancelled(book)
    caught = []

    def wait():
        try:
            cancelled.run.wait(20)
        except RunCancelledError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    cancelled.run.cancel("changed my mind")
    assert cancelled.run.status == "cancelled"
    waiting.join(20)
    assert caught[0].reason == "changed my mind"


def test_the_calls_that_a_cancellation_cut_are_recorded_safe_as_cancelled_and_unsafe_as_unknown(book):
    cancelled = Cancelled(book)
    cancelled.run.cancel()
    wait_for(lambda: book.status()["holding"] == [])
    records = cancelled.run.journal()
    names = {record.seq: record.name for record in records if record.kind == "tool.intent"}
    results = {names[record.intent]: record for record in records if record.kind == "tool.result"}
    assert results["look"].error.type == "Cancelled"
    assert results["pay"].interrupted.cause == "cancelled"
    assert records[-1].kind == "tool.result"
    assert cancelled.model.requests == 1


def test_a_cancelled_run_leaves_no_task_and_cannot_go_on(book):
    cancelled = Cancelled(book)
    cancelled.run.cancel()
    wait_for(lambda: book.status()["holding"] == [])
    assert cancelled.run.resume(force=True) == "ended"
    with pytest.raises(RunEnded):
        cancelled.run.retry()
    cancelled.run.cancel("again")
    with pytest.raises(RunCancelledError) as caught:
        cancelled.run.wait(20)
    assert caught.value.reason is None


def test_the_error_of_a_run_that_vanished_names_it(book):
    run = type(book.start(Agent("asked", model=ScriptedModel([DONE])), "hi"))(book, "nobody")
    with pytest.raises(RunNotFound, match="nobody"):
        run.wait(20)


@pytest.mark.anyio
async def test_an_end_that_is_saved_while_the_run_is_being_read_is_noticed_before_the_next_poll(
    connection, agentbook_settings
):
    from engine_driver import a_run

    from agentbook.engine.control import cancel
    from agentbook.engine.start import start

    class Slow:
        """The connection, but each read takes until the run has ended behind it."""

        names = connection.names

        def __getattr__(self, name):
            return getattr(connection, name)

        async def last(self, stream, subject):
            stored = await connection.last(stream, subject)
            if (await runs.load(connection, "r")).snapshot.status == "running":
                await cancel(connection, "r")
                # Whatever was announced has been heard once this has come back.
                await connection.last(stream, subject)
            return stored

    await start(connection, a_run())
    begun = time.monotonic()
    snapshot = await until(Slow(), "r", lambda run: run.ended)
    assert snapshot.status == "cancelled"
    assert time.monotonic() - begun < 0.9
