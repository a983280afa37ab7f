"""The engine's loop: lifecycle events in, snapshots and their effects out (ENGINE.md).

Any number of engines share one durable consumer. Each may die at any point: an event
is acknowledged after its effects, and every step on the way is harmless to repeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import cast

from pydantic import ValidationError

from agentbook.broker.connection import Connection
from agentbook.broker.names import HISTORY
from agentbook.broker.outcomes import ApiError, PublishError, ShortRead
from agentbook.broker.pull import Delivery, Puller
from agentbook.engine.advance import Accepted, Again, Dropped, advance
from agentbook.engine.ensure import ensure
from agentbook.errors import ConfigError, JournalFull, JournalUnavailable
from agentbook.journal.instants import now
from agentbook.protocol import runs
from agentbook.protocol.events import StepEvent, decode
from agentbook.protocol.store import store
from agentbook.seams import seam
from agentbook.settings import Settings

log = logging.getLogger(__name__)

DURABLE = "engine"
MAX_DELIVERED = 8
"""Deliveries after which an event that cannot be processed is set aside."""

_ACK_WAIT = 5.0
_AT_ONCE = 64
_FETCH_WAIT = 5.0
_AGAIN = 0.5
_FAREWELL = 1.0
_LOOP = "the engine's loop"

_SERVERS_FAULT = (JournalUnavailable, JournalFull, ConfigError, PublishError, ApiError, ShortRead)
"""What no event is to blame for: it stays in hand until the server serves again."""


class Engine:
    """Moves runs by the events of their holders, until it is stopped.

    Attributes:
        counts: what became of the events so far: ``accepted``, ``again``, ``lost`` (a
            compare-and-swap), ``refused``, ``dead``, and ``dropped.`` with the reason.
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._ack_wait = min(_ACK_WAIT, settings.ack_wait)
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self._serving = False
        self._trouble: dict[str, BaseException] = {}
        self._lanes: dict[str, deque[Delivery]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[tuple[int, int], Delivery] = {}
        self.counts: Counter[str] = Counter()

    @property
    def healthy(self) -> bool:
        """True while events are being taken and nothing stands in their way."""
        return self._serving and self._connection.connected and not self._trouble

    @property
    def error(self) -> BaseException | None:
        """What stands in the way, or ended the loop."""
        return next(iter(self._trouble.values()), None)

    async def run(self) -> None:
        """Serve until `stop`. Only cancellation ends it otherwise; what goes wrong is in `error`."""
        self._running = True
        try:
            while not self._stopping.is_set():
                try:
                    await self._serve()
                except Exception as error:
                    # Whatever it is: a loop that ended would leave every run where it stands.
                    self._trouble[_LOOP] = _only(error)
                    log.warning("the engine begins again", exc_info=error)
                    await self._nap(_AGAIN)
        except BaseException as error:
            self._trouble[_LOOP] = error
            raise
        finally:
            self._running = False
            self._ended.set()

    async def stop(self) -> None:
        """Finish the events in hand, or leave them to be delivered again, and end `run`."""
        self._stopping.set()
        if self._running:
            await self._ended.wait()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            pulling = group.create_task(self._pull(group))
            beating = group.create_task(self._beat())
            await self._stopping.wait()
            pulling.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_FAREWELL)
            beating.cancel()
            for task in self._tasks:
                task.cancel()

    async def _pull(self, group: asyncio.TaskGroup) -> None:
        connection = self._connection
        history = connection.names.subject("history", ">")
        self._ack_wait = await connection.ensure_consumer(HISTORY, DURABLE, filters=[history], ack_wait=self._ack_wait)
        puller = await connection.pull(HISTORY, DURABLE)
        self._serving = True
        try:
            while True:
                await self._fetch(puller, group)
        finally:
            self._serving = False
            await puller.close()

    async def _fetch(self, puller: Puller, group: asyncio.TaskGroup) -> None:
        room = _AT_ONCE - len(self._held)
        if room <= 0:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            return
        deliveries = await puller.fetch(room, _FETCH_WAIT)
        self._trouble.pop(_LOOP, None)
        for delivery in deliveries:
            self._take(delivery, group)

    async def _beat(self) -> None:
        """Keep what waits in hand from being delivered again."""
        while True:
            await asyncio.sleep(self._ack_wait / 3)
            for delivery in list(self._held.values()):
                await delivery.in_progress()

    def _take(self, delivery: Delivery, group: asyncio.TaskGroup) -> None:
        """Put an event in its run's lane: one run's events in order, different runs at once."""
        self._held[_key(delivery)] = delivery
        run = _run_of(delivery)
        if run in self._lanes:
            self._lanes[run].append(delivery)
            return
        self._lanes[run] = deque([delivery])
        task = group.create_task(self._work(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, run: str) -> None:
        lane = self._lanes[run]
        try:
            while lane and await self._settled(run, lane[0]):
                self._held.pop(_key(lane.popleft()), None)
        finally:
            del self._lanes[run]
            self._trouble.pop(run, None)
            for delivery in lane:
                self._held.pop(_key(delivery), None)
                await delivery.nak()

    async def _settled(self, run: str, delivery: Delivery) -> bool:
        """Process an event, again while the server is to blame; False if the engine stops first."""
        pause = 0.1
        while not self._stopping.is_set():
            try:
                await self._process(delivery)
            except _SERVERS_FAULT as error:
                self._trouble[run] = error
                log.warning("event %s of run %s waits for the server: %s", delivery.seq, run, error)
                await self._nap(pause)
                pause = min(pause * 2, _ACK_WAIT)
            else:
                self._trouble.pop(run, None)
                return True
        return False

    async def _process(self, delivery: Delivery) -> None:
        """Settle one delivery. Raises only what the server is to blame for."""
        if delivery.delivered > MAX_DELIVERED:
            await self._bury(delivery, "it was delivered again and again and never settled")
            return
        try:
            event = decode(delivery.data)
        except ValidationError as error:
            await self._bury(delivery, f"it is not an event: {error}")
            return
        except Exception as error:  # noqa: BLE001 - of another version, perhaps: another engine may read it
            await self._refuse(delivery, error)
            return
        try:
            if isinstance(event, StepEvent):
                await self._advance(event)
        except _SERVERS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, one event must not stop the others
            await self._refuse(delivery, error)
            return
        await delivery.ack()

    async def _advance(self, event: StepEvent) -> None:
        while True:
            current = await runs.load(self._connection, event.run)
            if current is None:
                self.counts["dropped.unknown_run"] += 1
                return
            match advance(current.snapshot, event, at=now()):
                case Dropped(reason):
                    self.counts[f"dropped.{reason}"] += 1
                    if reason == "run_ended":
                        # Whoever ended it may have died before it said so.
                        await ensure(self._connection, current)
                    return
                case Again():
                    self.counts["again"] += 1
                    await ensure(self._connection, current)
                    return
                case Accepted(snapshot):
                    saved = await runs.save(self._connection, snapshot, current.seq)
                    if saved is None:
                        self.counts["lost"] += 1
                        continue
                    self.counts["accepted"] += 1
                    seam("after_save", event.iteration)
                    await ensure(self._connection, saved)
                    return

    async def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """Have an event delivered again that failed for a reason of its own, or set it aside."""
        log.warning("event %s failed (delivery %s)", delivery.seq, delivery.delivered, exc_info=error)
        if delivery.delivered >= MAX_DELIVERED:
            await self._bury(delivery, f"{type(error).__name__}: {error}")
            return
        self.counts["refused"] += 1
        await delivery.nak(min(0.05 * 2**delivery.delivered, self._ack_wait))

    async def _bury(self, delivery: Delivery, why: str) -> None:
        """Move an event to the dead letters, from where it can be replayed."""
        await store(
            self._connection,
            self._connection.names.dead(_run_of(delivery)),
            delivery.data,
            what=f"the dead letter of event {delivery.seq}",
            msg_id=f"dead.{delivery.seq}",
            headers={
                "Agentbook-Error": _one_line(why),
                "Agentbook-Subject": delivery.subject,
                "Agentbook-Sequence": str(delivery.seq),
            },
        )
        self.counts["dead"] += 1
        await delivery.ack()

    async def _nap(self, seconds: float) -> None:
        """Sleep, unless the engine is stopped meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _run_of(delivery: Delivery) -> str:
    return delivery.subject.rsplit(".", 1)[-1]


def _key(delivery: Delivery) -> tuple[int, int]:
    return delivery.seq, delivery.delivered


def _one_line(text: str) -> str:
    """A header's value: one line of ASCII."""
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode()[:500]


def _only(error: Exception) -> Exception:
    """The error itself where a group holds just one."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group
    return error
