"""One cell of the crash matrix: a holder that dies or stalls at a seam of a turn, and what is there then."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from agents import billing

from agentbook import seams
from agentbook.broker.connection import connect
from agentbook.broker.names import HISTORY, TASKS
from agentbook.journal.load import read_journal
from agentbook.journal.records import Commit, Record
from agentbook.protocol import runs
from agentbook.protocol.events import StepEvent, decode
from agentbook.protocol.snapshot import RunSnapshot

RUN = "order-42"

_TAIL = {
    "before_claim": None,
    "after_claim": "claim",
    "after_model": "model",
    "after_intent": "tool.intent",
    "inside_tool": "tool.intent",
    "after_spill": "tool.intent",
    "after_result": "tool.result",
    "after_commit": "commit",
    "after_event": "commit",
    "after_save": "commit",
}
"""The last record of the turn when its holder stops at a seam."""


@dataclass(frozen=True)
class Standing:
    """What is durable at one moment.

    Attributes:
        events: the journal sequences whose lifecycle events are published.
        tasks: the numbers of the dispatches that are not settled.
    """

    records: list[Record]
    snapshot: RunSnapshot
    events: list[int]
    tasks: list[int]

    def of_turn(self, iteration: int) -> list[Record]:
        return [record for record in self.records if record.iteration == iteration]

    def by(self, pid: int) -> list[Record]:
        """The records that a process wrote."""
        claims = {r.claim for r in self.records if r.kind == "claim" and r.worker.endswith(f" {pid}")}
        return [record for record in self.records if record.claim in claims]


def look(lease, settings) -> Standing:
    """Read everything, with a bare connection: no engine or worker moves anything on."""
    return asyncio.run(_look(lease.target, settings))


async def _look(target, settings) -> Standing:
    connection = await connect(target, settings)
    try:
        names = connection.names
        history = [stored.data async for stored in connection.read(HISTORY, names.history(RUN), upto=None)]
        subject = names.task("billing", RUN, "agent", "*")
        queue = await connection.api.call(f"STREAM.INFO.{names.stream(TASKS)}", {"subjects_filter": subject})
        versioned = await runs.load(connection, RUN)
        assert versioned is not None
        return Standing(
            await read_journal(connection, RUN, "agent"),
            versioned.snapshot,
            [event.journal_seq for event in map(decode, history) if isinstance(event, StepEvent)],
            sorted(int(name.rpartition(".")[2]) for name in queue["state"].get("subjects") or {}),
        )
    finally:
        await connection.close()


def prove_inside(standing: Standing, seam: str, iteration: int, ledger) -> None:
    """The holder stopped inside this turn, at this seam: the durable state of no other place looks like this."""
    turn = standing.of_turn(iteration)
    assert max((record.iteration for record in standing.records), default=-1) <= iteration
    assert [record.kind for record in turn][-1:] == ([] if _TAIL[seam] is None else [_TAIL[seam]])
    assert not standing.snapshot.ended
    started = seam in ("inside_tool", "after_spill", "after_result", "after_commit", "after_event", "after_save")
    assert ledger.count(billing.TOOLS[iteration]) == (1 if started else 0)
    step = standing.snapshot.steps["agent"]
    published = bool(turn) and turn[-1].seq in standing.events
    match seam:
        case "after_event":
            assert published
            # The engine beside it may have been quicker; then the next dispatch is there, but nobody took it.
            assert step.iteration in (iteration, iteration + 1)
        case "after_save":
            assert published
            assert step.iteration == iteration + 1
            assert step.dispatch not in standing.tasks
        case _:
            assert not published
            assert step.iteration == iteration
            assert standing.tasks == [step.dispatch]


def finished(standing: Standing) -> list[tuple[str, str]]:
    """The calls whose outcome is stored, as the ledger names them."""
    intents = {record.seq: record for record in standing.records if record.kind == "tool.intent"}
    answers = [intents[record.intent] for record in standing.records if record.kind == "tool.result"]
    replies = [record for record in standing.records if record.kind == "model"]
    return [*((intent.name, intent.key) for intent in answers), *(("clerk", str(n)) for n, _ in enumerate(replies))]


def committed(standing: Standing, iteration: int) -> bool:
    return any(isinstance(record, Commit) for record in standing.of_turn(iteration))


class Gate:
    """Stops this process's user loop once its first claim is made and known; its service loop beats on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self._armed = True

    def __call__(self, reached: seams.Reached) -> None:
        if reached.name == "after_claim" and self._armed:
            self._armed = False
            # Not here: only at its next await does the holder know its claim, and answer for it.
            asyncio.get_running_loop().call_soon(self._stop)

    def _stop(self) -> None:
        self.entered.set()
        assert self.released.wait(40)


@contextmanager
def gate_at_claim():
    """A gate for the first claim that this process makes."""
    gate = Gate()
    seams.set_hook(gate)
    try:
        yield gate
    finally:
        gate.released.set()
        seams.set_hook(None)
