"""The worker: pulls the dispatches of its types, at most as many as it has free slots."""

from __future__ import annotations

import asyncio
import logging

from agentbook.broker.names import TASKS
from agentbook.broker.pull import Delivery
from agentbook.broker.wire import Message, Subscription
from agentbook.settings import Settings
from agentbook.worker.holder import Holder, Loops
from agentbook.worker.registry import Registration

log = logging.getLogger(__name__)

_IDLE_SECONDS = 30.0
_TURN_SECONDS = 0.25
_STOP_SECONDS = 2.0


class Worker:
    """Works on the runs of the types it has registered. Lives on the service loop.

    Attributes:
        name: who it is, for people: ``kernel 4188``.
        errors: what broke a pull loop, by type; health follows the loops themselves.
    """

    def __init__(self, loops: Loops, settings: Settings, name: str) -> None:
        self.name = name
        self.errors: dict[str, BaseException] = {}
        self._loops = loops
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._types: dict[str, Registration] = {}
        self._pulling: dict[str, asyncio.Task[None]] = {}
        self._registering = asyncio.Lock()
        self._holders: dict[Holder, asyncio.Task[None]] = {}
        self._announcements: Subscription | None = None

    @property
    def healthy(self) -> bool:
        """False once a pull loop has ended by an error."""
        return not self.errors and not any(task.done() for task in self._pulling.values())

    @property
    def types(self) -> list[str]:
        """The types this worker serves."""
        return sorted(self._types)

    @property
    def holding(self) -> list[str]:
        """The runs it works on right now."""
        return sorted(holder.run for holder in self._holders)

    async def start(self) -> None:
        """Begin to hear of cancelled runs."""
        everywhere = self._loops.service.names.cancel("*")
        self._announcements = await self._loops.service.subscribe(everywhere, self._cancelled)

    async def register(self, registration: Registration) -> None:
        """Serve a type; a second registration of its name replaces the first for new deliveries."""
        async with self._registering:
            await self._register(registration)

    async def _register(self, registration: Registration) -> None:
        known = self._pulling.get(registration.type)
        self._types[registration.type] = registration
        if known is not None and not known.done():
            return
        durable = f"w-{registration.type}"
        ack_wait = await self._loops.service.ensure_consumer(
            TASKS,
            durable,
            filters=[self._loops.service.names.task(registration.type, "*", "*", "*")],
            ack_wait=self._settings.ack_wait,
        )
        # The consumer may be older than this book: its own ack wait sets the pace.
        heartbeat = min(self._settings.heartbeat_every, ack_wait / 3)
        task = asyncio.create_task(self._pull(registration.type, durable, heartbeat), name=f"pull {durable}")
        task.add_done_callback(lambda done: self._pull_ended(registration.type, done))
        self.errors.pop(registration.type, None)
        self._pulling[registration.type] = task

    async def stop(self) -> None:
        """Stop pulling, give back what is held, and wait until that is done."""
        if self._announcements is not None:
            await self._announcements.close()
        for task in self._pulling.values():
            task.cancel()
        await asyncio.gather(*self._pulling.values(), return_exceptions=True)
        for holder in list(self._holders):
            holder.stop()
        if holding := list(self._holders.values()):
            _, refusing = await asyncio.wait(holding, timeout=_STOP_SECONDS)
            for task in refusing:
                # A tool that does not end keeps nobody: without heartbeats the ack wait hands its task on.
                task.cancel()
            await asyncio.gather(*refusing, return_exceptions=True)

    async def _pull(self, kind: str, durable: str, heartbeat: float) -> None:
        puller = await self._loops.service.pull(TASKS, durable)
        try:
            while True:
                await self._slots.acquire()
                try:
                    await self._user_loop_turns()
                    deliveries = await puller.fetch(1, self._patience())
                except BaseException:
                    self._slots.release()
                    raise
                if not deliveries:
                    self._slots.release()
                for delivery in deliveries:
                    self._hold(kind, delivery, heartbeat)
        finally:
            await puller.close()

    async def _user_loop_turns(self) -> None:
        """Wait until the user loop runs: while user code blocks it, tasks are better left to others."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loops.user_loop))

    def _patience(self) -> float:
        """How long one fetch may keep a slot: types take turns where slots are few."""
        return _IDLE_SECONDS if len(self._types) < self._settings.concurrency else _TURN_SECONDS

    def _hold(self, kind: str, delivery: Delivery, heartbeat: float) -> None:
        try:
            holder = Holder(self._loops, self._settings, self.name, self._types[kind], delivery)
        except ValueError as error:
            # Left alone: it comes back, and a worker that reads its format may take it.
            log.warning("task %s cannot be read: %s", delivery.subject, error)
            self._slots.release()
            return
        task = asyncio.create_task(self._held(holder, heartbeat), name=f"hold {holder.run}")
        self._holders[holder] = task
        task.add_done_callback(lambda _: self._released(holder))

    async def _held(self, holder: Holder, heartbeat: float) -> None:
        try:
            await holder.hold(heartbeat)
        except Exception:
            # The task message is left alone: after the ack wait it is delivered again.
            log.exception("run %s: this delivery was given up", holder.run)

    def _released(self, holder: Holder) -> None:
        del self._holders[holder]
        self._slots.release()

    def _pull_ended(self, kind: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the worker of type %s stopped: %s", kind, error)
            self.errors[kind] = error

    async def _cancelled(self, announcement: Message) -> None:
        run = announcement.subject.rpartition(".")[2]
        for holder in list(self._holders):
            if holder.run == run:
                holder.cancel()
