"""What a tool prints belongs to its run, never to whatever cell ran last (NOTEBOOK.md, Kernel)."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from agentbook.authoring.running import running_call

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_KEPT = 200

Heard = Callable[[str, int, str], None]

_printed: dict[str, deque[tuple[int, str]]] = {}


class Router:
    """A standard output that keeps apart what a running tool prints."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        call = running_call.get()
        if call is None:
            return self._stream.write(text)
        _printed.setdefault(call.run, deque(maxlen=_KEPT)).append((call.position, text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    @property
    def stream(self) -> TextIO:
        """The stream beneath."""
        return self._stream


def printed(run: str) -> str:
    """What the tools of a run have printed in this kernel, the newest lines."""
    return "".join(text for _, text in _printed.get(run, ()))


def capture(shell: InteractiveShell) -> None:
    """Begin to keep tool output apart."""
    if not isinstance(sys.stdout, Router):
        sys.stdout = Router(sys.stdout)  # pyright: ignore[reportAttributeAccessIssue] - it answers as the stream does


def release() -> None:
    """Give standard output back."""
    if isinstance(sys.stdout, Router):
        sys.stdout = sys.stdout.stream
