"""JOURNAL.md, Purge: nothing of the run is left, and nothing of it comes back."""

import asyncio
import threading

import pytest
from engine_driver import eventually
from live.journal_steps import LIMITS, Step, outcome, through_proxy
from typer.testing import CliRunner

from agentbook import Agent, ScriptedModel, ToolCall, seams, tool
from agentbook.broker.connection import connect
from agentbook.broker.names import HISTORY, INPUTS, JOURNAL, MEMO, PAYLOADS, RUNS, TASKS
from agentbook.broker.outcomes import WrongLastSequence
from agentbook.broker.streams import stream_name
from agentbook.cli.app import app
from agentbook.errors import Fenced, RunConflict, RunEnded, RunNotFound, UsageError
from agentbook.journal.purge import purge
from agentbook.journal.records import Purged

pytestmark = pytest.mark.live


@pytest.fixture
def large():
    @tool(replay="safe")
    def fetch() -> str:
        return "secret" * 100_000

    return Agent("clerk", model=ScriptedModel([ToolCall("fetch"), "secret answer"]), tools=[fetch])


def left(book, run="r"):
    """The number of messages that each stream holds of a run, and its objects."""
    names, connection = book.connection.names, book.connection

    async def count():
        found = {
            base: await connection.count(base, subject)
            for base, subject in (
                (JOURNAL, names.journal(run, "*")),
                (RUNS, names.run(run)),
                (MEMO, names.memo(run, "*")),
                (HISTORY, names.history(run)),
                (TASKS, names.task("*", run, "*", "*")),
                (INPUTS, names.subject("input", run, ">")),
            )
        }
        bucket = stream_name(names, PAYLOADS)
        state = (await connection.api.call(f"STREAM.INFO.{bucket}"))["state"]
        return {**found, PAYLOADS: state["messages"]}

    return book.service.call(count)


def test_of_a_purged_run_two_tombstones_are_left_that_say_nothing_of_it(book, large):
    run = book.start(large, "secret question", run_id="r", title="secret title", labels={"secret": "yes"})
    assert run.wait(20) == "secret answer"
    assert left(book)[PAYLOADS] > 0
    assert left(book)[HISTORY] > 0
    book.purge("r")
    assert left(book) == {JOURNAL: 1, RUNS: 1, MEMO: 0, HISTORY: 0, TASKS: 0, INPUTS: 0, PAYLOADS: 0}
    assert [record.kind for record in run.journal()] == ["purged"]
    assert run.status == "purged"

    async def stored():
        names = book.connection.names
        journal = await book.connection.last(JOURNAL, names.journal("r", "agent"))
        snapshot = await book.connection.last(RUNS, names.run("r"))
        return journal, snapshot

    for tombstone in book.service.call(stored):
        assert b"secret" not in tombstone.data
        assert tombstone.headers["Nats-TTL"] == "720h"


def test_a_purged_run_can_still_be_looked_at_and_says_what_it_is(book, large):
    run = book.start(large, "q", run_id="r")
    run.wait(20)
    book.purge("r")
    with pytest.raises(RunEnded, match="purged"):
        run.wait(20)
    assert run.check()
    assert "purged" in str(run.timeline.to_json())
    assert [info.status for info in book.runs()] == ["purged"]
    assert book.runs()[0].labels == ()
    assert run.resume() == "ended"
    run.cancel()
    assert run.status == "purged"
    with pytest.raises(RunEnded):
        run.retry()
    with pytest.raises(RunEnded):
        run.resolve("r.agent.0.0", value=1)


def test_the_id_of_a_purged_run_is_refused(book, large):
    book.start(large, "q", run_id="r").wait(20)
    book.purge("r")
    for _ in range(2):
        with pytest.raises(RunEnded, match="under another id"):
            book.start(large, "q", run_id="r")


def test_without_its_snapshot_the_tombstone_alone_refuses_the_id(book, large):
    book.start(large, "q", run_id="r").wait(20)
    book.purge("r")
    book.service.call(book.connection.purge, RUNS, book.connection.names.run("r"))
    with pytest.raises(RunConflict, match="purge"):
        book.start(large, "q", run_id="r")


def test_what_is_left_of_a_run_without_its_snapshot_is_purged(book, large):
    book.start(large, "q", run_id="r").wait(20)
    book.service.call(book.connection.purge, RUNS, book.connection.names.run("r"))
    with pytest.raises(RunConflict, match="purge what is left"):
        book.start(large, "q", run_id="r")
    book.purge("r")
    assert left(book) == {JOURNAL: 1, RUNS: 0, MEMO: 0, HISTORY: 0, TASKS: 0, INPUTS: 0, PAYLOADS: 0}


def test_only_an_ended_run_is_purged(book):
    proceed = threading.Event()

    @tool(replay="safe")
    def wait() -> str:
        proceed.wait(20)
        return "waited"

    run = book.start(Agent("clerk", model=ScriptedModel([ToolCall("wait"), "done"]), tools=[wait]), "q", run_id="r")
    with pytest.raises(UsageError, match="cancel it first"):
        book.purge("r")
    proceed.set()
    assert run.wait(20) == "done"
    book.purge("r")
    with pytest.raises(RunNotFound):
        book.purge("nobody")


def test_a_purge_is_harmless_to_repeat_and_spares_other_runs(book, large):
    kept = book.start(large, "q", run_id="r2")
    kept.wait(20)
    book.start(large, "q", run_id="r").wait(20)
    before = left(book, "r2")
    book.purge("r")
    book.purge("r")
    assert left(book)[JOURNAL] == 1
    after = left(book, "r2")
    assert {**after, PAYLOADS: 0} == {**before, PAYLOADS: 0}
    assert 0 < after[PAYLOADS] < before[PAYLOADS]
    assert kept.check()
    assert kept.wait(20) == "secret answer"


def test_f13_a_holder_of_a_cancelled_run_that_stood_still_over_its_purge_brings_nothing_back(book):
    started, proceed = threading.Event(), threading.Event()

    @tool(replay="unsafe")
    def charge() -> str:
        started.set()
        proceed.wait(20)
        return "charged"

    run = book.start(Agent("clerk", model=ScriptedModel([ToolCall("charge"), "x"]), tools=[charge]), "q", run_id="r")
    assert started.wait(20)
    run.cancel()
    book.purge("r")
    proceed.set()

    async def let_go():
        return not book.worker.holding

    book.service.call(eventually, let_go)
    assert [record.kind for record in run.journal()] == ["purged"]
    assert left(book)[TASKS] == left(book)[HISTORY] == left(book)[MEMO] == 0


async def purged(step):
    await purge(step.connection, step.run, "agent", deadline=10)


@pytest.mark.anyio
async def test_f13_after_a_purge_an_old_holder_is_refused_with_either_expectation(connection):
    step = Step(connection)
    journal = await step.open()
    await journal.tool(ToolCall("a"), "safe", lambda call: asyncio.sleep(0, "done"))
    old = journal.writer.tail
    await purged(step)
    for expect in (0, old):
        with pytest.raises(WrongLastSequence):
            await connection.publish(step.subject, b"late", expect=expect)
    with pytest.raises(Fenced, match="a purge"):
        await journal.commit("complete", state=None)
    (tombstone,) = await step.records()
    assert isinstance(tombstone, Purged)
    assert (tombstone.n, tombstone.iteration, tombstone.attempt) == (0, 0, 1)
    assert isinstance(await outcome(step.open(delivery=2)), RunEnded)
    assert isinstance(await outcome(step.open(iteration=3, dispatch=9)), RunEnded)


@pytest.mark.anyio
async def test_f13_a_holder_that_stood_still_before_its_first_claim_is_refused(connection):
    step = Step(connection)
    sleeper = step.writer("b" * 32)
    await purged(step)
    with pytest.raises(Fenced, match="a purge"):
        await sleeper.append(Purged())
    assert await step.kinds() == ["purged"]


@pytest.mark.anyio
async def test_a_purge_races_its_holder_and_the_tombstone_is_the_last_record(connection):
    step = Step(connection)
    journal = await step.open()
    calls = asyncio.create_task(_works(journal))
    await purged(step)
    assert isinstance(await outcome(calls), Fenced)
    assert await step.kinds() == ["purged"]


async def _works(journal):
    for number in range(250):
        await journal.tool(ToolCall("a", {"n": number}), "safe", lambda call: asyncio.sleep(0, "done"))


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [True, False])
async def test_a_tombstone_whose_ack_is_lost_is_written_once(server, settings, connection, cut):
    step = Step(connection)
    await step.open()
    async with through_proxy(server, settings) as (proxy, lossy):
        proxy.lose_next_ack(cut=cut)
        await purge(lossy, step.run, "agent", deadline=10)
        assert proxy.lost == 1
    assert await step.kinds() == ["purged"]


@pytest.mark.anyio
async def test_purging_makes_room_on_a_full_stream(own_server):
    connection = await connect(own_server.target, own_server.settings, provision=True)
    step = Step(connection)
    journal = await step.open(limits=LIMITS)
    await journal.tool(ToolCall("a"), "safe", lambda call: asyncio.sleep(0, "done"))
    info = await connection.info(JOURNAL)
    full = {**info["config"], "max_msgs": info["state"]["messages"]}
    await connection.api.call(f"STREAM.UPDATE.{connection.names.stream(JOURNAL)}", full)
    await purged(step)
    assert await step.kinds() == ["purged"]
    await connection.close()


def test_a_purge_that_died_after_the_snapshot_is_finished_by_the_next(book, large):
    run = book.start(large, "q", run_id="r")
    run.wait(20)

    class Died(Exception):
        pass

    def die(reached):
        raise Died(reached.name)

    seams.set_hook(die)
    try:
        with pytest.raises(Died, match="after_save"):
            book.purge("r")
    finally:
        seams.set_hook(None)
    assert run.status == "purged"
    assert left(book)[JOURNAL] > 1
    book.purge("r")
    assert [record.kind for record in run.journal()] == ["purged"]


def test_the_command_asks_before_it_purges(book, large, monkeypatch):
    book.start(large, "q", run_id="r").wait(20)
    monkeypatch.setenv("AGENTBOOK_NAMESPACE", book.settings.namespace)
    monkeypatch.setenv("AGENTBOOK_DURABILITY", "process")
    command = ["purge", "r", "--dir", str(book.settings.dir)]
    refused = CliRunner().invoke(app, command, input="n\n")
    assert refused.exit_code == 1
    assert book.get("r").status == "completed"
    purged = CliRunner().invoke(app, [*command, "--yes"])
    assert (purged.exit_code, purged.stdout) == (0, "run r is purged\n")
    assert book.get("r").status == "purged"
