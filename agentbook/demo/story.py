"""The demo's course: a process is killed in the middle of a turn, another one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentbook import crashlab
from agentbook.book import Book, Run
from agentbook.book import open as open_book
from agentbook.crashlab import Fault, HolderProcess
from agentbook.demo.billing import EFFECTS_VARIABLE, Effect, agent, effects
from agentbook.errors import AgentbookError
from agentbook.journal.check import CheckReport
from agentbook.journal.records import ModelResponse, Record, ToolIntent, ToolResult
from agentbook.settings import Settings
from agentbook.views.graph import RunGraph
from agentbook.views.timeline import Timeline

RUN = "order-42"
REQUEST = "Refund order 42 and tell the customer."
_DEATH_SECONDS = 30.0
_ANSWER_SECONDS = 60.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Something that must hold, and whether it did.

    Attributes:
        text: what must hold.
        held: True if it did.
        figures: what was counted.
    """

    text: str
    held: bool
    figures: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo saw.

    Attributes:
        before: the effects and records at the moment of the kill; empty without one.
        effects: all effects in the end.
        story: what happened, line by line.
    """

    answer: object
    timeline: Timeline
    graph: RunGraph
    report: CheckReport
    before: tuple[list[Effect], list[Record]]
    effects: list[Effect]
    guarantees: list[Guarantee]
    story: list[str]

    @property
    def held(self) -> bool:
        """True if every guarantee held."""
        return all(guarantee.held for guarantee in self.guarantees)


def play(folder: Path, fault: Fault | None, settings: Settings, tell: Tell) -> Outcome:
    """Run the demo.

    Args:
        folder: where the store and the effects file go.
        fault: where the first process dies; None for a run without a crash.
        settings: of the book; its folder is replaced.
        tell: is told what happens, line by line.
    """
    ledger = folder / "effects.jsonl"
    story: list[str] = []

    def also(line: str) -> None:
        story.append(line)
        tell(line)

    os.environ[EFFECTS_VARIABLE] = str(ledger)
    settings = replace(settings, dir=folder / "store")
    also("Starting nats-server, with an fsync before each acknowledgement …")
    with open_book(settings=settings) as book:
        if fault is None:
            run = book.start(agent, REQUEST, run_id=RUN)
            before: tuple[list[Effect], list[Record]] = ([], [])
            code = None
        else:
            run, code = _die(book, fault, settings, also)
            before = (list(effects(ledger)), run.journal())
            also(f"This process ({os.getpid()}) resumes the run …")
            book.register(agent)
            run = book.attach(RUN)
        answer = run.wait(timeout=_ANSWER_SECONDS)
        also(f"The run has ended: {answer}")
        report = run.check()
        done = list(effects(ledger))
        guarantees = _judge(before, done, report, code)
        return Outcome(answer, run.timeline, run.graph(), report, before, done, guarantees, story)


def _die(book: Book, fault: Fault, settings: Settings, tell: Tell) -> tuple[Run, int]:
    """Have a child process start the run and be killed at the fault's seam."""
    with crashlab.holder(
        "agentbook.demo.billing:agent", settings=settings, fault=fault, start=RUN, input=REQUEST
    ) as child:
        at = f"{fault.seam}{f' of {fault.tool}' if fault.tool else ''}"
        tell(f"Process {child.pid} works on run {RUN}; it will be killed (SIGKILL) at seam {at} …")
        code = _death(child, book, at)
    if code != -signal.SIGKILL:
        raise AgentbookError(f"the first process ended with {code} and was not killed: the demo proves nothing")
    tell(f"Process {child.pid} is dead.")
    return book.get(RUN), code


def _death(child: HolderProcess, book: Book, at: str) -> int:
    """Wait until the process is dead; a run that ends first never came to its seam."""
    end = time.monotonic() + _DEATH_SECONDS
    while time.monotonic() < end:
        try:
            return child.wait(0.2)
        except subprocess.TimeoutExpired:
            if book.runs(status="completed"):
                break
    raise AgentbookError(f"the run never came to seam {at}, so nothing was killed: the demo proves nothing")


def _judge(
    before: tuple[list[Effect], list[Record]], done: Sequence[Effect], report: CheckReport, code: int | None
) -> list[Guarantee]:
    seen, records = before
    starts = Counter((effect.kind, effect.name, effect.key) for effect in done)
    refunds = sum(effect.name == "refund" for effect in done)
    guarantees = [Guarantee("the refund was started once", refunds == 1, f"{refunds} start{'s'[: refunds != 1]}")]
    if code is not None:
        ended = any(record.kind == "commit" and getattr(record, "action", "") == "complete" for record in records)
        guarantees.insert(
            0,
            Guarantee(
                "the kill fell inside the run",
                not ended,
                f"SIGKILL {_where(records)}, after {len(records)} records and {len(seen)} effects",
            ),
        )
        finished = _finished(records)
        repeated = [key for key in finished if starts[key] != 1]
        guarantees.append(
            Guarantee(
                "no model or tool call that had finished ran again",
                not repeated,
                f"{len(finished)} had finished" + (f", again: {repeated}" if repeated else ", 0 ran again"),
            )
        )
    guarantees.append(
        Guarantee(
            "the journal keeps every rule",
            bool(report),
            f"{report.records} records, {len(report.violations)} violations",
        )
    )
    return guarantees


def _where(records: Sequence[Record]) -> str:
    if not records:
        return "before the first record"
    last = records[-1]
    return f"{'after' if last.kind == 'commit' else 'inside'} turn {last.iteration}"


def _finished(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """The calls whose outcome was stored, as the effects file names them."""
    intents = {record.seq: record for record in records if isinstance(record, ToolIntent)}
    answered = [intents[record.intent] for record in records if isinstance(record, ToolResult)]
    replies = [record for record in records if isinstance(record, ModelResponse)]
    return [
        *(("tool", intent.name, intent.key) for intent in answered),
        *(("model", "clerk", str(number)) for number, _ in enumerate(replies)),
    ]
