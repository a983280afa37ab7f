"""The stop button of a notebook, told apart from every other cancellation of an await."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_button() -> Generator[Callable[[], bool]]:
    """Watch the stop button while a cell awaits; what is yielded says whether it was pressed.

    A kernel turns SIGINT into a cancellation of the cell's task, which looks just like that of a
    time-out, or of a task of the user's own. Only the cell's task may raise KeyboardInterrupt
    instead: from any other one it would end the kernel's loop.
    """
    pressed = False
    if not _in_the_task_of_a_cell():
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        if signal.getsignal(signal.SIGINT) is press:
            signal.signal(signal.SIGINT, before)


def detached(run: str) -> str:
    """What the stop button did, and how to go on."""
    return (
        f"this cell no longer waits for run {run}, which goes on. Wait again with `await run`, "
        "look with `run`, end it with `run.cancel()`."
    )


def _in_the_task_of_a_cell() -> bool:
    if "ipykernel" not in sys.modules or threading.current_thread() is not threading.main_thread():
        return False
    task = asyncio.current_task()
    # IPython runs a cell that awaits as this coroutine; it shows whatever is raised in it.
    return task is not None and getattr(task.get_coro(), "__name__", "") == "run_cell_async"
