"""Halts: calls of which nobody knows how they ended, and a person must say it (JOURNAL.md, Resolution)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentbook.errors import ResumeHalt
from agentbook.journal.fold import Fold, PastCall
from agentbook.journal.records import Pause

DIED = "its holder died after starting it"
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Halted:
    """A call that halts its run.

    Attributes:
        call: what the journal holds of it.
        why: why its outcome is unknown.
    """

    call: PastCall
    why: str = DIED

    @property
    def subject(self) -> str:
        """The call's key, by which it is resolved."""
        assert self.call.intent is not None, "a call that was started has an intent"
        return self.call.intent.key


def cause(halted: Sequence[Halted]) -> str:
    """What a pause says of its halted calls, one line for each."""
    return "\n".join(_sentence(each.call) + " ".join(each.why.split())[:_SHOWN] for each in halted)


def standing_halt(fold: Fold) -> Pause | None:
    """The pause for a halt that the newest claim ended with, whatever was resolved since; None if it did not."""
    closed = fold.closed_by
    return closed if isinstance(closed, Pause) and closed.reason == "halt" else None


def open_halts(fold: Fold) -> list[ResumeHalt]:
    """The halts that stop the step now, in order of position; none once each one is resolved."""
    pause = standing_halt(fold)
    return [] if pause is None else [signal(pause, call) for call in _open(fold, pause)]


def signal(pause: Pause, call: PastCall) -> ResumeHalt:
    """A halted call as it is raised."""
    intent = call.intent
    assert intent is not None, "a call that was started has an intent"
    said = _sentence(call)
    lines = (pause.cause or "").splitlines()
    return ResumeHalt(
        pause.run,
        intent.key,
        intent.name,
        next((line.removeprefix(said) for line in lines if line.startswith(said)), ""),
        input=intent.input,
        attempted_at=intent.at,
        partial=tuple(call.partial),
        seq=pause.seq,
    )


def _open(fold: Fold, pause: Pause) -> Iterator[PastCall]:
    for call in sorted(fold.intents.values(), key=lambda call: call.position):
        if call.open and call.intent is not None and call.intent.key in pause.subjects:
            yield call


def _sentence(call: PastCall) -> str:
    assert call.intent is not None, "a call that was started has an intent"
    return f"{call.intent.name} may or may not have happened ({call.intent.key}): "
