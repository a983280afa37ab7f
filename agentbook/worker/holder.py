"""One delivery, held: the handler on the user loop, its heartbeat and its liveness on ours.

What an outcome does to the task message is JOURNAL.md, "What an outcome does to the task
message": a fenced holder must not touch it, because JetStream settles by sequence and not
by delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from enum import Enum, auto

from agentbook import codec
from agentbook.broker.connection import Connection
from agentbook.broker.names import JOURNAL
from agentbook.broker.pull import Delivery
from agentbook.broker.wire import Message, Subscription
from agentbook.errors import (
    AgentbookError,
    Fenced,
    JournalError,
    JournalFull,
    JournalUnavailable,
    Paused,
    ResumeHalt,
    RunCancelled,
    RunEnded,
    Settled,
    Signal,
)
from agentbook.journal.append import Place, fenced_by
from agentbook.journal.instants import now
from agentbook.journal.load import FoldCache
from agentbook.journal.open import Holding, Limits
from agentbook.journal.outcome import Moment
from agentbook.journal.records import Record, decode
from agentbook.journal.redact import Redactor
from agentbook.protocol import runs
from agentbook.protocol.dispatch import Dispatch
from agentbook.protocol.holder import Holder as Answer
from agentbook.protocol.holder import ask_holder
from agentbook.protocol.snapshot import RunSnapshot
from agentbook.settings import Settings
from agentbook.worker.context import TaskContext
from agentbook.worker.registry import Registration

log = logging.getLogger(__name__)


class Settlement(Enum):
    """What becomes of the task message."""

    ACK = auto()
    LEAVE = auto()
    NAK = auto()


@dataclass(frozen=True, slots=True)
class Loops:
    """The connections of the two loops (DESIGN.md): ours, and the one that runs user code.

    Attributes:
        redactor: knows what must not be written.
        cache: what this worker knows of journals it has just written; the user loop's.
    """

    service: Connection
    user: Connection
    user_loop: asyncio.AbstractEventLoop
    redactor: Redactor
    cache: FoldCache = field(default_factory=FoldCache)


class Holder:
    """Holds one delivery until its outcome is known. Lives on the service loop."""

    def __init__(
        self, loops: Loops, settings: Settings, worker: str, registration: Registration, delivery: Delivery
    ) -> None:
        self.dispatch = Dispatch.decode(delivery.data)
        self._loops = loops
        self._settings = settings
        self._worker = worker
        self._registration = registration
        self._delivery = delivery
        self._since = now()
        self._position = 0
        self._context: TaskContext | None = None
        self._work: asyncio.Task[None] | None = None
        self._signal: Signal | None = None
        self._stopping = False
        self._asking = False
        self._answering: Subscription | None = None

    @property
    def run(self) -> str:
        return self.dispatch.run

    async def hold(self, heartbeat: float) -> Settlement:
        """Run the handler and settle its task message.

        Args:
            heartbeat: seconds between two heartbeats.
        """
        versioned = await runs.load(self._loops.service, self.run)
        if versioned is None or self._superseded(versioned.snapshot):
            return await self._settle(Settlement.ACK)
        if self._delivery.delivered > 1 and await self._held_elsewhere(self._loops.service):
            return Settlement.LEAVE
        names = self._loops.service.names
        # Subscribed before the claim: whoever reads the claim can ask whether its holder lives.
        self._answering = await self._loops.service.subscribe(names.holder(self.run, self.dispatch.step), self._answer)
        beating = asyncio.create_task(self._beat(heartbeat), name=f"heartbeat {self.run}")
        try:
            settlement = await self._handle(versioned.snapshot)
        finally:
            # Stopped first: an in-progress after the outcome could prolong a successor's delivery.
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating
            await self._answering.close()
        return await self._settle(settlement)

    def stop(self) -> None:
        """Give the task back: the handler is cancelled, another worker goes on."""
        self._stopping = True
        self._interrupt(None)

    def cancel(self) -> None:
        """End the handler, because its run was cancelled."""
        self._interrupt(RunCancelled(f"run {self.run} was cancelled"))

    def _superseded(self, snapshot: RunSnapshot) -> bool:
        step = snapshot.steps.get(self.dispatch.step)
        return snapshot.ended or step is None or step.dispatch > self.dispatch.dispatch

    async def _held_elsewhere(self, connection: Connection) -> bool:
        """True if a live holder has the step: this delivery came late, and claiming would fence that one.

        It may have waited in a process that stood still, or the holder's heartbeat was late. Only advice: who does
        not answer is fenced (ENGINE.md, Liveness).
        """
        self._asking = True  # our own answer would hide the other one's
        try:
            answer = await ask_holder(connection, self.run, self.dispatch.step)
        finally:
            self._asking = False
        if isinstance(answer, Answer):
            log.info("run %s: delivery %d left alone, %s has it", self.run, self._delivery.delivered, answer.worker)
        return isinstance(answer, Answer)

    async def _handle(self, snapshot: RunSnapshot) -> Settlement:
        """Run the handler on the user loop; what its outcome does to the task message."""
        finished = asyncio.run_coroutine_threadsafe(self._on_user_loop(snapshot), self._loops.user_loop)
        try:
            await asyncio.wrap_future(finished)
        except (Fenced, JournalUnavailable, JournalFull) as outcome:
            log.info("run %s: %s", self.run, outcome)
            return Settlement.LEAVE
        except (Settled, Paused, RunEnded):
            return Settlement.ACK
        except JournalError as error:
            await self._halt(error)
            return Settlement.ACK
        except asyncio.CancelledError:
            if not self._stopping or _is_cancelled():
                raise
            # A nak is only safe under our own claim: it would redeliver a successor's task at once.
            tail = await self._tail()
            ours = tail is not None and tail.claim == self._claim()
            return Settlement.NAK if ours else Settlement.LEAVE
        return Settlement.ACK

    async def _on_user_loop(self, snapshot: RunSnapshot) -> None:
        context = TaskContext(
            self._loops.user,
            self._holding(),
            Limits(self._settings.append_deadline, self._settings.restart_limit, self._settings.max_calls),
            codec.decode(snapshot.input),
            cache=self._loops.cache,
            redactor=self._loops.redactor,
            held=lambda: self._held_elsewhere(self._loops.user),
            observe=self._observe,
        )
        self._context = context
        self._work = asyncio.current_task()
        if self._signal is not None:
            context.stop(self._signal)
        elif self._stopping:
            raise asyncio.CancelledError
        try:
            await self._guarded(context)
        except (asyncio.CancelledError, RunCancelled):
            # A handler that swallowed the cancellation ends by the signal of its next call.
            if self._signal is None:
                raise
            if isinstance(self._signal, RunCancelled):
                await context.close_cut_calls()
            raise self._signal from None
        except ResumeHalt:
            await context.halted()
            raise

    async def _guarded(self, context: TaskContext) -> None:
        try:
            await self._registration.handler(context)
        except (JournalUnavailable, JournalFull, RunEnded):
            raise
        except JournalError as error:
            # Other code, or a person, can go on from here: no attempt is used up.
            if context.claim is None:
                raise
            await context.park(error)
        except asyncio.CancelledError as error:
            if self._signal is not None or self._stopping or _is_cancelled():
                raise
            await context.fail(error, retriable=True)
        except Signal:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises fails the attempt and is recorded
            # SystemExit and KeyboardInterrupt too: they would end the loop that every other run uses.
            await context.fail(error, retriable=not isinstance(error, AgentbookError))
        else:
            if context.claim is not None and not context.ended:
                await context.fail("the handler returned without complete, fail or continue_", retriable=False)

    def _holding(self) -> Holding:
        dispatch = self.dispatch
        return Holding(
            Place(dispatch.run, dispatch.step, dispatch.iteration, dispatch.attempt),
            dispatch=dispatch.dispatch,
            delivery=self._delivery.delivered,
            worker=self._worker,
            code=self._registration.code,
            head=dispatch.head,
            halting=self._registration.halting,
        )

    def _observe(self, moment: Moment) -> None:
        self._position = moment.position

    async def _beat(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await self._beat_once()
            except JournalUnavailable as error:
                # No answer is no proof of anything: no in-progress either, the ack wait decides.
                log.info("run %s: heartbeat missed: %s", self.run, error)

    async def _beat_once(self) -> None:
        """Prolong the delivery, but only while this holder's own claim has the tail."""
        versioned = await runs.load(self._loops.service, self.run)
        if versioned is not None and versioned.snapshot.ended:
            self.cancel()
            return
        if self._context is None:
            return  # the user loop is blocked and has not begun: let the ack wait give the task to another
        tail = await self._tail()
        if tail is None or tail.claim == self._claim():
            await self._delivery.in_progress()
        else:
            self._interrupt(fenced_by(tail))
            # Its code may refuse to end; it must not pass for a live holder meanwhile.
            if self._answering is not None:
                await self._answering.close()

    async def _tail(self) -> Record | None:
        """The journal's last record once this holder has claimed, by the leader's word."""
        if self._claim() is None:
            return None
        subject = self._loops.service.names.journal(self.run, self.dispatch.step)
        stored = await self._loops.service.last(JOURNAL, subject)
        return None if stored is None else decode(stored.data, stored.seq)

    def _claim(self) -> str | None:
        return None if self._context is None else self._context.claim

    async def _halt(self, error: JournalError) -> None:
        """Halt a run whose journal cannot take a record that says so."""
        while versioned := await runs.load(self._loops.service, self.run):
            snapshot, name = versioned.snapshot, self.dispatch.step
            if self._superseded(snapshot):
                return
            step = snapshot.steps[name].model_copy(update={"status": "halted", "halt": str(error)})
            steps = {**snapshot.steps, name: step}
            halted = snapshot.model_copy(update={"status": "halted", "steps": steps})
            if await runs.save(self._loops.service, halted, versioned.seq):
                return

    async def _settle(self, settlement: Settlement) -> Settlement:
        if settlement is Settlement.ACK:
            await self._delivery.ack()
        elif settlement is Settlement.NAK:
            await self._delivery.nak()
        return settlement

    async def _answer(self, question: Message) -> None:
        """Answer the liveness question (ENGINE.md): who holds this step, under which claim, where."""
        if self._asking or self._context is None:
            return  # not begun: another may take the step
        answer = Answer(worker=self._worker, claim=self._claim() or "", position=self._position, since=self._since)
        await self._loops.service.respond(question, answer.encode())

    def _interrupt(self, signal: Signal | None) -> None:
        """End the user's coroutine from the service loop."""
        self._signal = self._signal or signal

        def on_user_loop() -> None:
            if self._context is not None and signal is not None:
                self._context.stop(signal)
            if self._work is not None:
                self._work.cancel()

        self._loops.user_loop.call_soon_threadsafe(on_user_loop)


def _is_cancelled() -> bool:
    """True if somebody cancelled this task; False if user code raised `CancelledError` by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
