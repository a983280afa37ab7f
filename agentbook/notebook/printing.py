"""What a run says belongs to the run, never to whatever cell ran last (NOTEBOOK.md, Kernel)."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterable
from typing import TextIO, cast

from agentbook.authoring.running import running_call
from agentbook.book.portal import on_our_loops

_KEPT = 200

NO_RUN = ""
"""Where the words are kept that no tool said: a model's, or a warning of our own."""

_kept: dict[str, deque[str]] = {}


class Router:
    """A standard stream that keeps apart what is said off the cells."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        call = running_call.get()
        if call is None and not on_our_loops():
            return self.stream.write(text)
        _kept.setdefault(call.run if call else NO_RUN, deque(maxlen=_KEPT)).append(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def printed(run: str = NO_RUN) -> str:
    """What the tools of a run have printed and logged in this kernel, the newest lines."""
    return "".join(_kept.get(run, ()))


def capture() -> None:
    """Begin to keep apart what is said off the cells."""
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        if not isinstance(stream, Router):
            _replace(name, stream, cast("TextIO", Router(stream)))


def release() -> None:
    """Let everything through again."""
    for name in ("stdout", "stderr"):
        router: object = getattr(sys, name)
        if isinstance(router, Router):
            _replace(name, cast("TextIO", router), router.stream)


def _replace(name: str, old: TextIO, new: TextIO) -> None:
    setattr(sys, name, new)
    # A logging handler keeps the stream that it was made with.
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.StreamHandler):
                kept = cast("logging.StreamHandler[TextIO]", handler)
                if kept.stream is old:
                    kept.setStream(new)
