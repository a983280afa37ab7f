"""JOURNAL.md, Resolution: calls that halt their run, and people who say how they ended."""

import asyncio
import dataclasses
import threading
from datetime import UTC, datetime, timedelta

import pytest
from live.journal_steps import Step, outcome, through_proxy
from typer.testing import CliRunner

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.authoring import Tool
from agentbook.cli.app import app
from agentbook.errors import (
    AlreadyResolved,
    Committed,
    ConfigError,
    Fenced,
    HaltInFlight,
    HaltTooYoung,
    NotHalted,
    OutcomeUnknown,
    ResumeHalt,
    RunEnded,
    RunHalted,
    RunNotFound,
    UsageError,
    ValueNotJournalable,
)
from agentbook.journal.calls import Execution
from agentbook.journal.load import FoldCache, load
from agentbook.journal.records import Claim, ErrorInfo, Pause, Resolution, ToolIntent, ToolResult
from agentbook.journal.redact import Redactor
from agentbook.journal.resolve import Answer, resolve

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
    assert "run.resolve('r.agent.0.1'" in str(caught.value)
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


async def halted(step, *ends, attempt=1, dispatch=1):
    """A step that halts in its first call. What later holders start goes to the returned charges too."""
    charges = Charges(*(ends or [OutcomeUnknown("?")]))
    assert isinstance(await outcome(charges.call(await step.open(attempt=attempt, dispatch=dispatch))), ResumeHalt)
    return charges


def subject_of(step, number=0):
    return f"{step.run}.agent.0.{number}"


def say(step, answer, subject=None, connection=None, **more):
    place = (step.run, "agent")
    return resolve(
        connection or step.connection, place, subject or subject_of(step), answer,
        deadline=10, redactor=Redactor(), **more,
    )  # fmt: skip


HAPPENED = Answer("happened", "ann", value="receipt 7", evidence="the ledger")
FAILED = Answer("failed", "ann", error=ErrorInfo(type="Declined", message="no funds"))
NOT = Answer("did_not_happen", "ann")


@pytest.mark.anyio
async def test_a_resolution_is_one_record_with_a_claim_of_its_own_at_the_iteration_and_attempt_of_the_pause(step):
    await halted(step, attempt=2, dispatch=5)
    record = await say(step, HAPPENED)
    records = await step.records()
    assert records[-1] == record
    pause, intent = records[-2], records[1]
    assert (record.of, record.outcome, record.value, record.by) == (intent.seq, "happened", "receipt 7", "ann")
    assert record.evidence == "the ledger"
    assert (record.iteration, record.attempt, record.n) == (pause.iteration, pause.attempt, 0)
    assert record.claim not in {earlier.claim for earlier in records[:-1]}


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [HAPPENED, FAILED])
async def test_what_was_said_is_the_calls_result_and_nothing_runs(step, answer):
    charges = await halted(step)
    await say(step, answer)
    result = await charges.call(await step.open(dispatch=2))
    assert result.how == "resolved"
    assert (result.output, result.error) == (answer.value, answer.error)
    assert (await charges.call(await step.open(dispatch=2, delivery=2))).how == "replayed"
    assert len(charges.started) == 1


@pytest.mark.anyio
async def test_what_did_not_happen_runs_again_under_a_new_intent_and_the_same_key(step):
    charges = await halted(step)
    await say(step, NOT)
    result = await charges.call(await step.open(dispatch=2))
    assert result.value() == "charged"
    assert charges.started == [subject_of(step)] * 2
    first, second = [record for record in await step.records() if isinstance(record, ToolIntent)]
    assert first.key == second.key


@pytest.mark.anyio
@pytest.mark.parametrize(("answer", "starts"), [(HAPPENED, 1), (FAILED, 1), (NOT, 2)])
async def test_a_new_attempt_after_a_halt_at_its_claim_honours_what_was_said(step, answer, starts):
    charges = Charges(DIES())
    await outcome(charges.call(await step.open()))
    assert isinstance(await outcome(step.open(attempt=2, dispatch=2, halting={"charge"})), ResumeHalt)
    await say(step, answer)
    journal = await step.open(attempt=2, dispatch=3, halting={"charge"})
    # The model asks for something else first: the honoured call is found by what it is, not where.
    await journal.tool(ToolCall("search"), "safe", Charges().run)
    result = await charges.call(journal)
    assert len(charges.started) == starts
    assert set(charges.started) == {subject_of(step)}
    if answer is not NOT:
        assert (result.how, result.output, result.error) == ("reused", answer.value, answer.error)


@pytest.mark.anyio
async def test_the_dispatch_that_halted_does_not_go_on_after_the_resolution(step):
    charges = await halted(step)
    await say(step, HAPPENED)
    assert isinstance(await outcome(step.open(delivery=2)), Committed)
    assert (await charges.call(await step.open(dispatch=2))).how == "resolved"


@pytest.mark.anyio
async def test_a_resolution_needs_the_halt_at_the_tail(step):
    charges = Charges(DIES())
    await outcome(charges.call(await step.open()))
    with pytest.raises(HaltInFlight, match="kernel 1"):
        await say(step, HAPPENED)
    assert isinstance(await outcome(charges.call(await step.open(dispatch=2))), ResumeHalt)
    await step.open(dispatch=3, worker="kernel 3")
    with pytest.raises(HaltInFlight, match="kernel 3"):
        await say(step, HAPPENED)
    assert "resolution" not in await step.kinds()


@pytest.mark.anyio
async def test_what_is_not_halted_is_named(step):
    journal = await step.open()
    with pytest.raises(NotHalted, match=r"no halted call"):
        await say(step, HAPPENED)
    charges = Charges("charged", OutcomeUnknown("?"))
    await charges.call(journal, 1)
    assert isinstance(await outcome(charges.call(journal, 2)), ResumeHalt)
    with pytest.raises(NotHalted, match=r"has its result, record .*Halted is: .*\.agent\.0\.1"):
        await say(step, HAPPENED)
    with pytest.raises(NotHalted, match=r"no halted call"):
        await say(step, HAPPENED, subject_of(step, 7))
    assert isinstance(await say(step, HAPPENED, subject_of(step, 1)), Resolution)


@pytest.mark.anyio
async def test_a_parked_or_waiting_run_is_not_halted_for_a_call(step):
    charges = Charges(DIES())
    journal = await step.open()
    await outcome(charges.call(journal))
    await journal.pause("parked", cause="other code")
    with pytest.raises(HaltInFlight):
        await say(step, HAPPENED)


@pytest.mark.anyio
async def test_the_first_answer_stands_the_same_again_is_fine(step):
    charges = await halted(step)
    first = await say(step, HAPPENED)
    again = dataclasses.replace(HAPPENED, by="bob", evidence=None)
    # Its event may have been lost: the same record comes back to be published again.
    assert await say(step, again) == first
    for other in (FAILED, NOT, dataclasses.replace(HAPPENED, value="receipt 8")):
        with pytest.raises(AlreadyResolved, match=r'ann said happened: "receipt 7"'):
            await say(step, other)
    assert [kind for kind in await step.kinds() if kind == "resolution"] == ["resolution"]

    journal = await step.open(dispatch=2)
    assert await say(step, again) is None
    await charges.call(journal)
    assert await say(step, again) is None
    with pytest.raises(AlreadyResolved):
        await say(step, NOT)
    await journal.commit("complete", state=None)
    assert await say(step, again, ended="completed") is None
    with pytest.raises(AlreadyResolved):
        await say(step, NOT, ended="completed")


@pytest.mark.anyio
async def test_an_ended_run_takes_no_answer(step):
    await halted(step)
    with pytest.raises(RunEnded, match="cancelled"):
        await say(step, HAPPENED, ended="cancelled")
    assert "resolution" not in await step.kinds()


@pytest.mark.anyio
async def test_of_several_halted_calls_only_the_last_resolution_sets_the_run_going(step):
    charges = Charges(OutcomeUnknown("?"), OutcomeUnknown("?"))
    executions = [charges.execution(1), charges.execution(2)]
    await outcome((await step.open()).tools(executions))
    assert await say(step, FAILED, subject_of(step, 1)) is None
    assert await say(step, FAILED, subject_of(step, 1)) is None
    last = await say(step, HAPPENED)
    assert await say(step, FAILED, subject_of(step, 1)) == last
    results = await (await step.open(dispatch=2)).tools(executions)
    assert [result.how for result in results] == ["resolved", "resolved"]
    assert [result.output for result in results] == ["receipt 7", None]


@pytest.mark.anyio
async def test_of_twenty_different_answers_at_once_one_stands(step):
    await halted(step)
    answers = [Answer("happened", f"p{n}", value=n) for n in range(20)]
    said = await asyncio.gather(*(outcome(say(step, answer)) for answer in answers))
    stands = [record for record in said if isinstance(record, Resolution)]
    assert len(stands) == 1
    others = [error for error in said if isinstance(error, AlreadyResolved)]
    assert len(others) == 19
    assert {error.by for error in others} == {stands[0].by}


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [True, False])
async def test_a_resolution_whose_ack_is_lost_is_its_own(step, server, settings, cut):
    await halted(step)
    async with through_proxy(server, settings) as (proxy, lossy):
        proxy.lose_next_ack(cut=cut)
        assert isinstance(await say(step, HAPPENED, connection=lossy), Resolution)
        assert proxy.lost == 1
    assert (await step.kinds()).count("resolution") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("stamped", [0, -5, 3600, "soon", ""])
async def test_a_call_too_young_or_of_unknown_age_is_refused(step, stamped, monkeypatch):
    at = stamped
    if not isinstance(stamped, str):
        at = (datetime.now(UTC) + timedelta(seconds=stamped)).isoformat()
    monkeypatch.setattr("agentbook.journal.append.now", lambda: at)
    await halted(step)
    with pytest.raises(HaltTooYoung, match="min_age is 60 s") as young:
        await say(step, HAPPENED, min_age=60)
    assert young.value.age is None or young.value.age < 60
    assert "resolution" not in await step.kinds()
    if stamped in (3600, "soon"):
        with pytest.raises(HaltTooYoung):
            await say(step, HAPPENED, min_age=0)
    if stamped == -5:
        assert isinstance(await say(step, HAPPENED, min_age=4), Resolution)


@pytest.mark.anyio
async def test_a_writer_that_had_read_the_halt_is_fenced_by_the_resolution(step):
    await halted(step)
    late = step.writer("b" * 32)
    late.fold = await load(step.connection, step.run, "agent", None, FoldCache())
    await say(step, HAPPENED)
    with pytest.raises(Fenced, match="a resolution by ann"):
        await late.append(Claim(worker="w", dispatch=9, delivery=1, code="c", prev=None, head=late.fold.head))


def charging_run(book, charges, run_id="r"):
    return book.start(Agent("clerk", model=scripted("done"), tools=[charges.as_tool()]), "go", run_id=run_id)


def reply_of(run):
    """What the model was told of the first tool call."""
    state = next(record.state for record in run.journal() if record.kind == "commit")
    return next(message for message in state["messages"] if message["role"] == "tool")


@pytest.mark.parametrize(
    ("said", "told", "starts"),
    [
        ({"value": {"receipt": 7}}, {"output": {"receipt": 7}}, 1),
        ({"value": None}, {"output": None}, 1),
        ({"error": "no funds"}, {"error": {"type": "Failed", "message": "no funds", "traceback": None}}, 1),
        ({"error": ValueError("no")}, {"error": {"type": "ValueError", "message": "no", "traceback": None}}, 1),
        ({"did_not_happen": True}, {"output": "charged"}, 2),
    ],
)
def test_a_run_goes_on_with_what_was_said(book, said, told, starts):
    charges = Charges(OutcomeUnknown("?"))
    run = charging_run(book, charges)
    with pytest.raises(RunHalted) as caught:
        run.wait(20)
    run.resolve(caught.value.halt.subject, **said, evidence="asked", by="ann")
    assert run.wait(20) == "done"
    assert charges.started == ["r.agent.0.1"] * starts
    reply = reply_of(run)
    assert {name: reply[name] for name in told} == told
    assert {record.attempt for record in run.journal()} == {1}
    (resolution,) = [record for record in run.journal() if record.kind == "resolution"]
    assert (resolution.by, resolution.evidence) == ("ann", "asked")


def test_exactly_one_thing_is_said(book):
    run = charging_run(book, Charges(OutcomeUnknown("?")))
    with pytest.raises(RunHalted):
        run.wait(20)
    for said in ({}, {"value": 1, "error": "x"}, {"value": None, "did_not_happen": True}):
        with pytest.raises(UsageError, match="exactly one"):
            run.resolve("r.agent.0.1", **said)
    with pytest.raises(ValueNotJournalable, match="value"):
        run.resolve("r.agent.0.1", value=object())
    for wrong in ("r", "x.agent.0.1", "r.other.0.1", ""):
        with pytest.raises(NotHalted, match=r"r\.agent\.0\.1"):
            run.resolve(wrong, value=1)
    assert "resolution" not in [record.kind for record in run.journal()]


def test_a_cancelled_or_unknown_run_takes_no_answer(book):
    run = charging_run(book, Charges(OutcomeUnknown("?")))
    with pytest.raises(RunHalted):
        run.wait(20)
    run.cancel()
    with pytest.raises(RunEnded):
        run.resolve("r.agent.0.1", value=1)
    with pytest.raises(RunNotFound):
        type(run)(book, "nobody").resolve("nobody.agent.0.1", value=1)


def test_f10_two_halts_of_one_attempt_within_seconds_are_both_processed(book):
    charges = Charges(OutcomeUnknown("one"), OutcomeUnknown("two"), OutcomeUnknown("three"))
    run = charging_run(book, charges)
    for words in ("one", "two", "three"):
        with pytest.raises(RunHalted, match=words) as caught:
            run.wait(20)
        run.resolve(caught.value.halt.subject, did_not_happen=True)
    assert run.wait(20) == "done"
    assert charges.started == ["r.agent.0.1"] * 4
    records = run.journal()
    assert [record.kind for record in records].count("pause") == 3
    assert {record.attempt for record in records} == {1}


def test_a_resolution_whose_writer_died_before_its_event_is_finished_by_the_same_answer(book):
    run = charging_run(book, Charges(OutcomeUnknown("?")))
    with pytest.raises(RunHalted):
        run.wait(20)
    answer = Answer("happened", "ann", value="receipt 7")
    place, redactor = ("r", "agent"), Redactor()
    book.service.call(resolve, book.connection, place, "r.agent.0.1", answer, deadline=5, redactor=redactor)
    assert run.status == "halted"
    run.resolve("r.agent.0.1", value="receipt 7")
    assert run.wait(20) == "done"
    assert reply_of(run)["output"] == "receipt 7"


def test_retrying_a_halted_run_halts_again_until_somebody_says_how_the_call_ended(book):
    charges = Charges(OutcomeUnknown("?"))
    run = charging_run(book, charges)
    with pytest.raises(RunHalted):
        run.wait(20)
    run.retry()
    with pytest.raises(RunHalted) as caught:
        run.wait(20)
    assert caught.value.halt.subject == "r.agent.0.1"
    assert "died" in caught.value.halt.cause
    run.resolve("r.agent.0.1", value="receipt 7")
    assert run.wait(20) == "done"
    assert len(charges.started) == 1
    assert reply_of(run)["output"] == "receipt 7"


def test_a_large_value_that_a_person_gives_reaches_the_model(book):
    run = charging_run(book, Charges(OutcomeUnknown("?")))
    with pytest.raises(RunHalted):
        run.wait(20)
    run.resolve("r.agent.0.1", value="x" * 600_000)
    assert run.wait(20) == "done"
    run.resolve("r.agent.0.1", value="x" * 600_000)
    with pytest.raises(AlreadyResolved):
        run.resolve("r.agent.0.1", value="y" * 600_000)


def test_the_command_says_how_a_call_ended(book, monkeypatch):
    run = charging_run(book, Charges(OutcomeUnknown("?")))
    with pytest.raises(RunHalted):
        run.wait(20)
    monkeypatch.setenv("AGENTBOOK_NAMESPACE", book.settings.namespace)
    monkeypatch.setenv("AGENTBOOK_DURABILITY", "process")
    command = ["resolve", "r", "r.agent.0.1", "--dir", str(book.settings.dir)]
    with pytest.raises(ConfigError, match="JSON"):
        CliRunner().invoke(app, [*command, "--value", "receipt"], catch_exceptions=False)
    said = CliRunner().invoke(app, [*command, "--value", '{"receipt": 7}', "--by", "ann", "--evidence", "asked"])
    assert (said.exit_code, said.stdout) == (0, "run r: r.agent.0.1 is resolved\n")
    assert run.wait(20) == "done"
    assert reply_of(run)["output"] == {"receipt": 7}
