"""The task message that asks for a holder (ENGINE.md, Runs, steps, dispatch)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agentbook.errors import FormatVersion

VERSION = 1


class Dispatch(BaseModel):
    """One numbered dispatch of a step. The run's input is in the snapshot, not here.

    Attributes:
        dispatch: its number `d` within the step: 1, 2, 3 …
        journal_seq: the last journal record the engine has accepted, or None.
        head: the sequence of the journal's first record, or None before there is one.
        trace: a W3C traceparent, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = VERSION
    run: str
    step: str
    dispatch: int
    iteration: int
    attempt: int
    journal_seq: int | None = None
    head: int | None = None
    trace: str | None = None

    def encode(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, data: bytes) -> Dispatch:
        """Read a task message.

        Raises:
            FormatVersion: it was written by another version.
        """
        dispatch = cls.model_validate_json(data)
        if dispatch.v != VERSION:
            raise FormatVersion(
                f"task of run {dispatch.run} has format version {dispatch.v}, this agentbook reads {VERSION}"
            )
        return dispatch
