"""Tools and models that raise what no library expects, and holders that do not let go."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

from agentbook import Agent, RunCancelledError, RunFailed, ScriptedModel, ToolCall, ValueNotJournalable, tool
from agentbook.protocol.holder import Holder, ask_holder

pytestmark = pytest.mark.live

RAISED = [SystemExit, KeyboardInterrupt, GeneratorExit, type("Mine", (BaseException,), {})]


def agent_with(name, raises):
    return Agent(name, model=ScriptedModel([ToolCall(raises.name), "I saw an error."]), tools=[raises])


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_what_a_tool_raises_is_its_result_and_other_runs_go_on(book, kind, plain):
    def in_thread():
        raise kind("enough")

    async def on_loop():
        raise kind("enough")

    raises = tool(replay="unsafe", name="raises")(in_thread if plain else on_loop)
    run = book.start(agent_with("breaks", raises), "go", run_id="breaks")
    assert run.wait(20) == "I saw an error."
    (result,) = [record for record in run.journal() if record.kind == "tool.result"]
    assert result.error.type == kind.__name__
    assert book.start(Agent("other", model=ScriptedModel(["fine"])), "go").wait(20) == "fine"


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_what_a_model_raises_fails_the_run_and_other_runs_go_on(book, kind):
    async def model(request):
        raise kind("enough")

    with pytest.raises(RunFailed, match=kind.__name__):
        book.start(Agent("breaks", model=model), "go", run_id="breaks").wait(20)
    assert book.start(Agent("other", model=ScriptedModel(["fine"])), "go").wait(20) == "fine"


def test_an_error_whose_text_cannot_be_made_is_still_a_result(book):
    class Broken(Exception):
        def __str__(self):
            raise ValueError("no text")

    @tool(replay="unsafe")
    async def raises():
        raise Broken

    run = book.start(agent_with("breaks", raises), "go", run_id="breaks")
    assert run.wait(20) == "I saw an error."
    (result,) = [record for record in run.journal() if record.kind == "tool.result"]
    assert (result.error.type, result.error.message) == ("Broken", "its text cannot be made: ValueError")


def test_a_models_number_that_json_has_no_form_for_does_not_break_the_next_turn(book):
    @tool(replay="safe")
    async def raises(x: float) -> bool:
        return x != x

    agent = Agent("nan", model=ScriptedModel([ToolCall("raises", {"x": float("nan")}), "done"]), tools=[raises])
    run = book.start(agent, "go")
    assert run.wait(20) == "done"
    (result,) = [record for record in run.journal() if record.kind == "tool.result"]
    assert result.output is True  # NaN is what the tool saw


def test_plain_tools_that_wait_do_not_keep_others_from_starting(book):
    gate = threading.Barrier(40, timeout=20)

    @tool(replay="safe")
    def meet() -> bool:
        gate.wait()
        return True

    model = ScriptedModel([[ToolCall("meet") for _ in range(40)], "met"])
    assert book.start(Agent("crowd", model=model, tools=[meet]), "go").wait(20) == "met"


def test_a_holder_that_was_fenced_does_not_pass_for_a_live_one(new_book):
    running, release = threading.Event(), threading.Event()

    async def model(request):
        running.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return "late"

    stubborn = new_book(concurrency=1)
    stubborn.start(Agent("clerk", model=model), "go", run_id="r")
    assert running.wait(20)
    holding = threading.Event()

    async def successor(request):
        holding.set()
        await asyncio.to_thread(release.wait, 40)
        return "answered"

    second = new_book()
    second.register(Agent("clerk", model=successor))
    run = second.attach("r", force=True)
    assert holding.wait(20)
    newest = [record.claim for record in run.journal() if record.kind == "claim"][-1]
    end, alone = time.monotonic() + 15, 0
    while alone < 20:
        answer = second.service.call(ask_holder, second.connection, "r", "agent")
        alone = alone + 1 if isinstance(answer, Holder) and answer.claim == newest else 0
        assert time.monotonic() < end, "the fenced holder still answers for the run"
        time.sleep(0.02)
    release.set()
    assert run.wait(20) == "answered"


def test_a_worker_whose_loop_is_blocked_does_not_keep_new_runs_from_others(new_book):
    blocking, release = threading.Event(), threading.Event()

    async def model(request):
        if request.messages[0].content == "block":
            blocking.set()
            release.wait(40)
        return "done"

    clerk = Agent("clerk", model=model)
    first = new_book()
    stuck = first.start(clerk, "block", run_id="stuck")
    assert blocking.wait(20)
    second = new_book()
    second.register(Agent("clerk", model=clerk.model))
    runs = [second.start(clerk, "go", run_id=f"r{number}") for number in range(10)]
    try:
        assert [run.wait(20) for run in runs] == ["done"] * 10
    finally:
        release.set()
    assert stuck.wait(20) == "done"


def test_s8_secrets_are_in_no_title_label_or_reason(book):
    book.redact("hunter2-hunter2", "PASSWORD")
    run = book.start(
        Agent("clerk", model=ScriptedModel(["done"])),
        "go",
        run_id="r",
        title="with hunter2-hunter2",
        labels={"hunter2-hunter2": "x hunter2-hunter2"},
    )
    run.wait(20)
    assert "hunter2" not in str(run.info)
    assert run.info.title == "with «redacted: PASSWORD»"

    waits = threading.Event()

    async def model(request):
        waits.set()
        await asyncio.Event().wait()

    cut = book.start(Agent("waiter", model=model), "go", run_id="cut")
    assert waits.wait(20)
    cut.cancel("it said hunter2-hunter2")
    with pytest.raises(RunCancelledError, match="it said «redacted: PASSWORD»"):
        cut.wait(20)


def test_a_title_that_no_record_can_carry_is_refused_by_name(book):
    with pytest.raises(ValueNotJournalable, match="title"):
        book.start(Agent("clerk", model=ScriptedModel(["done"])), "go", title="\ud800")
    assert book.runs() == []
