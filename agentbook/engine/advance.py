"""What an event does to a run: pure, no clock, no network (ENGINE.md, Lifecycle events).

Two tables lead: `_refusal` says which events count, `_NEXT` what an event that
counts does to its step. How the run stands follows from its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from agentbook.protocol.events import StepEvent, StepEventType
from agentbook.protocol.snapshot import TERMINAL, Final, RunSnapshot, Status, StepSnapshot

Reason = Literal["unknown_step", "run_ended", "step_ended", "superseded", "other_iteration", "other_attempt"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event counts: save this snapshot, then ensure its effects."""

    snapshot: RunSnapshot


@dataclass(frozen=True, slots=True)
class Again:
    """The event was accepted before: its effects may be missing, ensure them."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The event does not count; nothing may come of it."""

    reason: Reason


def advance(run: RunSnapshot, event: StepEvent, *, at: str) -> Accepted | Again | Dropped:
    """Decide what an event does to its run.

    Args:
        run: the snapshot as it is stored now.
        event: one event of this run.
        at: this instant (RFC 3339 UTC), recorded where the run ends.
    """
    step = run.steps.get(event.step)
    if step is None:
        return Dropped("unknown_step")
    # Before the question whether the run ended: this very event may have ended it, and
    # whoever saved that may have died before it was published.
    if event.journal_seq == step.accepted_seq:
        return Again()
    refusal = _refusal(run, step, event)
    if refusal is not None:
        return Dropped(refusal)
    accepted = step.model_copy(
        update={
            "accepted_seq": event.journal_seq,
            "head": step.head if event.head is None else event.head,
            "turns": step.turns + event.advancing,
            **_NEXT[event.type](step, event),
        }
    )
    return Accepted(_settle(_with_step(run, event.step, accepted), event, at))


def finish(run: RunSnapshot, final: Final) -> RunSnapshot:
    """The run, ended this way: its step as `final` says, steps still open are cancelled.

    Every way to end goes through here, and only here.
    """
    assert not run.ended, f"run {run.run} has ended as {run.status}"
    steps = {
        name: step
        if step.status in TERMINAL
        else step.model_copy(
            update={"status": final.status if name == final.step else "cancelled", "wait": None, "halt": None}
        )
        for name, step in run.steps.items()
    }
    return run.model_copy(update={"status": final.status, "final": final, "steps": steps})


def dispatched(run: RunSnapshot, names: Iterable[str], *, new_attempt: bool = False) -> RunSnapshot:
    """The run with a next dispatch of these steps, of the same iteration."""
    steps = dict(run.steps)
    for name in names:
        step = steps[name]
        steps[name] = step.model_copy(
            update={
                "status": "running", "dispatch": step.dispatch + 1, "wait": None, "halt": None,
                "attempt": step.attempt + new_attempt,
            }
        )  # fmt: skip
    return run.model_copy(update={"steps": steps, "status": _standing(steps.values())})


def _refusal(run: RunSnapshot, step: StepSnapshot, event: StepEvent) -> Reason | None:
    if run.ended:
        return "run_ended"
    if step.status in TERMINAL:
        return "step_ended"
    if step.accepted_seq is not None and event.journal_seq < step.accepted_seq:
        return "superseded"
    if event.iteration != step.iteration:
        return "other_iteration"
    # An advancing commit counts whatever its attempt: the journal's order decides its race
    # with a time-out, not the engine's counter.
    if event.attempt != step.attempt and not event.advancing:
        return "other_attempt"
    return None


def _continued(step: StepSnapshot, event: StepEvent) -> dict[str, object]:
    following = {"iteration": step.iteration + 1, "attempt": 1, "wait": event.wait, "halt": None}
    if event.wait is not None:
        return {**following, "status": "waiting"}
    return {**following, "status": "running", "dispatch": step.dispatch + 1}


def _paused(step: StepSnapshot, event: StepEvent) -> dict[str, object]:
    if event.reason in ("halt", "parked"):
        return {"status": "halted", "wait": None, "halt": event.cause or event.reason}
    return {"status": "waiting", "wait": event.wait, "halt": None}


def _resolved(step: StepSnapshot, event: StepEvent) -> dict[str, object]:
    return {"status": "running", "dispatch": step.dispatch + 1, "wait": None, "halt": None}


def _ended_as(status: Status) -> Callable[[StepSnapshot, StepEvent], dict[str, object]]:
    return lambda step, event: {"status": status, "wait": None, "halt": None}


_NEXT: dict[StepEventType, Callable[[StepSnapshot, StepEvent], dict[str, object]]] = {
    "step.continue": _continued,
    "step.completed": _ended_as("completed"),
    "step.aborted": _ended_as("aborted"),
    "step.failed": _ended_as("failed"),
    "step.paused": _paused,
    "step.resolved": _resolved,
}


def _settle(run: RunSnapshot, event: StepEvent, at: str) -> RunSnapshot:
    standing = _standing(run.steps.values())
    if standing not in TERMINAL:
        return run.model_copy(update={"status": standing})
    return finish(
        run,
        Final(
            status=standing, journal_seq=event.journal_seq, step=event.step, error=event.error,
            reason=event.reason, at=at,
        ),
    )  # fmt: skip


def _standing(steps: Iterable[StepSnapshot]) -> Status:
    """How a run stands: one step that failed ends it, the last one that completes ends it."""
    statuses = {step.status for step in steps}
    order: tuple[Status, ...] = ("failed", "aborted", "cancelled", "running", "halted", "waiting", "completed")
    return next(status for status in order if status in statuses)


def _with_step(run: RunSnapshot, name: str, step: StepSnapshot) -> RunSnapshot:
    return run.model_copy(update={"steps": {**run.steps, name: step}})
