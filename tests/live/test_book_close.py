"""Closing a book: prompt whatever is running, and what it held goes on elsewhere at once."""

import asyncio
import threading
import time

import pytest

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.errors import UsageError

pytestmark = pytest.mark.live

PROMPT = 5.0
"""Seconds that closing may take, whatever runs; the machine may be busy."""


class Blocker:
    """Tools that do not return before the test says so, each in another way."""

    def __init__(self):
        self.started = threading.Event()
        self.release = threading.Event()
        self.starts = []
        self.blocks = True

    def tools(self, replay="safe"):
        @tool(replay=replay)
        async def awaiting() -> str:
            """Await something long."""
            await self._begin()
            if self.blocks:
                await asyncio.Event().wait()
            return "done"

        @tool(replay=replay)
        async def blocking() -> str:
            """Block the loop it runs on."""
            await self._begin()
            assert not self.blocks or self.release.wait(30)
            return "done"

        @tool(replay=replay)
        def threaded() -> str:
            """Block a thread."""
            self.starts.append(threading.get_ident())
            self.started.set()
            assert not self.blocks or self.release.wait(30)
            return "done"

        return [awaiting, blocking, threaded]

    async def _begin(self):
        self.starts.append(threading.get_ident())
        self.started.set()


@pytest.fixture
def blocker():
    blocker = Blocker()
    yield blocker
    blocker.release.set()


def agent_of(blocker, name, replay="safe"):
    model = ScriptedModel([ToolCall(name), lambda request: str(request.messages[-1].output)])
    return Agent("blocked", model=model, tools=blocker.tools(replay))


@pytest.mark.parametrize("name", ["awaiting", "threaded", "blocking"])
def test_close_is_prompt_while_a_tool_runs(new_book, blocker, name):
    book = new_book()
    book.start(agent_of(blocker, name), "hi")
    assert blocker.started.wait(20)
    begun = time.monotonic()
    book.close()
    assert time.monotonic() - begun < PROMPT


@pytest.mark.parametrize("name", ["awaiting", "threaded"])
def test_close_gives_the_task_back_and_another_book_goes_on_at_once(new_book, blocker, name):
    first = new_book(ack_wait=30)
    agent = agent_of(blocker, name)
    first.start(agent, "hi", run_id="r")
    assert blocker.started.wait(20)
    second = new_book(ack_wait=30)
    second.register(agent)
    blocker.blocks = False
    begun = time.monotonic()
    first.close()
    assert second.get("r").wait(20) == "done"
    assert time.monotonic() - begun < 10
    assert len(blocker.starts) == 2


def test_a_call_that_close_cut_is_safe_to_run_again_only_if_it_says_so(new_book, blocker):
    first = new_book(ack_wait=30)
    agent = agent_of(blocker, "awaiting", "unsafe")
    first.start(agent, "hi", run_id="r")
    assert blocker.started.wait(20)
    first.close()
    blocker.blocks = False
    second = new_book(ack_wait=30)
    second.register(agent)
    second.get("r").wait(20)
    assert len(blocker.starts) == 1
    results = [record for record in second.get("r").journal() if record.kind == "tool.result"]
    assert [result.interrupted is not None for result in results] == [True]


def test_what_a_blocked_book_held_goes_on_after_the_ack_wait(new_book, blocker):
    """A tool that blocks the loop cannot be cut; it must not keep its task alive either."""
    first = new_book()
    agent = agent_of(blocker, "blocking")
    first.start(agent, "hi", run_id="r")
    assert blocker.started.wait(20)
    first.close()
    blocker.blocks = False
    second = new_book()
    second.register(agent)
    assert second.get("r").wait(20) == "done"
    blocker.release.set()
    assert len(blocker.starts) == 2


def test_closing_a_book_frees_a_thread_that_waits_for_a_run(new_book, blocker):
    book = new_book()
    run = book.start(agent_of(blocker, "awaiting"), "hi")
    assert blocker.started.wait(20)
    caught = []

    def wait():
        try:
            run.wait()
        except UsageError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    book.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert "closed" in str(caught[0])


@pytest.mark.anyio
async def test_closing_a_book_does_not_look_like_a_cancellation_to_who_awaits_a_run(new_book, blocker):
    book = new_book()
    run = book.start(agent_of(blocker, "awaiting"), "hi")
    assert await asyncio.to_thread(blocker.started.wait, 20)

    async def wait():
        return await run

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.to_thread(book.close)
    with pytest.raises(UsageError, match="closed"):
        await waiting
