"""The engine's loop: crashes, duplicates, races, poison and restarts, each finished with nothing twice."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import aclosing

import pytest
from engine_driver import Holder, a_run, ends, eventually, newest_task, reached, serving, tasks_of

from agentbook import seams
from agentbook.broker import local
from agentbook.broker.connection import connect
from agentbook.broker.names import DEAD, HISTORY, RUNS, TASKS
from agentbook.engine.control import cancel, resume
from agentbook.engine.service import DURABLE, MAX_DELIVERED, Engine
from agentbook.engine.start import start
from agentbook.errors import JournalFull
from agentbook.protocol import runs

pytestmark = [pytest.mark.live, pytest.mark.anyio]


def ended(snapshot):
    return snapshot.ended


def at_iteration(number):
    return lambda snapshot: snapshot.steps["agent"].iteration == number


async def end_published(connection, run):
    return await eventually(lambda: ends(connection, run))


async def test_a_continue_is_dispatched_and_an_answer_ends_the_run(connection):
    await start(connection, a_run())
    holder = Holder(connection, "r")
    await holder.claim()
    async with serving(connection) as engine:
        event = await holder.turn("continue")
        await reached(connection, "r", at_iteration(1))
        task = await newest_task(connection, "r")
        assert (task.dispatch, task.iteration, task.attempt) == (2, 1, 1)
        assert (task.journal_seq, task.head) == (event.journal_seq, holder.head)
        await holder.turn("complete", output="refunded")
        await reached(connection, "r", ended)
        assert await end_published(connection, "r") == ["run.completed"]
        assert engine.healthy
    assert not engine.healthy


async def test_duplicated_and_late_events_dispatch_nothing_twice(connection):
    await start(connection, a_run())
    holder = Holder(connection, "r")
    async with serving(connection, 2) as engines:
        first = await holder.commit("continue")
        await holder.publish(first, repeat=4)
        holder.iteration = 1
        await reached(connection, "r", at_iteration(1))
        second = await holder.commit("continue")
        await holder.publish(second, repeat=2)
        await reached(connection, "r", at_iteration(2))
        await holder.publish(first, repeat=3)
        holder.iteration = 2
        await holder.turn("complete", repeat=5)
        await reached(connection, "r", ended)
        await eventually(lambda: total(engines, "accepted", 3))
        await eventually(lambda: idle(connection))
        assert await tasks_of(connection, "r") == [1, 2, 3]
        assert await ends(connection, "r") == ["run.completed"]
        assert await total(engines, "accepted") == 3


async def total(engines, name, wanted=None):
    found = sum(engine.counts[name] for engine in engines)
    return found if wanted is None else found == wanted


async def idle(connection):
    """True once the consumer has nothing left, delivered or not."""
    stream, durable = connection.names.stream(HISTORY), connection.names.stream(DURABLE)
    answer = await connection.api.call(f"CONSUMER.INFO.{stream}.{durable}")
    return answer["num_pending"] == answer["num_ack_pending"] == 0


async def test_two_engines_racing_on_every_event_advance_each_run_once(connection):
    """Each event is there twice, so that both engines meet it; compare-and-swap lets one through."""
    names = [f"r{number}" for number in range(10)]
    for name in names:
        await start(connection, a_run(name))
    async with serving(connection, 2) as engines:
        for turn in range(5):
            holders = [Holder(connection, name) for name in names]
            for holder in holders:
                holder.iteration = turn
            await asyncio.gather(*(holder.turn("continue", repeat=3) for holder in holders))
        for name in names:
            await reached(connection, name, at_iteration(5))
        await eventually(lambda: idle(connection))
        assert await total(engines, "accepted") == 50
        assert await total(engines, "dead") == 0
    for name in names:
        assert await tasks_of(connection, name) == [1, 2, 3, 4, 5, 6]
        assert (await runs.load(connection, name)).snapshot.steps["agent"].turns == 5


async def test_a_lost_compare_and_swap_is_decided_again_from_what_won(connection, monkeypatch):
    await start(connection, a_run())
    holder = Holder(connection, "r")
    saved = runs.save

    async def overtaken(connection, snapshot, expect):
        monkeypatch.setattr(runs, "save", saved)
        await cancel(connection, "r", "overtaken")
        return await saved(connection, snapshot, expect)

    monkeypatch.setattr(runs, "save", overtaken)
    async with serving(connection) as engine:
        await holder.turn("continue")
        await eventually(lambda: counted(engine, "dropped.run_ended"))
    assert engine.counts["lost"] == 1
    assert (await runs.load(connection, "r")).snapshot.status == "cancelled"


async def counted(engine, name, least=1):
    return engine.counts[name] >= least


CHILD = """
    import asyncio, json, os, sys
    from agentbook import seams
    from agentbook.broker.connection import connect
    from agentbook.broker.target import Target
    from agentbook.engine import control
    from agentbook.engine.service import Engine
    from agentbook.settings import Settings

    def die(reached):
        if reached.name == "after_save":
            os._exit(77)

    async def main(target, namespace, what):
        settings = Settings(namespace=namespace, ack_wait=1.0)
        connection = await connect(Target(**target), settings)
        seams.set_hook(die)
        await {"engine": lambda: Engine(connection, settings).run(),
               "cancel": lambda: control.cancel(connection, "r"),
               "resume": lambda: control.resume(connection, "r")}[what]()

    asyncio.run(main(json.loads(sys.stdin.read()), *sys.argv[1:]))
"""


async def dies_after_save(server, connection, what):
    """A process that is gone between its save and the effects of it."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(CHILD), connection.names.namespace, what, stdin=subprocess.PIPE
    )
    await child.communicate(json.dumps(dataclasses.asdict(server.target)).encode())
    assert child.returncode == 77


@pytest.mark.crash
@pytest.mark.parametrize(
    ("action", "tasks", "end"),
    [("continue", [1, 2], []), ("complete", [1], ["run.completed"]), ("fail", [1], ["run.failed"])],
)
async def test_an_engine_that_dies_between_save_and_effect_is_finished_by_the_next(
    server, connection, action, tasks, end
):
    await start(connection, a_run())
    await Holder(connection, "r").turn(action)
    await dies_after_save(server, connection, "engine")
    assert await tasks_of(connection, "r") == [1]
    assert await ends(connection, "r") == []
    async with serving(connection) as engine:
        await eventually(lambda: counted(engine, "again"))
        await eventually(lambda: idle(connection))
        assert engine.counts["accepted"] == 0
    assert await tasks_of(connection, "r") == tasks
    assert await ends(connection, "r") == end


@pytest.mark.crash
async def test_a_canceller_that_dies_after_its_save_is_finished_by_a_late_event(server, connection):
    await start(connection, a_run())
    await dies_after_save(server, connection, "cancel")
    assert await ends(connection, "r") == []
    async with serving(connection) as engine:
        await Holder(connection, "r").turn("continue")
        await eventually(lambda: counted(engine, "dropped.run_ended"))
    assert await ends(connection, "r") == ["run.cancelled"]
    assert await tasks_of(connection, "r") == [1]


@pytest.mark.crash
async def test_a_resumer_that_dies_after_its_save_is_finished_by_the_next(server, connection):
    await start(connection, a_run())
    await Holder(connection, "r").claim()
    await dies_after_save(server, connection, "resume")
    assert await tasks_of(connection, "r") == [1]
    assert await resume(connection, "r") == "dispatched"
    assert (await newest_task(connection, "r")).dispatch == 2


async def test_the_end_is_published_once_even_when_the_server_has_forgotten_its_id(connection):
    await start(connection, a_run())
    holder = Holder(connection, "r")
    async with serving(connection) as engine:
        commit = await holder.commit("complete")
        await holder.publish(commit)
        await end_published(connection, "r")
        # As after a crash that is repaired later than the server remembers message ids: it forgets
        # them when its stream's window shrinks.
        await window(connection, HISTORY, 100_000_000)
        await asyncio.sleep(0.3)
        await holder.publish(commit, repeat=2)
        await eventually(lambda: counted(engine, "again"))
        await eventually(lambda: idle(connection))
    assert await ends(connection, "r") == ["run.completed"]


async def window(connection, stream, nanoseconds):
    await change(connection, stream, duplicate_window=nanoseconds)


async def change(connection, stream, **properties):
    info = await connection.info(stream)
    config = {**info["config"], **properties}
    await connection.api.call(f"STREAM.UPDATE.{connection.names.stream(stream)}", config)


async def dead_letters(connection, run):
    return [stored async for stored in connection.read(DEAD, connection.names.dead(run), upto=None)]


async def test_what_is_no_event_goes_to_the_dead_letters_and_others_go_on(connection):
    await start(connection, a_run("good"))
    await connection.publish(connection.names.history("bad"), b'{"type": "step.continue", "run": 1')
    await connection.publish(connection.names.history("bad"), b"\xff\x00")
    async with serving(connection):
        await Holder(connection, "good").turn("complete")
        await end_published(connection, "good")
        first, second = await eventually(lambda: of_length(dead_letters(connection, "bad"), 2))
    assert first.data == b'{"type": "step.continue", "run": 1'
    assert first.headers["Agentbook-Subject"] == connection.names.history("bad")
    assert "not an event" in first.headers["Agentbook-Error"]
    assert second.data == b"\xff\x00"


async def of_length(found, length):
    found = await found
    return found if len(found) == length else None


async def test_an_event_that_fails_eight_times_goes_to_the_dead_letters_with_its_error(connection):
    await start(connection, a_run("good"))
    await connection.publish(connection.names.run("bad"), b'{"v": 99}')
    await Holder(connection, "bad").turn("continue")
    async with serving(connection) as engine:
        await Holder(connection, "good").turn("complete")
        await end_published(connection, "good")
        (letter,) = await eventually(lambda: of_length(dead_letters(connection, "bad"), 1))
        assert engine.healthy
    assert engine.counts["refused"] == MAX_DELIVERED - 1
    assert "format version 99" in letter.headers["Agentbook-Error"]


async def test_a_full_stream_keeps_the_event_in_hand_until_there_is_room(connection):
    await start(connection, a_run())
    await change(connection, TASKS, max_msgs=1)
    async with serving(connection) as engine:
        await Holder(connection, "r").turn("continue")
        error = await eventually(lambda: trouble(engine))
        assert isinstance(error, JournalFull)
        assert not engine.healthy
        await change(connection, TASKS, max_msgs=-1)
        assert (await newest_task(connection, "r")).dispatch == 2
        await eventually(lambda: healthy(engine))
        await eventually(lambda: idle(connection))
    assert await dead_letters(connection, "r") == []


async def trouble(engine):
    return engine.error


async def healthy(engine):
    return engine.healthy


async def test_events_of_unknown_runs_are_dropped(connection):
    async with serving(connection) as engine:
        await Holder(connection, "nobody").turn("continue")
        await eventually(lambda: counted(engine, "dropped.unknown_run"))
        await eventually(lambda: idle(connection))


async def test_a_deleted_consumer_is_made_again(connection):
    await start(connection, a_run())
    stream, durable = connection.names.stream(HISTORY), connection.names.stream(DURABLE)
    async with serving(connection) as engine:
        await eventually(lambda: healthy(engine))
        await connection.api.call(f"CONSUMER.DELETE.{stream}.{durable}")
        await Holder(connection, "r").turn("complete")
        await end_published(connection, "r")
        await eventually(lambda: healthy(engine))


async def test_f7_an_engine_whose_loop_has_died_says_so(connection):
    await start(connection, a_run())
    engine = Engine(connection, connection.settings)
    assert not engine.healthy
    task = asyncio.create_task(engine.run())

    class Killed(BaseException):
        pass

    def die(reached):
        raise Killed

    seams.set_hook(die)
    try:
        await Holder(connection, "r").turn("continue")
        with pytest.raises(BaseExceptionGroup) as died:
            await task
        assert died.group_contains(Killed)
    finally:
        seams.set_hook(None)
    assert not engine.healthy
    assert engine.error is not None
    await engine.stop()


@pytest.fixture
async def own_server(tmp_path, settings):
    """A server that a test may kill or stall, and a connection to it."""
    settings = dataclasses.replace(settings, dir=tmp_path / "book")
    lease = local.acquire(settings)
    connection = await connect(lease.target, settings, provision=True)
    yield lease, connection
    await connection.close()
    lease.release()


@pytest.mark.crash
async def test_x1_the_engine_goes_on_after_the_server_was_killed(own_server, capfd):
    lease, connection = own_server
    await start(connection, a_run())
    holder = Holder(connection, "r")
    async with serving(connection) as engine:
        await holder.turn("continue")
        await reached(connection, "r", at_iteration(1))
        os.kill(lease.server_pid(), signal.SIGKILL)
        await eventually(lambda: unhealthy(engine))
        await eventually(lambda: healthy(engine))
        await holder.turn("complete")
        assert await end_published(connection, "r") == ["run.completed"]
    assert capfd.readouterr() == ("", "")


async def unhealthy(engine):
    return not engine.healthy


@pytest.mark.crash
async def test_an_engine_stops_promptly_while_the_server_does_not_answer(own_server):
    """In the middle of an event, too; its holder's next engine finishes it."""
    lease, connection = own_server
    await start(connection, a_run())
    stalled = asyncio.Event()
    pid = lease.server_pid()

    def stall(reached):
        seams.set_hook(None)
        os.kill(pid, signal.SIGSTOP)
        stalled.set()

    seams.set_hook(stall)
    try:
        async with serving(connection):
            await Holder(connection, "r").turn("continue")
            await asyncio.wait_for(stalled.wait(), 10)
    finally:
        seams.set_hook(None)
        os.kill(pid, signal.SIGCONT)
    async with serving(connection):
        assert (await newest_task(connection, "r")).dispatch == 2
        await eventually(lambda: idle(connection))
    assert await tasks_of(connection, "r") == [1, 2]


async def test_many_runs_move_at_once(connection):
    names = [f"r{number}" for number in range(150)]
    await asyncio.gather(*(start(connection, a_run(name)) for name in names))
    async with serving(connection) as engine:
        await asyncio.gather(*(Holder(connection, name).turn("complete") for name in names))
        async with (
            asyncio.timeout(30),
            aclosing(connection.follow(RUNS, connection.names.run("*"))) as stored,
        ):
            done = set()
            async for message in stored:
                if b'"status":"completed"' in message.data:
                    done.add(message.subject)
                if len(done) == len(names):
                    break
        await eventually(lambda: idle(connection))
    assert engine.counts["accepted"] == len(names)
