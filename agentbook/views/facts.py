"""What a view is told beside the records: things that the journal does not hold."""

from __future__ import annotations

from dataclasses import dataclass

from agentbook.protocol.snapshot import Status


@dataclass(frozen=True, slots=True)
class Live:
    """The holder that is at work, as it answers the liveness question.

    Attributes:
        claim: its claim.
        position: the position its replay cursor stands at: the call it makes now or next.
        call: the name of the call it makes there, ``model`` for a model call; None if it does not say.
    """

    claim: str
    position: int
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A write that the fence refused.

    Attributes:
        claim: the older claim that tried to write.
        what: what it wanted to record, for example ``result of refund``.
    """

    claim: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts about a run.

    Attributes:
        run: its id; taken from the records if left empty.
        agent: the name of its agent, workflow or handler.
        status: what the engine says; None if it was not asked.
        live: who is at work on it.
        nobody: the liveness question found no holder.
        violations: what the check found wrong; None if it was not run.
        refused: writes that the fence refused.
    """

    run: str = ""
    agent: str | None = None
    status: Status | None = None
    live: Live | None = None
    nobody: bool = False
    violations: int | None = None
    refused: tuple[Refused, ...] = ()
