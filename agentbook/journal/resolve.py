"""Saying how a halted call ended: one record that fences like a claim (JOURNAL.md, Resolution)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from agentbook import codec
from agentbook.broker.connection import Connection
from agentbook.errors import AlreadyResolved, HaltInFlight, HaltTooYoung, NotHalted, RunEnded
from agentbook.ids import new_claim_id
from agentbook.journal.append import Lost, Place, Writer
from agentbook.journal.fold import Fold, PastCall
from agentbook.journal.halts import open_halts, standing_halt
from agentbook.journal.load import FoldCache, load, read_journal
from agentbook.journal.records import ErrorInfo, Resolution, ToolIntent
from agentbook.journal.redact import Redactor
from agentbook.journal.spill import filled


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended, as somebody says.

    Attributes:
        value: what it returned, if it happened.
        error: what it raised, if it failed.
        by: who says so.
        evidence: how they know.
    """

    outcome: Literal["happened", "failed", "did_not_happen"]
    by: str
    value: JsonValue = None
    error: ErrorInfo | None = None
    evidence: str | None = None

    def record(self, of: int) -> Resolution:
        """The record that says it of the intent at a sequence."""
        fields: dict[str, object] = {"of": of, "outcome": self.outcome, "by": self.by}
        if self.outcome == "happened":
            fields["value"] = self.value
        if self.outcome == "failed":
            fields["error"] = self.error
        if self.evidence is not None:
            fields["evidence"] = self.evidence
        return Resolution.model_validate(fields)

    def same_as(self, standing: Resolution) -> bool:
        """True if both say the same of the call, whoever says it and however they know."""
        if self.outcome != standing.outcome:
            return False
        if self.outcome == "failed":
            return _said(self.error) == _said(standing.error)
        return self.outcome == "did_not_happen" or codec.equal(self.value, standing.value)


async def resolve(
    connection: Connection,
    place: tuple[str, str],
    subject: str,
    answer: Answer,
    *,
    deadline: float,
    redactor: Redactor,
    head: int | None = None,
    min_age: float | None = None,
    ended: str | None = None,
) -> Resolution | None:
    """Say how a halted call ended. The first answer stands; the same one again is fine.

    Args:
        place: the run and the step.
        subject: the call's key.
        deadline: seconds for which an undecided append is tried again.
        min_age: refuse if the call was started less than so many seconds ago.
        ended: the run's status if it has ended: nothing new is written then.

    Returns:
        The record that sets the step going again, once no call halts it any more; None while one does, or
        if it has gone on already.

    Raises:
        NotHalted: no such call is open.
        HaltInFlight: a holder was here after the halt.
        HaltTooYoung: the call may still be running.
        AlreadyResolved: somebody said something else.
        RunEnded: the run has ended.
    """
    run, step = place
    answer = replace(answer, value=redactor.value(answer.value))  # as it is stored: a repeat compares like with like
    while True:
        fold = await load(connection, run, step, head, FoldCache())
        calls = [call for call in fold.intents.values() if call.intent is not None and call.intent.key == subject]
        pause = standing_halt(fold)
        if pause is None or subject not in [halt.subject for halt in open_halts(fold)]:
            standing = _last_said(calls) if calls else await _in_the_past(connection, place, subject)
            if standing is None:
                raise _not_now(fold, run, subject, calls)
            if not answer.same_as(standing):
                raise _already(subject, standing)
            return await _sets_going(connection, place, fold)
        if ended is not None:
            raise RunEnded(f"run {run} is {ended}: it needs no answer any more")
        intent = calls[-1].intent
        assert intent is not None, "a call that was started has an intent"
        _check_age(subject, intent, min_age)
        at = Place(run, step, pause.iteration, pause.attempt)
        writer = Writer(connection, at, new_claim_id(), fold, deadline=deadline, redactor=redactor)
        try:
            record = await writer.append_claim(answer.record(intent.seq), what=f"the resolution of {intent.name}")
        except Lost:
            continue
        assert isinstance(record, Resolution)
        return None if open_halts(writer.fold) else record


def _last_said(calls: Sequence[PastCall]) -> Resolution | None:
    """What was said of a call last; each ``did_not_happen`` leads to another start of it."""
    said = [call.resolution for call in calls if call.resolution is not None]
    return said[-1] if said else None


def _not_now(fold: Fold, run: str, subject: str, calls: Sequence[PastCall]) -> NotHalted | HaltInFlight:
    """Why a call of which nobody has said anything cannot be resolved."""
    halts = open_halts(fold)
    others = f". Halted is: {', '.join(halt.subject for halt in halts)}" if halts else ""
    if not calls:
        return NotHalted(f"run {run} has no halted call {subject}{others}")
    newest = calls[-1]
    assert newest.intent is not None, "a call that was started has an intent"
    if newest.result is not None:
        return NotHalted(f"{newest.intent.name} ({subject}) has its result, record {newest.result.seq}{others}")
    assert fold.holder is not None, "a call has a claim"
    return HaltInFlight(
        f"{newest.intent.name} ({subject}) cannot be resolved now: the run is not halted for it, "
        f"{fold.holder.worker} took it up at record {fold.holder.seq}. Resolve it once the run halts."
    )


def _already(subject: str, standing: Resolution) -> AlreadyResolved:
    said = standing.error if standing.outcome == "failed" else standing.value
    text = f": {said.type}: {said.message}" if isinstance(said, ErrorInfo) else ""
    if standing.outcome == "happened":
        text = f": {codec.canonical(standing.value).decode('utf-8', 'backslashreplace')[:200]}"
    return AlreadyResolved(subject, standing.outcome, standing.by, standing.at, text)


def _check_age(subject: str, intent: ToolIntent, min_age: float | None) -> None:
    if min_age is None:
        return
    try:
        age = (datetime.now(UTC) - datetime.fromisoformat(intent.at)).total_seconds()
    except (ValueError, TypeError):
        age = None
    if age is None or age < min_age:  # one in the future is negative
        raise HaltTooYoung(subject, age, min_age)


async def _sets_going(connection: Connection, place: tuple[str, str], fold: Fold) -> Resolution | None:
    """The resolution at the tail, whose event may have been lost with its writer."""
    if standing_halt(fold) is None or open_halts(fold):
        return None
    tail = (await read_journal(connection, *place, start=fold.upto))[-1]
    return tail if isinstance(tail, Resolution) else None


async def _in_the_past(connection: Connection, place: tuple[str, str], subject: str) -> Resolution | None:
    """What was said of a call of an earlier turn, which the fold has forgotten."""
    intents: dict[int, ToolIntent] = {}
    found: Resolution | None = None
    for record in await read_journal(connection, *place):
        if isinstance(record, ToolIntent) and record.key == subject:
            intents[record.seq] = record
        elif isinstance(record, Resolution) and record.of in intents:
            found = record
    if found is None:
        return None
    whole = await filled(connection, found)
    assert isinstance(whole, Resolution)
    return whole


def _said(error: ErrorInfo | None) -> tuple[str, str] | None:
    return None if error is None else (error.type, error.message)
