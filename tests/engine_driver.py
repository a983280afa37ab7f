"""Stands in for holders in the tests of the engine: their events, claims and records, on a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager

from agentbook.broker.names import HISTORY, JOURNAL, RUNS, TASKS
from agentbook.engine.ensure import dispatch_of
from agentbook.engine.service import Engine
from agentbook.journal.records import Claim, Commit, ModelResponse, Pause
from agentbook.protocol import runs
from agentbook.protocol.dispatch import Dispatch
from agentbook.protocol.events import event_of
from agentbook.protocol.snapshot import RunSnapshot, StepSnapshot

AT = "2026-01-01T00:00:00.000Z"


def a_run(run="r", given="refund order 42", **more):
    return RunSnapshot(
        run=run, what="agent", type="billing", created=AT, input=given, steps={"agent": StepSnapshot()}, **more
    )


@asynccontextmanager
async def serving(connection, count=1):
    """Engines at work; they must end promptly and leave no task behind."""
    engines = [Engine(connection, connection.settings) for _ in range(count)]
    tasks = [asyncio.create_task(engine.run()) for engine in engines]
    try:
        yield engines[0] if count == 1 else engines
    finally:
        async with asyncio.timeout(3):
            await asyncio.gather(*(engine.stop() for engine in engines))
            await asyncio.gather(*tasks)
    ours = [task for task in asyncio.all_tasks() if "/agentbook/engine/" in task.get_coro().cr_code.co_filename]
    assert ours == []


class Holder:
    """One holder of a run's step: writes its journal, and publishes the events of its commits."""

    def __init__(self, connection, run, claim="c1"):
        self.connection, self.run, self.name, self.n = connection, run, claim, 0
        self.iteration, self.attempt = 0, 1
        self.head = None

    async def append(self, record):
        stamped = record.stamped(
            run=self.run, step="agent", iteration=self.iteration, attempt=self.attempt, claim=self.name, n=self.n, at=AT
        )
        self.n += 1
        ack = await self.connection.publish(self.connection.names.journal(self.run, "agent"), stamped.encode())
        self.head = self.head or ack.seq
        return stamped.model_copy(update={"seq": ack.seq})

    async def claim(self, dispatch=1):
        return await self.append(
            Claim(worker="kernel 1", dispatch=dispatch, delivery=1, code="c", prev=None, head=self.head)
        )

    async def model(self):
        return await self.append(ModelResponse(position=0, model="m", request="q", response="a", ms=1.0))

    async def commit(self, action, **more):
        return await self.append(Commit(action=action, head=self.head or 0, **more))

    async def pause(self, reason, **more):
        return await self.append(Pause(reason=reason, head=self.head or 0, **more))

    async def publish(self, record, *, repeat=1):
        """Publish a record's event; repeats carry no id, as after the server has forgotten it."""
        event = event_of(record)
        for number in range(repeat):
            await self.connection.publish(
                self.connection.names.history(self.run), event.encode(), msg_id=None if number else event.message_id
            )
        return event

    async def turn(self, action="continue", *, repeat=1, **more):
        """A turn of one commit, and its event."""
        event = await self.publish(await self.commit(action, **more), repeat=repeat)
        if action == "continue":
            self.iteration, self.attempt = self.iteration + 1, 1
        return event


async def reached(connection, run, wanted):
    """The first stored snapshot of a run that `wanted` accepts."""
    async with asyncio.timeout(20), aclosing(connection.follow(RUNS, connection.names.run(run))) as stored:
        async for message in stored:
            snapshot = RunSnapshot.model_validate_json(message.data)
            if wanted(snapshot):
                return snapshot
    raise AssertionError("unreachable")


async def ends(connection, run):
    """The events of a run's history that say that it ended."""
    return [event["type"] for event in await history(connection, run) if event["type"].startswith("run.")]


async def history(connection, run):
    return [
        json.loads(stored.data) async for stored in connection.read(HISTORY, connection.names.history(run), upto=None)
    ]


async def tasks_of(connection, run):
    """The numbers of the dispatches that wait in the queue, or are being worked on."""
    subject = connection.names.task("billing", run, "agent", "*")
    state = (await connection.api.call(f"STREAM.INFO.{connection.names.stream(TASKS)}", {"subjects_filter": subject}))[
        "state"
    ]
    numbers = []
    for name, count in (state.get("subjects") or {}).items():
        assert count == 1
        stored = await connection.last(TASKS, name)
        body = Dispatch.decode(stored.data)
        assert name.endswith(f".{body.dispatch}")
        numbers.append(body.dispatch)
    return sorted(numbers)


async def newest_task(connection, run):
    """The newest dispatch, which must be the one its snapshot asks for."""
    current = await runs.load(connection, run)
    wanted = dispatch_of(current.snapshot, "agent")
    stored = await eventually(
        lambda: connection.last(TASKS, connection.names.task("billing", run, "agent", wanted.dispatch))
    )
    assert Dispatch.decode(stored.data) == wanted
    return wanted


async def eventually(look):
    """What `look` answers once it is truthy; for effects that nobody announces."""
    async with asyncio.timeout(20):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.02)


__all__ = [
    "AT", "HISTORY", "JOURNAL", "Holder", "a_run", "ends", "eventually", "history", "newest_task", "reached",
    "serving", "tasks_of",
]  # fmt: skip
