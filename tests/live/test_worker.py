"""What holds a run and what parks it: changed code, a lost journal, tools that block or do not end in time, fences."""

import asyncio
import threading
import time

import pytest

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.broker.names import JOURNAL
from agentbook.errors import RunCancelledError, RunFailed, RunHalted
from agentbook.worker.registry import Registration

pytestmark = pytest.mark.live

DONE = "done"


def wait_for(condition, seconds=20):
    """Wait on an effect that nobody announces."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def serve(book, handler):
    """Have a low-level handler work on the runs of type `hand`."""
    book.service.call(book.worker.register, Registration("hand", handler, "code"))


def begin(book, handler):
    """Start a run of a low-level handler."""
    # `start` takes agents only, and would register it in the handler's place.
    book._registered["hand"] = agent = Agent("hand", model=ScriptedModel([DONE]))
    serve(book, handler)
    return book.start(agent, "hi", run_id="r")


def kinds(run):
    return [record.kind for record in run.journal()]


class Versions:
    """A handler of two calls; the second one waits, and a changed version asks for another first call."""

    def __init__(self):
        self.started = threading.Event()
        self.ran = []

    async def pay(self, call):
        self.ran.append(call.input["cents"])
        return "paid"

    async def stuck(self, call):
        self.started.set()
        await asyncio.Event().wait()

    async def quick(self, call):
        return "quick"

    def handler(self, cents, second):
        async def handle(ctx):
            journal = await ctx.journal()
            paid = await journal.tool(ToolCall("pay", {"cents": cents}), "unsafe", self.pay)
            await journal.tool(ToolCall("second", {}), "safe", second)
            await ctx.complete(paid.value())

        return handle


@pytest.fixture
def crashed(new_book):
    """A run that was cut after its first call, and a book for those who come after."""
    versions = Versions()
    first = new_book()
    begin(first, versions.handler(100, versions.stuck))
    assert versions.started.wait(20)
    first.close()
    return versions, new_book()


def test_j4_changed_code_halts_the_run_and_shows_both_calls_and_the_old_code_resumes(crashed):
    versions, book = crashed
    run = book.get("r")
    before = run.journal()
    serve(book, versions.handler(999, versions.quick))
    with pytest.raises(RunHalted) as caught:
        run.wait(20)
    assert "position 0" in caught.value.cause
    assert '"cents":100' in caught.value.cause.replace(" ", "")
    assert '"cents":999' in caught.value.cause.replace(" ", "")
    assert run.status == "halted"
    assert run.info.cause == caught.value.cause
    after = run.journal()
    assert after[: len(before)] == before
    assert [record.kind for record in after[len(before) :]] == ["claim", "pause"]
    assert versions.ran == [100]

    serve(book, versions.handler(100, versions.quick))
    assert run.resume() == "dispatched"
    assert run.wait(20) == "paid"
    assert versions.ran == [100]


def test_j4_a_parked_run_can_be_parked_again_and_uses_up_no_attempt(crashed):
    versions, book = crashed
    run = book.get("r")
    serve(book, versions.handler(999, versions.quick))
    for parked in range(1, 8):
        wait_for(lambda parked=parked: kinds(run).count("pause") == parked and run.status == "halted")
        run.resume()
    wait_for(lambda: kinds(run).count("pause") == 8 and run.status == "halted")
    assert {record.attempt for record in run.journal()} == {1}


def test_j4_retry_begins_the_turn_again_with_the_new_code_and_pays_no_call_twice(crashed):
    versions, book = crashed
    run = book.get("r")
    serve(book, versions.handler(999, versions.quick))
    with pytest.raises(RunHalted):
        run.wait(20)
    run.retry()
    assert run.wait(20) == "paid"
    assert versions.ran == [100, 999]
    assert {record.attempt for record in run.journal()} == {1, 2}


def test_j6_a_run_whose_journal_is_gone_halts_and_says_so_and_never_starts_afresh(new_book, agentbook_settings):
    # In a namespace of its own: the audit of such a run cannot be clean.
    book = new_book(namespace=f"{agentbook_settings.namespace}x")
    started = threading.Event()
    searches = []

    @tool(replay="safe")
    async def search(query: str) -> str:
        """Note it; the second search does not end."""
        searches.append(query)
        if query == "second":
            started.set()
            await asyncio.Event().wait()
        return query

    calls = [ToolCall("search", {"query": query}) for query in ("first", "second")]
    agent = Agent("seeker", model=ScriptedModel([*calls, DONE]), tools=[search])
    book.start(agent, "hi", run_id="r")
    assert started.wait(20)
    book.close()

    book = new_book(namespace=f"{agentbook_settings.namespace}x")
    book.service.call(book.connection.purge, JOURNAL, book.connection.names.journal("r", "agent"))
    book.register(agent)
    run = book.get("r")
    with pytest.raises(RunHalted, match="journal head missing"):
        run.wait(20)
    assert run.journal() == []
    assert searches == ["first", "second"]
    assert not run.check()
    run.resume()
    with pytest.raises(RunHalted, match="journal head missing"):
        run.wait(20)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_f4_a_tool_that_blocks_three_times_the_ack_wait_runs_once(book, kind):
    starts = []
    seconds = 3 * book.settings.ack_wait

    if kind == "async":

        @tool(replay="safe")
        async def slow() -> str:
            """Block the loop it runs on."""
            starts.append(1)
            time.sleep(seconds)  # noqa: ASYNC251 - the point of this test
            return "slow"
    else:

        @tool(replay="safe")
        def slow() -> str:
            """Block a thread."""
            starts.append(1)
            time.sleep(seconds)
            return "slow"

    run = book.start(Agent("sleeper", model=ScriptedModel([ToolCall("slow"), DONE]), tools=[slow]), "hi")
    assert run.wait(20) == DONE
    assert len(starts) == 1
    assert kinds(run) == ["claim", "model", "tool.intent", "tool.result", "commit", "claim", "model", "commit"]


@pytest.mark.parametrize("replay", ["unsafe", "safe"])
def test_f6_a_plain_tool_that_goes_on_past_its_timeout_ends_its_call_and_its_late_result_is_dropped(book, replay):
    release, returned = threading.Event(), threading.Event()
    starts = []

    @tool(replay=replay, timeout=0.2)
    def stubborn() -> str:
        """Take no notice of a time-out."""
        starts.append(1)
        assert release.wait(20)
        returned.set()
        return "late"

    model = ScriptedModel([ToolCall("stubborn"), DONE])
    run = book.start(Agent("sleeper", model=model, tools=[stubborn]), "hi")
    assert run.wait(20) == DONE
    message = model.asked()[1].messages[-1]
    if replay == "unsafe":
        assert message.interrupted is not None
    else:
        assert message.error.type == "TimeoutError"
    release.set()
    assert returned.wait(20)
    assert len(starts) == 1
    assert kinds(run).count("tool.result") == 1


class Stubborn:
    """A handler that swallows every exception, around every call, and goes on."""

    def __init__(self):
        self.started = threading.Event()
        self.caught = []
        self.effects = 0

    async def effect(self, call):
        self.effects += 1
        self.started.set()
        await asyncio.Event().wait()

    async def handle(self, ctx):
        journal = await ctx.journal()
        while True:
            try:
                await journal.tool(ToolCall("effect", {}), "unsafe", self.effect)
            except Exception as error:  # noqa: BLE001 - the point of this test
                self.caught.append(error)

    async def worse(self, ctx):
        """Swallows even what is no exception, three times."""
        journal = await ctx.journal()
        for _ in range(3):
            try:
                await journal.tool(ToolCall("effect", {}), "unsafe", self.effect)
            except BaseException as error:  # noqa: BLE001 - the point of this test
                self.caught.append(error)
        await ctx.complete("swallowed")


@pytest.mark.parametrize("way", ["handle", "worse"])
def test_f12_a_handler_that_swallows_exceptions_swallows_no_fence(new_book, way):
    stubborn = Stubborn()
    first = new_book()
    begin(first, getattr(stubborn, way))
    assert stubborn.started.wait(20)

    async def finish(ctx):
        journal = await ctx.journal()
        await journal.tool(ToolCall("effect", {}), "unsafe", stubborn.effect)
        await ctx.complete("finished by another")

    second = new_book()
    # Both serve the type; the first one's new deliveries are finished the same way.
    serve(first, finish)
    serve(second, finish)
    run = second.attach("r", force=True)
    assert run.wait(20) == "finished by another"
    wait_for(lambda: first.status()["holding"] == [])
    assert stubborn.effects == 1
    assert kinds(run) == ["claim", "tool.intent", "claim", "tool.result", "commit"]
    assert all(not isinstance(error, Exception) for error in stubborn.caught)


@pytest.mark.parametrize("way", ["handle", "worse"])
def test_f12_a_handler_that_swallows_exceptions_swallows_no_cancellation(book, way):
    stubborn = Stubborn()
    run = begin(book, getattr(stubborn, way))
    assert stubborn.started.wait(20)
    run.cancel()
    with pytest.raises(RunCancelledError):
        run.wait(20)
    wait_for(lambda: book.status()["holding"] == [])
    assert stubborn.effects == 1
    results = [record for record in run.journal() if record.kind == "tool.result"]
    assert [result.interrupted.cause for result in results] == ["cancelled"]


def test_a_handler_that_returns_without_saying_how_the_turn_ends_fails_the_run(book):
    async def silent(ctx):
        await ctx.journal()

    with pytest.raises(RunFailed, match="without complete, fail or continue_"):
        begin(book, silent).wait(20)


def test_j4_a_handler_that_no_longer_makes_a_recorded_call_is_parked(new_book, agentbook_settings):
    apart = f"{agentbook_settings.namespace}x"
    versions = Versions()
    first = new_book(namespace=apart)
    begin(first, versions.handler(100, versions.stuck))
    assert versions.started.wait(20)
    first.close()

    async def shorter(ctx):
        await ctx.journal()
        await ctx.complete("drifted")

    second = new_book(namespace=apart)
    serve(second, shorter)
    with pytest.raises(RunHalted):
        second.get("r").wait(20)
