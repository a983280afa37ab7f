"""Named places where a crash leaves different durable state.

`seam("after_intent", …)` calls a hook if one is set. Only `agentbook.crashlab` sets
one, for tests, teaching and ``agentbook demo``; unset, a seam is one global read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """A seam that was reached.

    Attributes:
        name: the seam's name.
        iteration: the turn it was reached in; -1 where there is none.
        subject: the tool concerned; empty where there is none.
    """

    name: str
    iteration: int
    subject: str


Hook = Callable[[Reached], None]

SEAMS: dict[str, str] = {
    "before_claim": "the task was delivered, nothing is written yet",
    "after_claim": "the claim is stored, no call has run",
    "after_model": "the model answered, its response is stored",
    "after_intent": "the intent is stored, the tool has not started",
    "inside_tool": "the tool's effect has happened, its result is not stored",
    "after_result": "the tool's result is stored",
    "after_spill": "a large value is in the object store, its record is not stored",
    "after_commit": "the commit is stored, its event is not published",
    "after_event": "the commit's event is published, the task is not acknowledged",
    "after_save": "the engine saved the run, its dispatch is not published",
}
"""Every seam's name, and what is durable when it is reached."""

_hook: Hook | None = None


def seam(name: str, iteration: int = -1, subject: str = "") -> None:
    """Reach a seam. Costs one global read unless a hook is set."""
    if _hook is not None:
        _hook(Reached(name, iteration, subject))


def set_hook(hook: Hook | None) -> None:
    """Install the hook that is called at each seam, or remove it with None."""
    global _hook
    _hook = hook
