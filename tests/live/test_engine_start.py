"""Starting a run: idempotent on its id, and finished by whoever comes next."""

import asyncio

import pytest
from engine_driver import Holder, a_run, ends, newest_task, reached, serving, tasks_of

from agentbook import seams
from agentbook.broker.names import JOURNAL, RUNS
from agentbook.engine.advance import finish
from agentbook.engine.start import start
from agentbook.errors import ConfigError, RunConflict, RunEnded
from agentbook.protocol import runs
from agentbook.protocol.snapshot import Final, StepSnapshot

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
def crash_after_save():
    """The next process that saves a run dies before the effects."""

    class Crashed(Exception):
        pass

    def die(reached):
        if reached.name == "after_save":
            seams.set_hook(None)
            raise Crashed

    seams.set_hook(die)
    yield Crashed
    seams.set_hook(None)


async def test_f1_of_five_starts_at_once_one_creates_and_one_task_is_sent(connection):
    outcomes = await asyncio.gather(*(start(connection, a_run()) for _ in range(5)))
    assert sorted(created for _, created in outcomes) == [False] * 4 + [True]
    assert {versioned.seq for versioned, _ in outcomes} == {outcomes[0][0].seq}
    assert await tasks_of(connection, "r") == [1]


async def test_the_first_dispatch_carries_iteration_and_attempt(connection):
    await start(connection, a_run())
    task = await newest_task(connection, "r")
    assert (task.iteration, task.attempt, task.dispatch, task.head) == (0, 1, 1, None)
    assert (await runs.load(connection, "r")).snapshot.steps["agent"].first_dispatch is not None


async def test_a_start_whose_starter_died_is_finished_by_the_next(connection, crash_after_save):
    with pytest.raises(crash_after_save):
        await start(connection, a_run())
    assert await tasks_of(connection, "r") == []
    _, created = await start(connection, a_run())
    assert not created
    assert await tasks_of(connection, "r") == [1]


@pytest.mark.parametrize(
    "other",
    [a_run(given="another"), a_run(driver="cell"), a_run().model_copy(update={"type": "refunds"}), a_run(parent="p")],
    ids=["input", "driver", "agent", "parent"],
)
async def test_an_id_that_is_taken_shows_both(connection, other):
    await start(connection, a_run())
    with pytest.raises(RunConflict, match=r"(?s)it is agent billing.*this is agent"):
        await start(connection, other)
    assert await tasks_of(connection, "r") == [1]


async def test_the_same_input_in_another_key_order_attaches(connection):
    await start(connection, a_run(given={"order": 42, "card": "x"}))
    _, created = await start(connection, a_run(given={"card": "x", "order": 42.0}))
    assert not created


async def test_a_finished_run_started_again_is_the_finished_run(connection):
    await start(connection, a_run())
    async with serving(connection):
        await Holder(connection, "r").turn("complete", output="done")
        await reached(connection, "r", lambda snapshot: snapshot.ended)
        again, created = await start(connection, a_run())
    assert not created
    assert again.snapshot.final.status == "completed"
    assert await ends(connection, "r") == ["run.completed"]


async def test_f13_a_purged_id_is_refused(connection):
    await runs.create(connection, finish(a_run(), Final(status="purged")))
    with pytest.raises(RunEnded, match="purged"):
        await start(connection, a_run())


async def test_j3_a_journal_without_its_run_is_refused(connection):
    await start(connection, a_run())
    await Holder(connection, "r").claim()
    await connection.purge(RUNS, connection.names.run("r"))
    with pytest.raises(RunConflict, match="has a journal"):
        await start(connection, a_run())
    assert await runs.load(connection, "r") is None
    await connection.purge(JOURNAL, connection.names.journal("r", "agent"))
    assert (await start(connection, a_run()))[1]


@pytest.mark.parametrize(
    "wrong",
    [a_run("a.b"), a_run("x" * 600), a_run("").model_copy(update={"type": "a b"})],
)
async def test_an_id_that_cannot_be_a_subject_is_refused_before_anything_is_written(connection, wrong):
    with pytest.raises(ConfigError):
        await start(connection, wrong)
    assert await connection.count(RUNS, connection.names.run("*")) == 0


async def test_a_step_name_that_cannot_be_a_subject_is_refused(connection):
    with pytest.raises(ConfigError, match="step name"):
        await start(connection, a_run().model_copy(update={"steps": {"a b": StepSnapshot()}}))


async def test_a_run_driven_by_a_cell_sends_no_task(connection):
    await start(connection, a_run(driver="cell"))
    assert await tasks_of(connection, "r") == []


async def test_two_writers_of_the_same_bytes_do_not_both_win(connection):
    """A lost ack is recognised by the write, not by its content: of five kernels one wins."""
    saved = await runs.create(connection, a_run())
    outcomes = await asyncio.gather(*(runs.save(connection, a_run(), saved.seq) for _ in range(5)))
    assert sum(outcome is not None for outcome in outcomes) == 1
