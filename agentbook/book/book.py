"""An open book: one JetStream, an engine and a worker, on two loops of its own (DESIGN.md)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agentbook import codec
from agentbook.authoring import Agent
from agentbook.book.info import RunInfo, info_of
from agentbook.book.portal import Portal, closed, refuse_on_our_loops
from agentbook.book.run import Run
from agentbook.broker.connection import connect
from agentbook.broker.local import Lease, acquire
from agentbook.broker.names import RUNS
from agentbook.broker.target import Target
from agentbook.broker.url import parse
from agentbook.engine import control
from agentbook.engine.purge import purge
from agentbook.engine.service import Engine
from agentbook.engine.start import start
from agentbook.errors import ConfigError, RunNotFound, UsageError, ValueNotJournalable
from agentbook.ids import check_any_run_id, check_run_id, new_run_id
from agentbook.journal.instants import now
from agentbook.journal.redact import Redactor
from agentbook.protocol import runs
from agentbook.protocol.snapshot import RunSnapshot, StepSnapshot
from agentbook.settings import Durability, Settings
from agentbook.worker.holder import Loops
from agentbook.worker.registry import registration_of
from agentbook.worker.worker import Worker

_STOP_SECONDS = 5.0
_FREE_SECONDS = 1.0
_open: list[Book] = []
"""Open books, oldest first. They are held here: a book nobody keeps a name for works on, and `current` finds it."""


class Book:
    """An open connection to one JetStream, with an engine and a worker in this process.

    Made by `agentbook.open`. A context manager; closing it returns promptly whatever is
    running: runs go on elsewhere, or when a book is opened again.

    Attributes:
        settings: how it behaves.
        service: the loop of engine, worker and reads. It runs no user code.
        user: the loop of tools, models and handlers.
        connection: the service loop's connection.
        redactor: knows what this book must not write.
    """

    def __init__(self, target: Target, settings: Settings, lease: Lease | None) -> None:
        self.settings = settings
        self.name = f"{_process_kind()} {os.getpid()}"
        self.target = target
        self._lease = lease
        self._closed = False
        self._closing = threading.Lock()
        self._registered: dict[str, Agent] = {}
        self.redactor = Redactor(settings.secrets)
        self.service = Portal("agentbook-service")
        self.user = Portal("agentbook-user")
        try:
            self.service.call(self._open)
        except BaseException:
            self.close()
            raise
        _open.append(self)

    async def _open(self) -> None:
        self.connection = await connect(self.target, self.settings, provision=True)
        self._user_connection = await asyncio.wrap_future(self.user.submit(connect(self.target, self.settings)))
        loops = Loops(self.connection, self._user_connection, self.user.loop, self.redactor)
        self.worker = Worker(loops, self.settings, self.name)
        await self.worker.start()
        self.engine = Engine(self.connection, self.settings)
        self._engine_task = asyncio.create_task(self.engine.run(), name="engine")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"<Book {'closed' if self._closed else 'open'}>"

    @property
    def embedded(self) -> bool:
        """True if this book uses the embedded server of a folder."""
        return self._lease is not None

    def start(
        self,
        what: Agent,
        input: object = None,  # noqa: A002 - the field's word for it (API.md)
        *,
        run_id: str | None = None,
        labels: dict[str, str] | None = None,
        title: str | None = None,
    ) -> Run:
        """Start a run, or attach to the one that has this id.

        With a `run_id` this is idempotent: the same id and input attach to the run, also
        after a crash of this process, and a run that has ended returns its recorded answer.

        Args:
            what: the agent; it is registered with this book's worker.
            input: what the agent is told first; any value that can be journaled.
            run_id: 1 to 64 letters, digits, '-' and '_'; None for a new one.
            labels: free text, to find it by.
            title: free text, for people.

        Raises:
            RunConflict: the id is taken by a run of another agent or input.
            RunEnded: the run of this id was purged.
            ValueNotJournalable: the input has no stored form.
            ConfigError: the id cannot be used.
        """
        self._check_open()
        run = check_run_id(run_id) if run_id is not None else new_run_id()
        snapshot = RunSnapshot(
            run=run,
            title=None if title is None else self._written("title", title),
            labels={
                self._written("labels", name): self._written("labels", text) for name, text in (labels or {}).items()
            },
            what="agent",
            type=what.name,
            code=what.code,
            input=self.redactor.value(codec.encode(input, "input")),
            created=now(),
            steps={"agent": StepSnapshot()},
        )
        self.register(what)
        self.service.call(self._start, snapshot)
        return Run(self, run)

    def register(self, *what: Agent) -> None:
        """Let this book's worker work on the runs of these agents.

        Raises:
            ConfigError: something else than an agent.
        """
        self._check_open()
        for agent in what:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - people pass functions
                raise ConfigError(f"{agent!r} is not an Agent: write Agent('name', model=…, tools=[…])")
            if self._registered.get(agent.name) is not agent:
                self.service.call(self.worker.register, registration_of(agent))
                self._registered[agent.name] = agent

    def attach(self, run_id: str, *, force: bool = False) -> Run:
        """Take up a run that exists: watch it, and have it go on if nobody works on it.

        A live holder is asked and left alone. A run of an agent that this book has not
        registered waits for a worker that knows it.

        Args:
            force: take it over from a live holder, which is fenced.

        Raises:
            RunNotFound: there is no such run.
        """
        self._check_open()
        check_any_run_id(run_id)
        self.service.call(control.resume, self.connection, run_id, force=force)
        return Run(self, run_id)

    def get(self, run_id: str) -> Run:
        """The handle of a run that exists, only to look at it: nothing is dispatched.

        Raises:
            RunNotFound: there is no such run.
        """
        self._check_open()
        check_any_run_id(run_id)
        if self.service.call(runs.load, self.connection, run_id) is None:
            raise RunNotFound(f"there is no run {run_id!r} in this book; see the runs with `agentbook runs`")
        return Run(self, run_id)

    def runs(self, status: str | None = None, label: str | None = None, limit: int = 50) -> list[RunInfo]:
        """The runs of this book, newest first.

        Args:
            status: only those with this status.
            label: only those with this label: ``name`` or ``name=value``.
            limit: at most so many.
        """
        self._check_open()
        return self.service.call(self._runs, status, label, limit)

    def purge(self, run_id: str) -> None:
        """Remove an ended run for good: its records, values, memos, events and tasks.

        Whoever still holds it can write nothing more. Its id is refused for 30 days.

        Raises:
            RunNotFound: there is no such run.
            UsageError: it has not ended: cancel it first.
        """
        self._check_open()
        check_any_run_id(run_id)
        self.service.call(purge, self.connection, run_id)

    def redact(self, value: str, name: str = "secret") -> None:
        """Keep a text out of everything this book writes from now on; a mark takes its place.

        Args:
            value: the secret, at least 6 characters.
            name: what the mark says.

        Raises:
            ConfigError: it is too short to be replaced.
        """
        self.redactor.add(value, name)

    def _written(self, field: str, text: str) -> str:
        """A text as it is written: without secrets, and only if UTF-8 can carry it."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueNotJournalable(field, "it holds half of a surrogate pair, which UTF-8 cannot carry") from None
        return self.redactor.text(text)

    def status(self) -> dict[str, object]:
        """The state of this book's parts, for people."""
        self._check_open()
        return {
            "server": self.target.url,
            "embedded": self.embedded,
            "connected": self.connection.connected,
            "durability": self.settings.durability if self.embedded else "as the server has it",
            "engine": _health(self.engine),
            "worker": "healthy" if self.worker.healthy else f"not healthy: {self.worker.errors}",
            "types": self.worker.types,
            "holding": self.worker.holding,
        }

    def close(self) -> None:
        """Stop working, give back what is held, and let go of the server.

        Raises:
            UsageError: called inside a tool or a handler.
        """
        refuse_on_our_loops("book.close()")
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self in _open:
                _open.remove(self)
            self._wait_briefly(self._stop())
            opened = hasattr(self, "_user_connection")
            self.user.close(self._user_connection.close if opened else None, patience=_FREE_SECONDS)
            self.service.close()
            if self._lease is not None:
                self._lease.release()

    def _wait_briefly(self, work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(TimeoutError):
            # Bounded: a server that does not answer must not keep the caller either.
            self.service.submit(work).result(_STOP_SECONDS)

    async def _stop(self) -> None:
        if hasattr(self, "worker"):
            await self.worker.stop()
        if hasattr(self, "engine"):
            await self.engine.stop()
            await asyncio.gather(self._engine_task, return_exceptions=True)
        if hasattr(self, "connection"):
            await self.connection.close()

    async def _start(self, snapshot: RunSnapshot) -> None:
        _, created = await start(self.connection, snapshot)
        if not created:
            await control.resume(self.connection, snapshot.run)

    async def _runs(self, status: str | None, label: str | None, limit: int) -> list[RunInfo]:
        found: list[RunSnapshot] = []
        async for stored in self.connection.read(RUNS, self.connection.names.run("*")):
            snapshot = RunSnapshot.model_validate_json(stored.data)
            if (status is None or snapshot.status == status) and _labelled(snapshot, label):
                found.append(snapshot)
        found.sort(key=lambda snapshot: snapshot.created, reverse=True)
        return [info_of(snapshot) for snapshot in found[:limit]]

    def _check_open(self) -> None:
        if self._closed:
            raise closed()


def open(  # noqa: A001 - said as `agentbook.open`, like `gzip.open`
    url: str | None = None,
    *,
    dir: str | Path | None = None,  # noqa: A002 - the setting's name
    durability: Durability | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
) -> Book:
    """Open a book: on the embedded server of a folder, or on a server of yours.

    Args:
        url: a NATS URL, or several with commas; None starts or joins the embedded server.
        dir: folder of the embedded server; default ``.agentbook``.
        durability: ``disk`` (the default) or ``process``; see `Settings`.
        namespace: prefix of all names on the server.
        settings: everything else; the arguments above win over it.

    Raises:
        ConfigError: the arguments contradict each other.
        ServerError: the server cannot serve; the text says what to do.

    Example:
        >>> import agentbook
        >>> with agentbook.open() as book:  # doctest: +SKIP
        ...     print(book.runs())
    """
    refuse_on_our_loops("agentbook.open()")
    given = {"dir": None if dir is None else Path(dir), "durability": durability, "namespace": namespace}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = replace(settings or Settings.from_environment(), **chosen)  # pyright: ignore[reportArgumentType]
    if url is None:
        lease = acquire(settings)
        return Book(lease.target, settings, lease)
    if durability is not None or dir is not None:
        raise ConfigError("dir and durability belong to the embedded server: leave them out with a URL")
    return Book(parse(url), settings, None)


def current() -> Book:
    """The book that was opened last and is still open.

    Raises:
        UsageError: none is open.
    """
    if _open:
        return _open[-1]
    raise UsageError("no book is open: write `%agentbook up` in a notebook, or agentbook.open() in a script")


def _health(engine: Engine) -> str:
    if engine.healthy:
        return "healthy"
    return "starting" if engine.error is None else f"not healthy: {engine.error}"


def _labelled(snapshot: RunSnapshot, label: str | None) -> bool:
    if label is None:
        return True
    name, given, value = label.partition("=")
    return name in snapshot.labels and (not given or snapshot.labels[name] == value)


def _process_kind() -> str:
    import sys

    return "kernel" if "ipykernel" in sys.modules else "process"


@atexit.register
def _close_all() -> None:
    """Give running tasks back at exit, so that the next process need not wait for them."""
    for book in list(_open):
        book.close()
