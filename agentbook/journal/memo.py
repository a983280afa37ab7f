"""A memo: the fold of a journal up to one record, stored so that opening need not read it all.

A cache, never the truth: an old or missing one costs time only. It names the record it ends
at, and is dropped if the journal holds another record there (JOURNAL.md, Memo).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic_core import from_json, to_json

from agentbook.errors import JournalError
from agentbook.journal.fold import Fold, PastAttempt, PastCall
from agentbook.journal.records import (
    Claim,
    Commit,
    InputPlaced,
    ModelResponse,
    Pause,
    Record,
    Resolution,
    ToolIntent,
    ToolResult,
    from_fields,
)

VERSION = 1

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Memo:
    """A stored fold.

    Attributes:
        upto: the sequence of the last record in it.
        claim: that record's claim.
        n: that record's number within its claim.
        fold: the fold.
    """

    upto: int
    claim: str
    n: int
    fold: Fold

    def encode(self, blob: Json | None = None) -> bytes:
        """The memo as it is stored.

        Args:
            blob: where its fold lies in the object store, if it is too large for a message.
        """
        fold = _dump(self.fold) if blob is None else {"$blob": blob}
        return to_json({"v": VERSION, "upto": self.upto, "claim": self.claim, "n": self.n, "fold": fold})

    def encode_fold(self) -> bytes:
        """The fold alone, for the object store."""
        return to_json(_dump(self.fold))


def memo_name(step: str) -> str:
    """The name of a large memo among the objects of its run."""
    return f"memo.{step}"


def parse(data: bytes) -> Json | None:
    """A memo's fields; None if it is of another version, or none at all: it is only a cache."""
    try:
        stored: object = from_json(data)
    except ValueError:
        return None
    fields = cast("Json", stored) if isinstance(stored, dict) else {}
    return fields if fields.get("v") == VERSION else None


def build(stored: Json) -> Memo | None:
    """A memo from its fields; None if it cannot be read: it is only a cache."""
    try:
        fold = _load(cast("Json", stored["fold"]))
        return Memo(cast("int", stored["upto"]), cast("str", stored["claim"]), cast("int", stored["n"]), fold)
    except (JournalError, KeyError, TypeError, AttributeError):
        return None


def _dump(fold: Fold) -> Json:
    return {
        "upto": fold.upto,
        "head": fold.head,
        "holder": _record(fold.holder),
        "fence": fold.fence,
        "closed_by": _record(fold.closed_by),
        "claims_in_row": fold.claims_in_row,
        "iteration": fold.iteration,
        "advancing": _record(fold.advancing),
        "state": fold.state,
        "snapshot": fold.snapshot,
        "bytes_since": fold.bytes_since,
        "purged": fold.purged,
        "intents": [_call(call) for call in fold.intents.values()],
        "attempts": {str(number): _attempt(attempt) for number, attempt in fold.attempts.items()},
    }


def _load(stored: Json) -> Fold:
    intents = [_as_call(cast("Json", call)) for call in cast("list[object]", stored["intents"])]
    by_seq = {call.intent.seq: call for call in intents if call.intent is not None}
    attempts = cast("dict[str, Json]", stored["attempts"])
    return Fold(
        upto=cast("int", stored["upto"]),
        head=cast("int | None", stored["head"]),
        holder=cast("Claim | None", _as_record(stored["holder"])),
        fence=cast("str", stored["fence"]),
        closed_by=cast("Pause | Commit | None", _as_record(stored["closed_by"])),
        claims_in_row=cast("int", stored["claims_in_row"]),
        iteration=cast("int", stored["iteration"]),
        attempts={int(number): _as_attempt(attempt, by_seq) for number, attempt in attempts.items()},
        advancing=cast("Commit | None", _as_record(stored["advancing"])),
        state=stored["state"],  # pyright: ignore[reportArgumentType] - JSON as it was stored
        snapshot=cast("int | None", stored["snapshot"]),
        bytes_since=cast("int", stored["bytes_since"]),
        intents=by_seq,
        purged=cast("bool", stored["purged"]),
    )


def _record(record: Record | None) -> list[object] | None:
    """A record with its sequence, which its own form leaves out."""
    if record is None:
        return None
    return [record.seq, record.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude={"seq"})]


def _as_record(stored: object) -> Record | None:
    if stored is None:
        return None
    seq, fields = cast("tuple[int, Json]", stored)
    return from_fields(fields, seq)


def _call(call: PastCall) -> Json:
    return {
        "position": call.position,
        "intent": _record(call.intent),
        "result": _record(call.result),
        "resolution": _record(call.resolution),
        "partial": call.partial,
    }


def _as_call(stored: Json) -> PastCall:
    return PastCall(
        position=cast("int", stored["position"]),
        intent=cast("ToolIntent | None", _as_record(stored["intent"])),
        result=cast("ToolResult | None", _as_record(stored["result"])),
        resolution=cast("Resolution | None", _as_record(stored["resolution"])),
        partial=stored["partial"],  # pyright: ignore[reportArgumentType] - JSON as it was stored
    )


def _attempt(attempt: PastAttempt) -> Json:
    """An attempt; a call with an intent is named by it, since the fold holds it once."""
    return {
        "calls": [
            _record(call)
            if isinstance(call, ModelResponse)
            else call.intent.seq
            if call.intent is not None
            else _call(call)
            for call in attempt.calls.values()
        ],
        "placed": [_record(placed) for placed in attempt.placed],
        "commit": _record(attempt.commit),
    }


def _as_attempt(stored: Json, intents: Mapping[int, PastCall]) -> PastAttempt:
    calls: dict[int, ModelResponse | PastCall] = {}
    for entry in cast("list[object]", stored["calls"]):
        match entry:
            case int():
                call: ModelResponse | PastCall = intents[entry]
            case list():
                call = cast("ModelResponse", _as_record(cast("object", entry)))
            case _:
                call = _as_call(cast("Json", entry))
        calls[call.position] = call
    return PastAttempt(
        calls=calls,
        placed=[cast("InputPlaced", _as_record(placed)) for placed in cast("list[object]", stored["placed"])],
        commit=cast("Commit | None", _as_record(stored["commit"])),
    )
