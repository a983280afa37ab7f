"""The magics. Each is one Python call, which its help names."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

import agentbook
from agentbook.authoring import Agent
from agentbook.book import Book, Run
from agentbook.book.stopping import detached
from agentbook.broker import local
from agentbook.errors import AgentbookError, RunConflict
from agentbook.notebook.arguments import Arguments
from agentbook.notebook.printing import printed
from agentbook.notebook.views import show
from agentbook.protocol.snapshot import TERMINAL

_SHOWN_SECONDS = 5.0

F = TypeVar("F", bound=Callable[..., object])


def _told(magic: F) -> F:
    """Show an error of ours as one line, without a traceback."""

    @functools.wraps(magic)
    def call(*args: object) -> object:
        try:
            return magic(*args)
        except AgentbookError as error:
            raise UsageError(str(error)) from None

    return cast("F", call)


@magics_class
class AgentbookMagics(Magics):
    """``%agentbook``, ``%%turn`` and the views of a run."""

    @line_magic
    @no_var_expand
    @_told
    def agentbook(self, line: str) -> Book | None:
        """The server and the book: ``%agentbook up|down|status|connect URL``.

        up [--dir DIR] [--durability disk|process]   agentbook.open(dir=…, durability=…); the same book if one is open
        connect URL                                  agentbook.open(URL)
        status                                       agentbook.current().status()
        down                                         agentbook.current().close(), and stops the folder's server
        """
        arguments = Arguments("%agentbook", hint="See %agentbook?")
        arguments.add_argument("action", choices=["up", "down", "status", "connect"])
        arguments.add_argument("url", nargs="?", metavar="URL")
        arguments.add_argument("--dir")
        arguments.add_argument("--durability", choices=["disk", "process"])
        given = arguments.read(line)
        if given.action == "connect":
            if given.url is None:
                raise UsageError("say where: %agentbook connect nats://127.0.0.1:4222")
            return agentbook.open(given.url)
        if given.url is not None:
            raise UsageError(
                f"%agentbook {given.action} takes no URL; to use a server of yours: %agentbook connect URL"
            )
        if given.action == "up":
            book = _open_book()
            if book is None:
                return agentbook.open(dir=given.dir, durability=given.durability)
            if given.dir is not None and Path(given.dir).absolute() != book.settings.dir.absolute():
                raise UsageError(f"a book is open in {book.settings.dir}: write `%agentbook down` first")
            if given.durability not in (None, book.settings.durability):
                raise UsageError(
                    f"the open book has durability {book.settings.durability}: write `%agentbook down` first"
                )
            return book
        book = agentbook.current()
        if given.action == "status":
            for name, value in book.status().items():
                print(f"{name:<11} {value}")  # noqa: T201 - it is what the magic is for
            if heard := printed():
                print(f"\nwhat models printed, and warnings:\n{heard}")  # noqa: T201
            return None
        book.close()
        if book.embedded:
            local.down(book.settings)
        print("down: the book is closed; its runs are kept, %agentbook up opens it again")  # noqa: T201
        return None

    @cell_magic
    @no_var_expand
    @_told
    def turn(self, line: str, cell: str) -> object:
        """Start a run of an agent with the cell's text: ``%%turn AGENT [--run ID] [--wait] [-o NAME]``.

        The same as ``agentbook.current().start(AGENT, text, run_id=ID)``. Returns at once, with a live view;
        with --wait the cell ends when the run does, and its value is the answer. With --run ID the cell may be
        run again at any time, after a crash too: the same text attaches to the run, and what finished is not
        repeated. -o NAME keeps the run under that name.
        """
        arguments = Arguments("%%turn", hint="The cell's text is the message")
        arguments.add_argument("agent", metavar="AGENT")
        arguments.add_argument("--run", metavar="ID")
        arguments.add_argument("--wait", action="store_true")
        arguments.add_argument("-o", dest="name", metavar="NAME")
        given = arguments.read(line)
        text = cell.strip()
        if not text:
            raise UsageError(f"the cell is empty: write the message to {given.agent} below the first line")
        agent = self._agent(given.agent)
        try:
            run = agentbook.current().start(agent, text, run_id=given.run)
        except RunConflict as error:
            raise UsageError(f"{error}\nTo begin another run, write another --run.") from None
        if given.name:
            self.user_namespace[given.name] = run
        return _waited(run) if given.wait else run

    @line_magic
    @_told
    def timeline(self, line: str) -> None:
        """The live timeline of a run: ``%timeline RUN``. ``run.timeline`` is the same as it stands now."""
        show(self._run("%timeline", line))

    @line_magic
    @_told
    def graph(self, line: str) -> object:
        """The graph of what happened: ``%graph RUN [--format auto|mermaid|svg]``, ``run.graph()``."""
        arguments = Arguments("%graph")
        arguments.add_argument("run", metavar="RUN")
        arguments.add_argument("--format", choices=["auto", "mermaid", "svg"], default="auto")
        given = arguments.read(line)
        return self._handle(given.run).graph().shown_as(given.format)

    @line_magic
    @_told
    def journal(self, line: str) -> object:
        """The records of a run as a DataFrame: ``%journal RUN``, ``run.frame()``."""
        return self._run("%journal", line).frame()

    @line_magic
    @_told
    def check(self, line: str) -> object:
        """Audit a run's journal: ``%check RUN``, ``run.check()``."""
        return self._run("%check", line).check()

    @line_magic
    @_told
    def attach(self, line: str) -> Run:
        """Take up a run that exists: ``%attach RUN [--force]``, ``agentbook.current().attach(RUN)``.

        Nothing that finished is repeated. A live holder elsewhere is left alone, unless --force fences it.
        """
        arguments = Arguments("%attach")
        arguments.add_argument("run", metavar="RUN")
        arguments.add_argument("--force", action="store_true")
        given = arguments.read(line)
        book = agentbook.current()
        run = book.attach(given.run, force=given.force)
        kind = run.info.type
        if kind not in book.worker.types and run.status == "running":
            print(f"waiting for a worker that knows {kind}: run the cell that defines it, then %attach again")  # noqa: T201
        return run

    @property
    def user_namespace(self) -> dict[str, Any]:
        """The names of the notebook."""
        assert self.shell is not None
        return cast("dict[str, Any]", self.shell.user_ns)  # pyright: ignore[reportUnknownMemberType] - IPython leaves it untyped

    def _run(self, magic: str, line: str) -> Run:
        arguments = Arguments(magic)
        arguments.add_argument("run", metavar="RUN")
        return self._handle(arguments.read(line).run)

    def _handle(self, text: str) -> Run:
        """A run by its id, or by the name of a handle in the notebook."""
        named = self.user_namespace.get(text)
        return named if isinstance(named, Run) else agentbook.current().get(text)

    def _agent(self, text: str) -> Agent:
        """An agent by its own name, or by its name in the notebook; the newest definition wins."""
        named = self.user_namespace.get(text)
        if isinstance(named, Agent):
            return named
        agents = {value.name: value for value in self.user_namespace.values() if isinstance(value, Agent)}
        if text in agents:
            return agents[text]
        known = ", ".join(sorted(agents)) or "none: run the cell that defines one"
        raise UsageError(f"there is no agent {text!r} in this notebook; the agents are: {known}")


async def _waited(run: Run) -> object:
    shown = show(run)
    try:
        return await run
    except AgentbookError as error:
        raise UsageError(str(error)) from None
    except asyncio.CancelledError:
        # Nothing but the stop button cancels a cell; it may have been pressed before `await run` could see it.
        raise KeyboardInterrupt(detached(run.id)) from None
    finally:
        if run.info.status in TERMINAL:
            # In this cell still: what comes after it is dropped by tools that execute notebooks.
            await asyncio.wait([asyncio.wrap_future(shown)], timeout=_SHOWN_SECONDS)


def _open_book() -> Book | None:
    try:
        return agentbook.current()
    except agentbook.UsageError:
        return None
