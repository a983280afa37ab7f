"""What a book and a run tell about themselves."""

from __future__ import annotations

from dataclasses import dataclass

from agentbook.protocol.snapshot import RunSnapshot


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line about a run.

    Attributes:
        created: RFC 3339 time at which it was started.
        turns: iterations that ended.
        cause: why it failed or halted, or None.
    """

    id: str
    type: str
    status: str
    created: str
    turns: int
    title: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        output: what its last turn completed with.
        usage: what the models reported, summed by name; empty if they report nothing.
        turns: iterations that ended.
        duration: seconds from the first record to the last.
        ran: calls that ran, by whichever holder.
        replayed: calls that a later holder took from the journal instead of running them.
    """

    output: object
    usage: dict[str, float]
    turns: int
    duration: float
    ran: int
    replayed: int


def info_of(snapshot: RunSnapshot) -> RunInfo:
    """One line about a run, from its snapshot."""
    steps = snapshot.steps.values()
    final = snapshot.final
    error = final.error if final else None
    halt = next((step.halt for step in steps if step.halt), None)
    return RunInfo(
        id=snapshot.run,
        type=snapshot.type,
        status=snapshot.status,
        created=snapshot.created,
        turns=sum(step.turns for step in steps),
        title=snapshot.title,
        labels=tuple(sorted(snapshot.labels.items())),
        cause=f"{error.type}: {error.message}" if error else (final.reason if final else None) or halt,
    )
