"""Every exception of agentbook, in one tree.

AgentbookError                      something a caller can handle
├── ConfigError                     a setting, an id or a declaration is wrong
├── UsageError                      the call is right, but not here or not now
├── ServerError                     the nats-server cannot serve us
│   ├── ServerNotFound
│   ├── ServerTooOld
│   ├── JetStreamDisabled
│   └── StoreUnavailable
├── MissingExtra                    an optional dependency is not installed
├── ValueNotJournalable             a value has no stored form
├── PayloadTooLarge
├── JournalError
│   ├── ReplayMismatch              the code no longer does what the journal holds
│   ├── JournalTruncated            records that must be there are gone
│   ├── JournalUnavailable          no answer until the append deadline
│   ├── JournalFull
│   ├── FormatVersion               written by another version of the format
│   ├── ConcurrentUse
│   └── CallLimit
├── RunFailed                       how a run ended or stands
├── RunHalted
├── RunWaiting
├── RunCancelledError
├── SagaAborted
├── RunEnded
├── RunConflict
├── RunNotFound
├── HeldElsewhere
├── InputsQueued
├── BudgetExceeded
├── LoopBound
├── NotHalted                       why a resolution was refused
├── HaltInFlight
├── HaltTooYoung
├── AlreadyResolved
├── OutcomeUnknown                  raised by tools and steps to say what they know
├── NotStarted
└── ToolError                       stands in for what a tool raised, also after a resume

Signal (BaseException)              not failures: pass them on
├── Settled                         the delivery is decided, nothing is left to do
│   ├── Stale                       a later iteration or attempt is under way
│   ├── Fenced                      a newer claim took over
│   ├── Committed                   this attempt has already committed
│   ├── RestartLimit                too many claims in a row without progress
│   └── RunCancelled
└── Paused                          the run waits, no holder is kept
    ├── ResumeHalt
    ├── QuestionPending
    └── Sleeping

Signals derive from `BaseException` so that ``except Exception`` in a tool or a
handler cannot swallow them (JOURNAL.md, Open).
"""

from __future__ import annotations

from collections.abc import Sequence


class AgentbookError(Exception):
    """Base class of every error that agentbook raises."""


class ConfigError(AgentbookError):
    """A setting, an id or a declaration is wrong. Raised before anything is written."""


class UsageError(AgentbookError):
    """The call itself is fine, but not in this place or state; the text says what to do instead."""


class ServerError(AgentbookError):
    """The nats-server cannot serve this book."""


class ServerNotFound(ServerError):
    """No server answers, or no server binary is installed."""


class ServerTooOld(ServerError):
    """The server lacks a feature that agentbook needs.

    Attributes:
        version: what the server says it is.
        needed: the oldest version that serves.
    """

    def __init__(self, version: str, needed: str) -> None:
        super().__init__(
            f"nats-server {version} is too old: agentbook needs {needed} or newer (message schedules). "
            "Upgrade the server, or leave the URL out to use the embedded one."
        )
        self.version = version
        self.needed = needed


class JetStreamDisabled(ServerError):
    """The server runs without JetStream."""


class StoreUnavailable(ServerError):
    """The folder for the server's store cannot be used."""


class MissingExtra(AgentbookError):
    """An optional dependency is not installed.

    Attributes:
        extra: the extra that brings it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'agentbook[{extra}]'")
        self.extra = extra


class ValueNotJournalable(AgentbookError):
    """A value has no stored form that would come back with the same type.

    Attributes:
        path: where in the value, for example ``result.items[3].when``.
        reason: why it cannot be stored.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be journaled: {reason}")
        self.path = path
        self.reason = reason


class PayloadTooLarge(AgentbookError):
    """A record is larger than the server accepts.

    Attributes:
        what: the tool, model or value it belongs to.
        size: its size, in bytes.
        limit: what the server accepts, in bytes.
    """

    def __init__(self, what: str, size: int, limit: int, advice: str = "raise the server's max_payload") -> None:
        super().__init__(
            f"{what} is {size:,} bytes, the server accepts {limit:,}. "
            f"Return less, store the value elsewhere and return a reference, or {advice}."
        )
        self.what = what
        self.size = size
        self.limit = limit


class JournalError(AgentbookError):
    """The journal of a run could not be read, matched or written."""


class ReplayMismatch(JournalError):
    """The code asked for another call than the one recorded at this position.

    Attributes:
        position: the call's position within the turn.
        recorded: what the journal holds there.
        attempted: what the code asked for.
    """

    def __init__(self, position: int, recorded: str, attempted: str, cause: str = "") -> None:
        super().__init__(
            f"replay mismatch at position {position}:\n"
            f"  recorded:  {recorded}\n"
            f"  attempted: {attempted}\n"
            + (f"{cause}\n" if cause else "")
            + "Nothing was written. Bring the old code back and resume, or `run.retry()` to begin the turn again."
        )
        self.position = position
        self.recorded = recorded
        self.attempted = attempted


class JournalTruncated(JournalError):
    """Records of this run that must exist are gone, so it cannot be resumed safely."""


class JournalUnavailable(JournalError):
    """The server did not decide an append before the deadline; nothing is guessed."""


class JournalFull(JournalError):
    """The journal's stream is full."""


class FormatVersion(JournalError):
    """A record or snapshot was written in a format this version does not read."""


class ConcurrentUse(JournalError):
    """Two calls used one journal handle at once."""


class CallLimit(JournalError):
    """An iteration made more calls than its bound."""


class RunFailed(AgentbookError):
    """A run ended in failure.

    Attributes:
        run: the run's id.
        error_type: the type name of what was raised.
        error_message: its text.
        reason: why the engine ended it, for example ``restart_limit``; else None.
    """

    def __init__(self, run: str, error_type: str, error_message: str, reason: str | None = None) -> None:
        super().__init__(f"run {run} failed: {error_type}: {error_message}")
        self.run = run
        self.error_type = error_type
        self.error_message = error_message
        self.reason = reason


class RunHalted(AgentbookError):
    """A run stopped and needs a person or other code before it goes on.

    Attributes:
        run: the run's id.
        cause: what stopped it.
        halt: the halt to resolve, where there is one.
    """

    def __init__(self, run: str, cause: str, halt: ResumeHalt | None = None) -> None:
        how = f"run.resolve({halt.subject!r}, …) with value=…, error=… or did_not_happen=True" if halt else ""
        super().__init__(f"run {run} is halted: {cause}" + (f". Say how it ended: {how}" if halt else ""))
        self.run = run
        self.cause = cause
        self.halt = halt


class RunWaiting(AgentbookError):
    """A run waits; only raised where the caller asked not to wait with it."""


class RunCancelledError(AgentbookError):
    """A run was cancelled.

    Attributes:
        run: the run's id.
        reason: what the canceller said, or None.
    """

    def __init__(self, run: str, reason: str | None = None) -> None:
        super().__init__(f"run {run} was cancelled" + (f": {reason}" if reason else ""))
        self.run = run
        self.reason = reason


class SagaAborted(AgentbookError):
    """A saga failed and was rolled back."""


class RunEnded(AgentbookError):
    """The run has ended; nothing more can be added to it."""


class RunConflict(AgentbookError):
    """The run id is taken by a run of another agent, input or driver."""


class RunNotFound(AgentbookError):
    """There is no run of this id in this book."""


class HeldElsewhere(AgentbookError):
    """Another live holder drives this run.

    Attributes:
        run: the run's id.
        holder: who holds it, for example ``kernel 4188``.
    """

    def __init__(self, run: str, holder: str, step: str = "") -> None:
        at = f" in {step}" if step else ""
        super().__init__(
            f"run {run} is held by {holder}{at}. Watch it with book.attach({run!r}), "
            "or take it over with force=True (this fences the other holder)."
        )
        self.run = run
        self.holder = holder


class InputsQueued(AgentbookError):
    """Inputs are queued that the wait would have been woken by: place them first."""


class BudgetExceeded(AgentbookError):
    """A budget of the run or its tree is used up."""


class LoopBound(AgentbookError):
    """A loop reached one of its bounds.

    Attributes:
        bound: the bound's name.
        limit: its value.
        reached: the figure reached.
    """

    def __init__(self, bound: str, limit: float, reached: float) -> None:
        super().__init__(f"{bound} reached: the limit is {limit:g}, this would be {reached:g}")
        self.bound = bound
        self.limit = limit
        self.reached = reached


class NotHalted(AgentbookError):
    """The run is not halted, so there is nothing to resolve."""


class HaltInFlight(AgentbookError):
    """Something was written after the halt: read the run again before resolving it."""


class HaltTooYoung(AgentbookError):
    """The halted call may still be running; wait until it is older.

    Attributes:
        subject: its key.
        age: seconds since it was started; None if that is not known.
        min_age: seconds that must have passed.
    """

    def __init__(self, subject: str, age: float | None, min_age: float) -> None:
        known = "when it was started is not known" if age is None else f"it was started {age:.1f} s ago"
        super().__init__(f"{subject} may still be running: {known}, min_age is {min_age:g} s. Try again later.")
        self.subject = subject
        self.age = age
        self.min_age = min_age


class AlreadyResolved(AgentbookError):
    """The halt was resolved before, with another answer, which stands.

    Attributes:
        subject: the call's key.
        outcome: ``happened``, ``failed`` or ``did_not_happen``.
        by: who said so.
        when: RFC 3339 time at which they did.
    """

    def __init__(self, subject: str, outcome: str, by: str, when: str, said: str = "") -> None:
        super().__init__(f"{subject} is resolved already: {by} said {outcome}{said} ({when}); that stands")
        self.subject = subject
        self.outcome = outcome
        self.by = by
        self.when = when


class OutcomeUnknown(AgentbookError):
    """Raise it in a tool or step: the effect may or may not have happened."""


class NotStarted(AgentbookError):
    """Raise it in a tool or step: the effect certainly did not happen."""


class ToolError(AgentbookError):
    """Stands in for the exception a tool raised: its recorded type name and message.

    Attributes:
        type: the type name of what was raised.
        message: its text.
    """

    def __init__(self, type: str, message: str) -> None:  # noqa: A002 - the journal's word for it
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class Signal(BaseException):
    """Not a failure: control flow of the worker. Pass it on."""


class Settled(Signal):
    """This delivery is decided; the worker knows what to do with its task message."""


class Stale(Settled):
    """A later iteration, attempt or dispatch of the step is under way."""


class Fenced(Settled):
    """A newer claim took this run over; this holder can write nothing more.

    Attributes:
        run: the run's id.
        by: who fenced this holder, for example ``kernel 4188``.
        at: the sequence of the record that did it.
        when: RFC 3339 time of that record, for people.
    """

    def __init__(self, run: str, by: str, at: int, when: str) -> None:
        super().__init__(f"fenced: {by} took over run {run} at record {at} ({when})")
        self.run = run
        self.by = by
        self.at = at
        self.when = when


class Committed(Settled):
    """This iteration has its commit, or this dispatch its pause; its event must be published again.

    Attributes:
        seq: the sequence of that record.
    """

    def __init__(self, seq: int) -> None:
        super().__init__(f"already committed at record {seq}")
        self.seq = seq


class RestartLimit(Settled):
    """The step was claimed too often in a row without progress.

    Attributes:
        seq: the sequence of the commit that records the failure.
        limit: the limit.
    """

    def __init__(self, seq: int, limit: int) -> None:
        super().__init__(f"restart limit: claimed {limit} times in a row with nothing between")
        self.seq = seq
        self.limit = limit


class RunCancelled(Settled):
    """The run was cancelled while this holder worked on it."""


class Paused(Signal):
    """The run stops inside an iteration and keeps no holder."""


class ResumeHalt(Paused):
    """An effect may or may not have happened, and a person or reconciler must say which.

    Attributes:
        run: the run that holds the open call.
        subject: its idempotency key: what `Run.resolve` is told.
        name: the tool's or step's name.
        cause: why the outcome is unknown.
        input: what it was called with.
        attempted_at: RFC 3339 time at which it was started.
        partial: what it had emitted.
        seq: the sequence of the pause that records the halt.
    """

    def __init__(
        self,
        run: str,
        subject: str,
        name: str,
        cause: str = "",
        *,
        input: object = None,  # noqa: A002 - the journal's word for it
        attempted_at: str = "",
        partial: Sequence[object] = (),
        seq: int = 0,
    ) -> None:
        super().__init__(f"{name} of run {run} may or may not have happened ({subject}){': ' + cause if cause else ''}")
        self.run = run
        self.subject = subject
        self.name = name
        self.cause = cause
        self.input = input
        self.attempted_at = attempted_at
        self.partial = tuple(partial)
        self.seq = seq


class QuestionPending(Paused):
    """The run waits for a person's answer."""


class Sleeping(Paused):
    """The run waits for an instant."""


__all__ = [
    "AgentbookError", "AlreadyResolved", "BudgetExceeded", "CallLimit", "Committed", "ConcurrentUse",
    "ConfigError", "Fenced", "FormatVersion", "HaltInFlight", "HaltTooYoung", "HeldElsewhere", "InputsQueued",
    "JetStreamDisabled", "JournalError", "JournalFull", "JournalTruncated", "JournalUnavailable", "LoopBound",
    "MissingExtra", "NotHalted", "NotStarted", "OutcomeUnknown", "Paused", "PayloadTooLarge", "QuestionPending",
    "ReplayMismatch", "RestartLimit", "ResumeHalt", "RunCancelled", "RunCancelledError", "RunConflict",
    "RunEnded", "RunFailed", "RunHalted", "RunNotFound", "RunWaiting", "SagaAborted", "ServerError",
    "ServerNotFound", "ServerTooOld", "Settled", "Signal", "Sleeping", "Stale", "StoreUnavailable",
    "ToolError", "UsageError", "ValueNotJournalable",
]  # fmt: skip
