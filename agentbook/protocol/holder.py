"""The liveness question: who holds a step right now (ENGINE.md, "Liveness is advice")."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from agentbook.broker.connection import Connection

SILENCE = 1.0
"""Seconds without an answer after which a holder counts as stalled."""


class Holder(BaseModel):
    """What a live holder answers.

    Attributes:
        worker: who it is, for people: ``kernel 4188``.
        claim: the id of its claim, which may not be appended yet.
        position: the call it is at.
        since: when it took the step up (RFC 3339 UTC).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    worker: str
    claim: str
    position: int
    since: str

    def encode(self) -> bytes:
        return self.model_dump_json().encode()


@dataclass(frozen=True, slots=True)
class Stalled:
    """Somebody listens and does not answer: the ack wait decides."""


async def ask_holder(connection: Connection, run: str, step: str) -> Holder | Stalled | None:
    """Ask who holds a step; None if nobody listens."""
    try:
        answer = await connection.request(connection.names.holder(run, step), b"", SILENCE)
        return None if answer is None else Holder.model_validate_json(answer)
    except (TimeoutError, ValidationError):
        return Stalled()
