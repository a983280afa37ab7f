"""JOURNAL.md, Resolution: calls that halt their run, and people who say how they ended."""

import asyncio
import threading

import pytest
from live.journal_steps import Step, outcome

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.authoring import Tool
from agentbook.errors import ConfigError, OutcomeUnknown, ResumeHalt, RunHalted
from agentbook.journal.calls import Execution
from agentbook.journal.records import Claim, Pause, Resolution, ToolIntent, ToolResult

pytestmark = pytest.mark.live


class Charges:
    """A tool that halts; each start does what the list says next.

    Attributes:
        started: the keys it was started with.
    """

    def __init__(self, *ends):
        self.ends = list(ends)
        self.started = []

    async def run(self, call):
        self.started.append(call.key)
        end = self.ends.pop(0) if self.ends else "charged"
        if isinstance(end, BaseException):
            raise end
        return end

    def call(self, journal, cents=100):
        return journal.tool(ToolCall("charge", {"cents": cents}), "unsafe", self.run, on_unknown="halt")

    def execution(self, cents=100):
        return Execution(ToolCall("charge", {"cents": cents}), "unsafe", self.run, "halt")

    def as_tool(self):
        async def charge(cents: int, *, call: ToolCall) -> str:
            return await self.run(call)

        return tool(replay="unsafe", on_unknown="halt")(charge)


DIES = asyncio.CancelledError


@pytest.fixture
async def step(connection):
    step = Step(connection)
    yield step
    await step.audit()


def test_what_a_tool_does_with_an_unknown_outcome_is_one_of_two():
    with pytest.raises(ConfigError, match=r"tell_model.*halt"):
        tool(replay="unsafe", name="charge", on_unknown="stop")(lambda: None)


def test_a_tool_keeps_what_it_declares_when_it_travels():
    def charge() -> None: ...

    declared = tool(replay="unsafe", on_unknown="halt")(charge)
    make, arguments = declared.__reduce__()
    again = make(*arguments)
    assert isinstance(again, Tool)
    assert again.on_unknown == "halt"


@pytest.mark.anyio
async def test_an_unknown_call_of_a_halting_tool_pauses_as_the_holders_last_record_and_raises(step):
    charges = Charges(DIES())
    await outcome(charges.call(await step.open()))
    journal = await step.open(delivery=2)
    with pytest.raises(ResumeHalt) as caught:
        await charges.call(journal)
    records = await step.records()
    intent = next(record for record in records if isinstance(record, ToolIntent))
    pause = records[-1]
    assert isinstance(pause, Pause)
    assert (pause.reason, pause.subjects, pause.head) == ("halt", [intent.key], records[0].seq)
    halt = caught.value
    assert (halt.run, halt.subject, halt.name) == (step.run, intent.key, "charge")
    assert (halt.input, halt.attempted_at, halt.partial) == ({"cents": 100}, intent.at, ())
    assert "died" in halt.cause
    assert len(charges.started) == 1


@pytest.mark.anyio
async def test_a_halt_is_sticky_and_nothing_follows_it(step):
    charges = Charges(DIES())
    await outcome(charges.call(await step.open()))
    journal = await step.open(delivery=2)
    halt = await outcome(charges.call(journal))
    before = await step.records()
    for use in (charges.call(journal), journal.commit("complete", state=None), journal.pause("requested")):
        assert await outcome(use) is halt
    assert await step.records() == before


@pytest.mark.anyio
async def test_a_tool_that_says_it_does_not_know_halts_with_its_words_and_its_partials(step):
    async def unsure(call):
        await call.emit("sent")
        raise OutcomeUnknown("the bank did not\nanswer")

    journal = await step.open()
    halt = await outcome(journal.tool(ToolCall("charge"), "unsafe", unsure, on_unknown="halt"))
    assert isinstance(halt, ResumeHalt)
    assert (halt.cause, halt.partial) == ("the bank did not answer", ("sent",))
    assert await step.kinds() == ["claim", "tool.intent", "tool.partial", "pause"]


@pytest.mark.anyio
async def test_siblings_finish_first_and_one_pause_names_every_halted_call(step):
    charges = Charges(OutcomeUnknown("first"), OutcomeUnknown("second"))
    unknown = asyncio.Event()

    async def slow(call):
        await unknown.wait()
        return "found"

    async def also(call):
        try:
            return await charges.run(call)
        finally:
            if len(charges.started) == 2:
                unknown.set()

    executions = [
        Execution(ToolCall("charge", {"cents": 1}), "unsafe", also, "halt"),
        Execution(ToolCall("search"), "safe", slow),
        Execution(ToolCall("charge", {"cents": 2}), "unsafe", also, "halt"),
    ]
    halt = await outcome((await step.open()).tools(executions))
    assert isinstance(halt, ResumeHalt)
    records = await step.records()
    assert [record.kind for record in records[-2:]] == ["tool.result", "pause"]
    assert records[-1].subjects == [f"{step.run}.agent.0.0", f"{step.run}.agent.0.2"]
    assert halt.subject == f"{step.run}.agent.0.0"
    assert records[-1].cause.splitlines() == [
        f"charge may or may not have happened ({step.run}.agent.0.0): first",
        f"charge may or may not have happened ({step.run}.agent.0.2): second",
    ]


@pytest.mark.anyio
async def test_a_new_attempt_halts_at_its_claim_and_closes_the_rest(step):
    charges = Charges(DIES())

    async def dies(call):
        raise asyncio.CancelledError

    journal = await step.open()
    await outcome(journal.tools([charges.execution(), Execution(ToolCall("mail"), "unsafe", dies)]))
    halt = await outcome(step.open(attempt=2, dispatch=2, halting=frozenset({"charge"})))
    assert isinstance(halt, ResumeHalt)
    assert halt.subject == f"{step.run}.agent.0.0"
    claim, result, pause = (await step.records())[-3:]
    assert isinstance(claim, Claim)
    assert isinstance(result, ToolResult)
    assert result.position == 1
    assert (pause.reason, pause.subjects, pause.attempt) == ("halt", [halt.subject], 2)
    assert pause.seq == halt.seq


def scripted(*more):
    return ScriptedModel([ToolCall("charge", {"cents": 100}), *more])


def test_a_halted_run_says_what_a_person_has_to_say(book):
    charges = Charges(OutcomeUnknown("the bank did not answer"))
    run = book.start(Agent("clerk", model=scripted("done"), tools=[charges.as_tool()]), "go", run_id="r")
    with pytest.raises(RunHalted) as caught:
        run.wait(20)
    assert run.status == "halted"
    assert run.info.cause == "charge may or may not have happened (r.agent.0.1): the bank did not answer"
    assert caught.value.cause == run.info.cause
    halt = caught.value.halt
    assert (halt.run, halt.subject, halt.name, halt.input) == ("r", "r.agent.0.1", "charge", {"cents": 100})
    assert halt.cause == "the bank did not answer"
    assert len(charges.started) == 1


@pytest.mark.anyio
async def test_awaiting_a_halted_run_raises_the_halt(book):
    agent = Agent("clerk", model=scripted("done"), tools=[Charges(OutcomeUnknown("?")).as_tool()])
    run = await asyncio.to_thread(book.start, agent, "go")
    with pytest.raises(RunHalted) as caught:
        await run
    assert caught.value.halt.name == "charge"


def test_a_run_that_halts_leaves_no_task_and_resuming_it_halts_it_again(book):
    charges = Charges(OutcomeUnknown("?"))
    run = book.start(Agent("clerk", model=scripted("done"), tools=[charges.as_tool()]), "go", run_id="r")
    for pauses in (1, 2):
        with pytest.raises(RunHalted):
            run.wait(20)
        while sum(record.kind == "pause" for record in run.journal()) < pauses:
            threading.Event().wait(0.01)
        run.resume()
    assert len(charges.started) == 1
    assert {record.attempt for record in run.journal()} == {1}
    assert not any(isinstance(record, Resolution) for record in run.journal())
