"""Faults at seams of this very process: a real SIGKILL, a real SIGSTOP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from agentbook.errors import ConfigError
from agentbook.seams import SEAMS, Reached, set_hook

FaultKind = Literal["crash", "stall"]

_SIGNALS: dict[FaultKind, signal.Signals] = {"crash": signal.SIGKILL, "stall": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to this process, and where.

    Attributes:
        seam: the seam's name; see `seams`.
        kind: ``crash`` is SIGKILL, ``stall`` is SIGSTOP until somebody sends SIGCONT.
        iteration: only in this turn; None for any.
        tool: only at this tool (or model); None for any.
        nth: at the nth time all that holds, from 1.
    """

    seam: str
    kind: FaultKind = "crash"
    iteration: int | None = None
    tool: str | None = None
    nth: int = 1

    def __post_init__(self) -> None:
        if self.seam not in SEAMS:
            raise ConfigError(f"there is no seam {self.seam!r}; the seams are: {', '.join(SEAMS)}")
        if self.kind not in _SIGNALS:
            raise ConfigError(f"a fault is a 'crash' or a 'stall', not {self.kind!r}")
        if self.nth < 1:
            raise ConfigError(f"nth counts from 1, not {self.nth}")

    def matches(self, reached: Reached) -> bool:
        """True if this is the place."""
        return (
            reached.name == self.seam
            and self.iteration in (None, reached.iteration)
            and self.tool in (None, reached.subject)
        )


def parse_fault(text: str) -> Fault:
    """Read a fault as it is written on a command line.

    Args:
        text: ``SEAM[@ITERATION][:TOOL]``, for example ``inside_tool@1:refund``.

    Raises:
        ConfigError: it is not of that form, or there is no such seam.
    """
    head, _, tool = text.partition(":")
    seam, _, iteration = head.partition("@")
    if iteration and not iteration.isdigit():
        raise ConfigError(f"{text!r}: write SEAM[@ITERATION][:TOOL], for example inside_tool@1:refund")
    return Fault(seam, iteration=int(iteration) if iteration else None, tool=tool or None)


def seams() -> dict[str, str]:
    """Every seam, and what is durable when it is reached."""
    return dict(SEAMS)


def install(fault: Fault) -> None:
    """Arm a fault in this process until it ends. `crash` and `stall` disarm it again."""
    count = 0

    def strike(reached: Reached) -> None:
        nonlocal count
        if fault.matches(reached):
            count += 1
            if count == fault.nth:
                # To this thread: sent to the process, a SIGSTOP lets it run on until another thread has taken it.
                signal.pthread_kill(threading.get_ident(), _SIGNALS[fault.kind])

    set_hook(strike)


@contextmanager
def crash(seam: str, *, iteration: int | None = None, tool: str | None = None, nth: int = 1) -> Generator[Fault]:
    """Kill this process (SIGKILL) at a seam, while the block runs.

    Use it in a child process, for example inside `holder`: it really dies.

    Args:
        seam: its name; see `seams`.
        iteration: only in this turn.
        tool: only at this tool.
        nth: at the nth time all that holds.
    """
    with _armed(Fault(seam, "crash", iteration, tool, nth)) as fault:
        yield fault


@contextmanager
def stall(seam: str, *, iteration: int | None = None, tool: str | None = None, nth: int = 1) -> Generator[Fault]:
    """Stop this process (SIGSTOP) at a seam until it gets SIGCONT. Arguments as for `crash`."""
    with _armed(Fault(seam, "stall", iteration, tool, nth)) as fault:
        yield fault


@contextmanager
def _armed(fault: Fault) -> Generator[Fault]:
    install(fault)
    try:
        yield fault
    finally:
        set_hook(None)
