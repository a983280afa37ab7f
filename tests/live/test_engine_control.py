"""Cancel, resume and retry: who may take a run up, and that only one does."""

import asyncio

import pytest
from engine_driver import Holder, a_run, ends, eventually, newest_task, reached, serving, tasks_of

from agentbook.engine.control import cancel, resume, retry
from agentbook.engine.start import start
from agentbook.errors import NotHalted, RunEnded, RunNotFound
from agentbook.protocol import holder as liveness
from agentbook.protocol import runs

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def answering(connection, run="r"):
    """A live holder, as far as the liveness question can tell."""

    async def answer(message):
        who = liveness.Holder(worker="kernel 7", claim="c1", position=2, since="2026-01-01T00:00:00Z")
        await connection.respond(message, who.encode())

    return await connection.subscribe(connection.names.holder(run, "agent"), answer)


async def step_of(connection, run="r"):
    return (await runs.load(connection, run)).snapshot.steps["agent"]


async def claimed(connection):
    await start(connection, a_run())
    holder = Holder(connection, "r")
    await holder.claim()
    return holder


async def halted(connection):
    holder = await claimed(connection)
    await holder.publish(await holder.pause("halt", cause="charge may have happened"))
    await reached(connection, "r", lambda snapshot: snapshot.status == "halted")
    return holder


async def test_cancel_is_terminal_at_once_announced_and_published(connection):
    await start(connection, a_run())
    heard = asyncio.get_running_loop().create_future()

    async def hear(message):
        heard.set_result(message.data)

    listening = await connection.subscribe(connection.names.cancel("r"), hear)
    cancelled = await cancel(connection, "r", "changed my mind")
    assert (cancelled.snapshot.status, cancelled.snapshot.final.reason) == ("cancelled", "changed my mind")
    assert cancelled.snapshot.final.at is not None
    assert b"changed my mind" in await asyncio.wait_for(heard, 5)
    assert await ends(connection, "r") == ["run.cancelled"]
    await listening.close()


async def test_h2_a_commit_that_arrives_after_the_cancel_changes_nothing(connection):
    holder = await claimed(connection)
    before = await cancel(connection, "r")
    async with serving(connection) as engine:
        await holder.turn("continue")

        async def dropped():
            return engine.counts["dropped.run_ended"] == 1

        await eventually(dropped)
    assert await runs.load(connection, "r") == before
    assert await tasks_of(connection, "r") == [1]
    assert await ends(connection, "r") == ["run.cancelled"]


async def test_cancelling_twice_or_after_the_end_keeps_the_first_end(connection):
    await start(connection, a_run())
    first = await cancel(connection, "r", "first")
    assert await cancel(connection, "r", "second") == first
    assert await ends(connection, "r") == ["run.cancelled"]


async def test_of_five_cancels_at_once_one_end_stands(connection):
    await start(connection, a_run())
    outcomes = await asyncio.gather(*(cancel(connection, "r", str(number)) for number in range(5)))
    assert len(set(map(repr, outcomes))) == 1
    assert await ends(connection, "r") == ["run.cancelled"]


async def test_cancelling_races_an_answer_and_one_end_stands(connection):
    for number in range(10):
        name = f"r{number}"
        await start(connection, a_run(name))
    async with serving(connection):
        for number in range(10):
            name = f"r{number}"
            _, outcome = await asyncio.gather(
                Holder(connection, name).turn("complete"), cancel(connection, name)
            )
            assert outcome.snapshot.ended
            status = outcome.snapshot.status
            assert await eventually(lambda name=name: ends(connection, name)) == [f"run.{status}"]
            assert (await runs.load(connection, name)).snapshot.status == status


async def test_a_run_that_does_not_exist_is_named(connection):
    for act in (cancel, resume, retry):
        with pytest.raises(RunNotFound, match="nobody"):
            await act(connection, "nobody")


async def test_a_run_nobody_claimed_is_on_its_way(connection):
    await start(connection, a_run())
    assert await resume(connection, "r") == "dispatched"
    assert await tasks_of(connection, "r") == [1]
    assert (await step_of(connection)).dispatch == 1


@pytest.mark.parametrize("records", [0, 1, 3])
async def test_a_dead_holder_is_replaced_at_once_and_its_delivery_goes(connection, records):
    holder = await claimed(connection)
    for _ in range(records):
        await holder.model()
    assert await resume(connection, "r") == "dispatched"
    step = await step_of(connection)
    assert (step.dispatch, step.iteration, step.attempt) == (2, 0, 1)
    assert await tasks_of(connection, "r") == [2]
    await newest_task(connection, "r")


async def test_of_five_kernels_that_resume_at_once_one_dispatches(connection):
    await claimed(connection)
    assert await asyncio.gather(*(resume(connection, "r") for _ in range(5))) == ["dispatched"] * 5
    assert (await step_of(connection)).dispatch == 2
    assert await tasks_of(connection, "r") == [2]


@pytest.mark.parametrize("close", ["commit", "pause"])
async def test_a_claim_that_was_closed_is_on_its_way(connection, close):
    holder = await claimed(connection)
    await holder.model()
    if close == "commit":
        await holder.commit("continue")
    else:
        await holder.pause("sleep")
    assert await resume(connection, "r") == "dispatched"
    assert (await step_of(connection)).dispatch == 1


async def test_a_claim_of_an_earlier_dispatch_does_not_count(connection):
    """Its successor is on the way: nobody answers, and still nothing more is sent."""
    holder = await claimed(connection)
    await holder.model()
    assert await resume(connection, "r") == "dispatched"
    for _ in range(3):
        assert await resume(connection, "r") == "dispatched"
    assert (await step_of(connection)).dispatch == 2
    await Holder(connection, "r", "c2").claim(dispatch=2)
    assert await resume(connection, "r") == "dispatched"
    assert (await step_of(connection)).dispatch == 3


async def test_the_newest_claim_is_found_after_many_turns(connection):
    holder = await claimed(connection)
    async with serving(connection):
        for turn in range(1, 4):
            await holder.model()
            await holder.turn("continue")
            await reached(connection, "r", lambda s, turn=turn: s.steps["agent"].iteration == turn)
            holder.name, holder.n = f"c{turn + 1}", 0
            await holder.claim(dispatch=turn + 1)
        await holder.model()
        assert await resume(connection, "r") == "dispatched"
    step = await step_of(connection)
    assert (step.iteration, step.dispatch) == (3, 5)


async def test_f2_a_live_holder_is_watched_and_only_force_fences_it(connection):
    await claimed(connection)
    live = await answering(connection)
    assert await resume(connection, "r") == "viewing"
    assert (await step_of(connection)).dispatch == 1
    assert await resume(connection, "r", force=True) == "dispatched"
    assert (await step_of(connection)).dispatch == 2
    assert await tasks_of(connection, "r") == [2]
    await live.close()


async def test_a_silent_holder_is_left_to_the_ack_wait(connection):
    await claimed(connection)

    async def silent(message):
        pass

    listening = await connection.subscribe(connection.names.holder("r", "agent"), silent)
    assert await resume(connection, "r") == "viewing"
    assert (await step_of(connection)).dispatch == 1
    await listening.close()


async def test_a_halted_run_resumes_the_same_attempt(connection):
    async with serving(connection):
        await halted(connection)
        assert await asyncio.gather(*(resume(connection, "r") for _ in range(3))) == ["dispatched"] * 3
    step = await step_of(connection)
    assert (step.status, step.dispatch, step.attempt, step.halt) == ("running", 2, 1, None)
    assert await tasks_of(connection, "r") == [2]


async def test_a_run_that_was_left_resumes_and_one_that_waits_does_not(connection):
    holder = await claimed(connection)
    async with serving(connection):
        await holder.publish(await holder.pause("left"))
        await reached(connection, "r", lambda snapshot: snapshot.status == "waiting")
        assert await resume(connection, "r") == "dispatched"
        await holder.publish(await holder.pause("sleep", wait={"until": "2030-01-01T00:00:00Z"}))
        await reached(connection, "r", lambda snapshot: snapshot.status == "waiting")
        assert await resume(connection, "r") == "viewing"
    assert (await step_of(connection)).dispatch == 2


async def test_retry_begins_the_halted_turn_again_as_a_new_attempt(connection):
    async with serving(connection):
        await halted(connection)
        await retry(connection, "r")
    task = await newest_task(connection, "r")
    assert (task.dispatch, task.iteration, task.attempt) == (2, 0, 2)


async def test_retry_refuses_what_is_not_halted(connection):
    await start(connection, a_run())
    with pytest.raises(NotHalted, match="running"):
        await retry(connection, "r")
    await cancel(connection, "r")
    with pytest.raises(RunEnded, match="cancelled"):
        await retry(connection, "r")


async def test_f10_halt_and_resume_in_quick_succession_lose_nothing(connection):
    holder = await claimed(connection)
    async with serving(connection) as engine:
        for round_ in range(1, 6):
            await holder.publish(await holder.pause("halt"))
            await reached(connection, "r", lambda s: s.status == "halted")
            await resume(connection, "r")
            holder.name, holder.n = f"c{round_ + 1}", 0
            await holder.claim(dispatch=round_ + 1)
        await holder.turn("complete")
        await reached(connection, "r", lambda s: s.status == "completed")
    assert engine.counts["accepted"] == 6


async def test_resuming_an_ended_run_finishes_its_end(connection):
    await start(connection, a_run())
    await cancel(connection, "r")
    assert await resume(connection, "r", force=True) == "ended"
    assert await ends(connection, "r") == ["run.cancelled"]
