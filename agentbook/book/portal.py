"""A thread with an event loop of its own, and the ways into it (DESIGN.md, Two loops)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from agentbook.errors import UsageError

T = TypeVar("T")
P = ParamSpec("P")

_here = threading.local()


class Portal:
    """One loop on one daemon thread. It has one owner, who closes it.

    Attributes:
        name: the thread's name.
        loop: its event loop.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = asyncio.new_event_loop()
        self._last: Callable[[], Coroutine[Any, Any, None]] | None = None
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop; its future can be awaited from anywhere.

        Raises:
            UsageError: the portal is closed.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            if not self.loop.is_closed():
                raise
            raise closed() from None

    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function on the loop and wait for it.

        Raises:
            UsageError: called on one of the book's own loops, where waiting would hang.
        """
        refuse_on_our_loops("this call of a book or a run")
        future = self.submit(function(*args, **kwargs))
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise closed() from None
        except BaseException:
            # An interrupt frees the caller; what it asked for must not go on behind its back.
            future.cancel()
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None, *, patience: float = 5.0) -> None:
        """Run `last`, cancel what is left on the loop, stop it, and wait for its thread.

        A loop that user code blocks does all this once it is free; nobody waits for it.

        Args:
            patience: seconds to wait for the thread.
        """
        if self.loop.is_closed():
            return
        self._last = last
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(patience)

    def _run(self, started: threading.Event) -> None:
        _here.portal = self
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        try:
            self.loop.run_forever()
            if self._last is not None:
                with contextlib.suppress(TimeoutError):
                    self.loop.run_until_complete(asyncio.wait_for(self._last(), 2.0))
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                # Bounded: a task that refuses to end must not keep the process.
                self.loop.run_until_complete(asyncio.wait(left, timeout=2.0))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


def on_our_loops() -> bool:
    """True on the threads of the loops: where no cell and no script runs."""
    return getattr(_here, "portal", None) is not None


def refuse_on_our_loops(name: str) -> None:
    """Say what to do where a synchronous call would wait for the very loop it blocks."""
    if on_our_loops():
        raise UsageError(
            f"{name} waits, and it was called inside a tool, a handler or a model: that would block the loop it "
            "waits for. Write `await asyncio.to_thread(book.…)` there, or make the tool a plain function."
        )


def closed() -> UsageError:
    """What is raised by whatever is called on a closed book, or waits while it closes."""
    return UsageError("this book is closed: open it again with agentbook.open(). Its runs go on where they are.")
