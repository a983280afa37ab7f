"""The records of a journal (JOURNAL.md): one frozen model per kind.

A record is written by `append.Writer`, which stamps the envelope; a model made by
hand holds only its own fields.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from agentbook.errors import FormatVersion, JournalError, ValueNotJournalable

VERSION = 1

Replay = Literal["safe", "unsafe"]
OnUnknown = Literal["tell_model", "halt"]
Action = Literal["continue", "complete", "abort", "fail"]

_ENVELOPE = ("v", "kind", "run", "step", "iteration", "attempt", "claim", "n", "at")


class _Part(BaseModel, frozen=True):
    """A piece of a record."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


class ErrorInfo(_Part, frozen=True):
    """An exception as it is stored."""

    type: str
    message: str
    traceback: str | None = None


class Interruption(_Part, frozen=True):
    """Why a call has no outcome, and what it had emitted until then."""

    partial: list[JsonValue] = []
    cause: str


class Wait(_Part, frozen=True):
    """What a step waits for; the first condition wins."""

    until: str | None = None
    modes: list[str] | None = None
    questions: list[str] | None = None


class Envelope(_Part, frozen=True):
    """The fields every record has. `seq` is where the stream keeps it, not part of the record."""

    v: int = VERSION
    kind: str
    run: str = ""
    step: str = ""
    iteration: int = Field(default=0, ge=0)
    attempt: int = Field(default=1, ge=1)
    claim: str = ""
    n: int = Field(default=-1, ge=0)
    at: str = ""
    seq: int = Field(default=0, exclude=True)

    def stamped(
        self, *, run: str, step: str, iteration: int, attempt: int, claim: str, n: int, at: str, seq: int = 0
    ) -> Self:
        """This record with its envelope."""
        return self.model_copy(
            update={
                "v": VERSION, "kind": self.kind, "run": run, "step": step, "iteration": iteration,
                "attempt": attempt, "claim": claim, "n": n, "at": at, "seq": seq,
            }
        )  # fmt: skip

    def encode(self) -> bytes:
        """One JSON object, UTF-8. Fields that were never set are left out.

        Raises:
            ValueNotJournalable: a field holds NaN or an infinity, which JSON has no number for.
        """
        data = self.__pydantic_serializer__.to_json(self, exclude_unset=True, by_alias=True)
        if b"NaN" in data or b"Infinity" in data:
            try:
                from_json(data, allow_inf_nan=False)
            except ValueError:
                raise ValueNotJournalable(f"a record of kind {self.kind}", "it holds NaN or an infinity") from None
        return data


class Claim(Envelope, frozen=True):
    kind: Literal["claim"] = "claim"
    worker: str
    dispatch: int
    delivery: int
    code: str
    prev: int | None
    head: int | None


class ModelResponse(Envelope, frozen=True):
    kind: Literal["model"] = "model"
    position: int
    model: str
    request: str
    response: JsonValue
    usage: dict[str, JsonValue] | None = None
    ms: float


class ToolIntent(Envelope, frozen=True):
    kind: Literal["tool.intent"] = "tool.intent"
    position: int
    name: str
    input: JsonValue
    replay: Replay
    key: str
    call_id: str | None = None
    child: str | None = None


class ToolPartial(Envelope, frozen=True):
    kind: Literal["tool.partial"] = "tool.partial"
    intent: int
    output: JsonValue


class _Outcome(Envelope, frozen=True):
    """A record that holds exactly one of several fields, and no null in place of the others."""

    one_of: ClassVar[tuple[str, ...]] = ()
    may_be_null: ClassVar[tuple[str, ...]] = ("output",)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in self.one_of if name in self.model_fields_set]
        if len(given) != 1:
            raise ValueError(f"{self.kind} holds exactly one of {', '.join(self.one_of)}, not {given or 'none'}")
        if given[0] not in self.may_be_null and getattr(self, given[0]) is None:
            raise ValueError(f"{self.kind}: {given[0]} is null")
        return self


class ToolResult(_Outcome, frozen=True):
    one_of: ClassVar[tuple[str, ...]] = ("output", "error", "interrupted", "reused")

    kind: Literal["tool.result"] = "tool.result"
    position: int
    intent: int
    output: JsonValue = None
    error: ErrorInfo | None = None
    interrupted: Interruption | None = None
    reused: int | None = None
    ms: float = 0.0


class InputPlaced(Envelope, frozen=True):
    kind: Literal["input.placed"] = "input.placed"
    request_id: str
    mode: str
    content: JsonValue
    by: str | None = None
    position: int


class StepAttempt(Envelope, frozen=True):
    kind: Literal["step.attempt"] = "step.attempt"
    name: str
    replay: Replay
    args: str


class StepValue(Envelope, frozen=True):
    kind: Literal["step.value"] = "step.value"
    name: str
    value: JsonValue


class StepError(Envelope, frozen=True):
    kind: Literal["step.error"] = "step.error"
    name: str
    error: ErrorInfo
    outcome: Literal["not_started", "failed", "unknown"]


class Timer(Envelope, frozen=True):
    kind: Literal["timer"] = "timer"
    name: str
    wake_at: str


class Question(Envelope, frozen=True):
    kind: Literal["question"] = "question"
    id: str
    prompt: str
    schema_: JsonValue = Field(alias="schema")
    digest: str | None = None


class Answer(Envelope, frozen=True):
    kind: Literal["answer"] = "answer"
    id: str
    value: JsonValue
    by: str | None = None


class SagaFailed(Envelope, frozen=True):
    kind: Literal["saga.failed"] = "saga.failed"
    cause: ErrorInfo


class SagaCompensated(Envelope, frozen=True):
    kind: Literal["saga.compensated"] = "saga.compensated"
    of: int
    error: ErrorInfo | None = None


class Pause(Envelope, frozen=True):
    kind: Literal["pause"] = "pause"
    reason: Literal["sleep", "question", "halt", "parked", "requested", "left"]
    wait: Wait | None = None
    subjects: list[str] = []
    cause: str | None = None
    head: int


class Resolution(Envelope, frozen=True):
    kind: Literal["resolution"] = "resolution"
    of: int
    outcome: Literal["happened", "failed", "did_not_happen"]
    value: JsonValue = None
    error: ErrorInfo | None = None
    by: str
    evidence: str | None = None


class Commit(Envelope, frozen=True):
    kind: Literal["commit"] = "commit"
    action: Action
    state: JsonValue = None
    snapshot: int | None = None
    output: JsonValue = None
    error: ErrorInfo | None = None
    retriable: bool | None = None
    reason: str | None = None
    wait: Wait | None = None
    inputs: list[str] = []
    head: int

    @property
    def advancing(self) -> bool:
        """True for every action that ends the iteration: all but ``fail``."""
        return self.action != "fail"


class Purged(Envelope, frozen=True):
    kind: Literal["purged"] = "purged"


Record = Annotated[
    Claim | ModelResponse | ToolIntent | ToolPartial | ToolResult | InputPlaced | StepAttempt | StepValue
    | StepError | Timer | Question | Answer | SagaFailed | SagaCompensated | Pause | Resolution | Commit | Purged,
    Field(discriminator="kind"),
]  # fmt: skip
"""Any record; `kind` tells which."""

RECORD_KINDS: tuple[str, ...] = (
    "claim", "model", "tool.intent", "tool.partial", "tool.result", "input.placed", "step.attempt", "step.value",
    "step.error", "timer", "question", "answer", "saga.failed", "saga.compensated", "pause", "resolution",
    "commit", "purged",
)  # fmt: skip

FENCING = ("claim", "resolution", "purged")
"""Kinds that fence: each carries a fresh claim id."""

_adapter: TypeAdapter[Record] = TypeAdapter(Record)


def decode(data: bytes, seq: int) -> Record:
    """Read one stored record.

    Args:
        data: its bytes in the stream.
        seq: its sequence in the stream.

    Raises:
        FormatVersion: it has another version or a kind this version does not know.
        JournalError: it is not a record.
    """
    try:
        parsed: object = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise JournalError(f"record {seq} is not JSON: {error}") from None
    fields = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    if "v" not in fields:
        raise JournalError(f"record {seq} is not a journal record: it has no version")
    if fields["v"] != VERSION or isinstance(fields["v"], bool):
        raise FormatVersion(
            f"record {seq} has format version {fields['v']!r}, this agentbook reads version {VERSION}: "
            "resume the run with the version that wrote it, or upgrade."
        )
    if fields.get("kind") not in RECORD_KINDS:
        raise FormatVersion(
            f"record {seq} is of kind {fields.get('kind')!r}, which this agentbook does not know: upgrade it."
        )
    missing = [name for name in _ENVELOPE if name not in fields]
    if missing or "seq" in fields:
        raise JournalError(
            f"record {seq} is malformed: " + (f"no {', '.join(missing)}" if missing else "it holds 'seq'")
        )
    return from_fields(fields, seq)


def from_fields(fields: dict[str, object], seq: int) -> Record:
    """A record from its own fields, the envelope's included.

    Raises:
        JournalError: they are not those of its kind.
    """
    try:
        return _adapter.validate_python({**fields, "seq": seq}, strict=True)
    except ValidationError as error:
        raise JournalError(f"record {seq} ({fields.get('kind')}) is malformed: {_faults(error)}") from None


def _faults(error: ValidationError) -> str:
    """Where each fault is and what it is, in one line."""
    return "; ".join(
        ".".join(map(str, fault["loc"][1:] or fault["loc"])) + ": " + fault["msg"].removeprefix("Value error, ")
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    )
