"""A book from a script, a thread and an async test: starting, attaching, listing; never on its own loops."""

import asyncio
import gc
import threading
from pathlib import Path

import pytest

import agentbook
from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.book import Book, Run
from agentbook.errors import ConfigError, RunConflict, RunNotFound, UsageError, ValueNotJournalable
from agentbook.worker.registry import registration_of

pytestmark = pytest.mark.live

HELLO = "Hello."


def greeter(*replies, **more):
    return Agent("greeter", model=ScriptedModel(replies or [HELLO]), **more)


def test_a_script_starts_a_run_and_waits(book):
    run = book.start(greeter(), "hi")
    assert run.wait(20) == HELLO
    assert run.status == "completed"
    result = run.result()
    assert (result.output, result.turns, result.ran, result.replayed) == (HELLO, 1, 1, 0)


def test_a_thread_starts_a_run_and_waits(book):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(book.start(greeter(), "hi").wait(20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [HELLO] * 8


def test_an_agent_is_registered_twice_at_once_and_served_once(book):
    async def both():
        await asyncio.gather(*(book.worker.register(registration_of(greeter())) for _ in range(2)))
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("pull ")]

    assert book.service.submit(both()).result(10) == ["pull w-greeter"]
    assert book.status()["types"] == ["greeter"]
    assert book.start(greeter(), "hi").wait(20) == HELLO


@pytest.mark.anyio
async def test_an_async_function_awaits_runs(book):
    runs = [book.start(greeter(), number) for number in range(3)]
    assert await asyncio.gather(*runs) == [HELLO] * 3
    assert await runs[0] == HELLO


@pytest.mark.anyio
async def test_a_book_is_an_async_context_manager(agentbook_settings, new_book):
    async with agentbook.open(settings=agentbook_settings) as book:
        assert await book.start(greeter(), "hi", run_id="r") == HELLO
    assert new_book().get("r").status == "completed"


def test_what_an_abandoned_wait_leaves_goes_on(book):
    gate = threading.Event()

    @tool(replay="safe")
    def hold() -> str:
        """Wait for the test."""
        assert gate.wait(20)
        return "held"

    run = book.start(greeter(ToolCall("hold"), HELLO, tools=[hold]), "hi")
    with pytest.raises(TimeoutError, match="it goes on"):
        run.wait(0.05)
    gate.set()
    assert run.wait(20) == HELLO


class Calls:
    """Every public synchronous call of a book and a run, and whether it needs one of the book's loops."""

    def __init__(self, book, run):
        self.book = {
            "start": lambda: book.start(greeter(), "other", run_id="other"),
            "register": lambda: book.register(greeter()),
            "attach": lambda: book.attach(run.id),
            "get": lambda: book.get(run.id),
            "runs": book.runs,
            "purge": lambda: book.purge(run.id),
            "close": book.close,
        }
        self.run = {
            "wait": run.wait,
            "result": run.result,
            "cancel": run.cancel,
            "resume": run.resume,
            "retry": run.retry,
            "resolve": lambda: run.resolve("r.agent.0.1", value="done"),
            "journal": run.journal,
            "check": run.check,
            "graph": run.graph,
            "frame": run.frame,
            "export": lambda: run.export(Path(book.settings.dir) / "run.jsonl"),
            "timeline": lambda: run.timeline,
            "info": lambda: run.info,
            "status": lambda: run.status,
        }
        self.all = {"open": lambda: agentbook.open(settings=book.settings), **self.book, **self.run}

    async def outcomes(self):
        """What each call raises on the loop that runs this."""
        found = {}
        for name, call in self.all.items():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
                found[name] = error
            else:
                found[name] = None
        return found


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_table_of_calls_is_complete(book):
    calls = Calls(book, book.start(greeter(), "hi"))
    # They tell what this process knows, and wait for nothing.
    immediate = {"status", "embedded", "redact"}
    assert public(Book) - immediate == set(calls.book)
    assert public(Run) == set(calls.run)


@pytest.mark.parametrize("loop", ["user", "service"])
def test_n1_a_synchronous_call_on_one_of_the_books_loops_raises_at_once_and_says_what_to_await(book, loop):
    run = book.start(greeter(), "hi", run_id="r")
    run.wait(20)
    calls = Calls(book, run)
    outcomes = getattr(book, loop).submit(calls.outcomes()).result(10)
    assert {name for name, error in outcomes.items() if not isinstance(error, UsageError)} == set()
    assert {name for name, error in outcomes.items() if "await asyncio.to_thread(" not in str(error)} == set()
    assert [info.id for info in book.runs()] == ["r"]


def test_n1_a_tool_that_calls_its_book_gets_the_error_and_a_plain_one_may_call_it(book):
    @tool(replay="safe")
    async def wrong() -> list[str]:
        """Call the book on its own loop."""
        return [info.id for info in book.runs()]

    @tool(replay="safe")
    def right() -> list[str]:
        """Call the book from a thread."""
        return [info.id for info in book.runs()]

    @tool(replay="safe")
    async def awaited() -> list[str]:
        """Call the book from a thread, and await it."""
        return [info.id for info in await asyncio.to_thread(book.runs)]

    model = ScriptedModel([[ToolCall("wrong"), ToolCall("right"), ToolCall("awaited")], HELLO])
    agent = Agent("greeter", model=model, tools=[wrong, right, awaited])
    assert book.start(agent, "hi", run_id="r").wait(20) == HELLO
    first, second, third = model.asked()[1].messages[-3:]
    assert first.error is not None
    assert first.error.type == "UsageError"
    assert (second.output, third.output) == (["r"], ["r"])


def test_a_tool_awaits_another_run(book):
    @tool(replay="safe")
    async def delegate() -> object:
        """Have another agent answer."""
        other = await asyncio.to_thread(book.start, Agent("other", model=ScriptedModel(["from the other"])), "hi")
        return await other

    agent = greeter(ToolCall("delegate"), lambda request: request.messages[-1].output, tools=[delegate])
    assert book.start(agent, "hi").wait(20) == "from the other"


def test_start_is_idempotent_on_the_id(book):
    model = ScriptedModel([HELLO])
    agent = Agent("greeter", model=model)
    first = book.start(agent, {"b": 1, "a": [2]}, run_id="r")
    second = book.start(agent, {"a": [2], "b": 1}, run_id="r")
    assert (first.wait(20), second.wait(20)) == (HELLO, HELLO)
    assert model.requests == 1
    assert len(book.runs()) == 1


def test_a_finished_run_started_again_answers_from_the_journal_and_asks_no_model(book, new_book):
    book.start(greeter(), "hi", run_id="r").wait(20)
    records = book.get("r").journal()
    model = ScriptedModel(["something else"])
    again = new_book().start(Agent("greeter", model=model), "hi", run_id="r")
    assert again.wait(20) == HELLO
    assert model.requests == 0
    assert again.journal() == records


@pytest.mark.parametrize(
    ("what", "given"),
    [(greeter(), "other"), (Agent("another", model=ScriptedModel([HELLO])), "hi")],
    ids=["input", "agent"],
)
def test_an_id_taken_by_another_run_is_a_conflict_that_shows_both(book, what, given):
    book.start(greeter(), "hi", run_id="r").wait(20)
    with pytest.raises(RunConflict, match=r"it is agent greeter.*\n.*this is agent") as caught:
        book.start(what, given, run_id="r")
    assert str(caught.value).count("input ") == 3
    assert len(book.runs()) == 1


@pytest.mark.parametrize("wrong", ["", "a b", "a.b", "x" * 65, "a~b", "*"])
def test_an_id_that_cannot_be_one_is_refused_before_anything_is_written(book, wrong):
    with pytest.raises(ConfigError):
        book.start(greeter(), "hi", run_id=wrong)
    assert book.runs() == []


def test_an_input_without_a_stored_form_is_refused_before_anything_is_written(book):
    with pytest.raises(ValueNotJournalable, match=r"input\.lock"):
        book.start(greeter(), {"lock": threading.Lock()})
    assert book.runs() == []


@pytest.mark.parametrize("act", ["attach", "get"])
def test_a_run_that_does_not_exist_is_named(book, act):
    with pytest.raises(RunNotFound, match="nobody"):
        getattr(book, act)("nobody")


def test_only_agents_are_registered(book):
    async def model(request):
        return HELLO

    with pytest.raises(ConfigError, match="Agent"):
        book.register(model)


def test_runs_are_listed_newest_first_and_found_by_label_and_status(book):
    book.start(greeter(), 1, run_id="one", labels={"team": "red", "hot": ""}, title="The first").wait(20)
    book.start(greeter(), 2, run_id="two", labels={"team": "blue"}).wait(20)
    halting = Agent("refuser", model=ScriptedModel([RuntimeError("no")]))
    with pytest.raises(agentbook.RunFailed):
        book.start(halting, 3, run_id="three").wait(20)
    assert [info.id for info in book.runs()] == ["three", "two", "one"]
    assert [info.id for info in book.runs(limit=1)] == ["three"]
    assert [info.id for info in book.runs(status="completed")] == ["two", "one"]
    assert [info.id for info in book.runs(label="team=red")] == ["one"]
    assert [info.id for info in book.runs(label="team")] == ["two", "one"]
    assert [info.id for info in book.runs(label="team=green")] == []
    one = book.runs(label="hot")[0]
    assert (one.title, one.type, one.turns, dict(one.labels)["team"]) == ("The first", "greeter", 1, "red")
    assert "no" in (book.runs(status="failed")[0].cause or "")


def test_several_books_in_one_process_share_the_work_and_see_the_same_runs(book, new_book):
    other = new_book()
    runs = [where.start(greeter(), n, run_id=f"r{n}") for n, where in enumerate([book, other] * 5)]
    assert [run.wait(20) for run in runs] == [HELLO] * 10
    assert {info.id for info in book.runs()} == {info.id for info in other.runs()} == {f"r{n}" for n in range(10)}


def test_books_of_different_namespaces_do_not_see_each_other(book, agentbook_settings):
    book.start(greeter(), "hi", run_id="r").wait(20)
    with agentbook.open(settings=agentbook_settings, namespace=f"{agentbook_settings.namespace}x") as elsewhere:
        assert elsewhere.runs() == []
        elsewhere.start(greeter(), "another input", run_id="r").wait(20)
        assert elsewhere.get("r").check()
    assert len(book.runs()) == 1


def test_current_is_the_book_opened_last_that_is_still_open(book, new_book):
    assert agentbook.current() is book
    other = new_book()
    assert agentbook.current() is other
    other.close()
    assert agentbook.current() is book
    book.close()
    with pytest.raises(UsageError, match="no book is open"):
        agentbook.current()


def test_a_closed_book_says_so_and_closing_twice_is_fine(book):
    run = book.start(greeter(), "hi")
    run.wait(20)
    book.close()
    book.close()
    for call in (book.runs, book.status, lambda: book.start(greeter(), "hi"), lambda: run.status, run.wait):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_status_tells_what_this_process_does(book):
    gate = threading.Event()
    reached = threading.Event()

    @tool(replay="safe")
    def hold() -> str:
        """Wait for the test."""
        reached.set()
        assert gate.wait(20)
        return "held"

    run = book.start(greeter(ToolCall("hold"), HELLO, tools=[hold]), "hi", run_id="r")
    assert reached.wait(20)
    status = book.status()
    assert (status["connected"], status["engine"], status["worker"]) == (True, "healthy", "healthy")
    assert (status["types"], status["holding"]) == (["greeter"], ["r"])
    gate.set()
    run.wait(20)


def test_a_book_that_nobody_keeps_a_name_for_is_still_the_current_one(agentbook_settings):
    agentbook.open(settings=agentbook_settings)
    gc.collect()
    book = agentbook.current()
    assert book.status()["engine"] in ("healthy", "starting")
    book.close()
    with pytest.raises(UsageError, match="no book is open"):
        agentbook.current()
