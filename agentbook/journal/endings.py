"""How a call's end is put into a record: what it raised, what a person said, what a cancellation cut."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from pydantic import JsonValue

from agentbook.errors import PayloadTooLarge, ValueNotJournalable
from agentbook.journal.append import Writer
from agentbook.journal.fold import PastCall
from agentbook.journal.records import ErrorInfo, Interruption, Replay, ToolResult

_ERROR_CHARACTERS = 16_384


def error_info(error: BaseException) -> ErrorInfo:
    """An exception as it is stored."""
    kind = type(error).__name__
    try:
        text, trace = str(error), "".join(traceback.format_exception(error, limit=-8))
    except Exception as broken:  # noqa: BLE001 - user code: whatever its `__str__` raises must not hide the error itself
        text = trace = f"its text cannot be made: {type(broken).__name__}"
    return ErrorInfo(type=kind, message=_shortened(text), traceback=_shortened(trace))


def as_resolved(past: PastCall) -> ToolResult:
    """The result of a call of which somebody said how it ended."""
    resolution, intent = past.resolution, past.intent
    assert resolution is not None
    assert intent is not None
    fields: dict[str, object] = {"position": past.position, "intent": intent.seq}
    if resolution.outcome == "failed":
        fields["error"] = resolution.error or ErrorInfo(type="Failed", message=f"said by {resolution.by}")
    else:
        fields["output"] = resolution.value
    return ToolResult.model_validate(fields)


def cut(declared: Replay, partial: Sequence[JsonValue]) -> dict[str, object]:
    """The outcome of a call that a cancellation cut: an unsafe one is unknown (ENGINE.md, cancel)."""
    if declared == "safe":
        return {"error": ErrorInfo(type="Cancelled", message="the run was cancelled")}
    return {"interrupted": Interruption(partial=list(partial), cause="cancelled")}


async def append_result(writer: Writer, result: ToolResult, name: str) -> ToolResult:
    """Store how a call ended; if that cannot be stored, what is known of it without its large value.

    What is stored instead must end the call, not start it again, and an unknown outcome stays unknown.
    """
    try:
        record = await writer.append(result, what=f"the result of {name}")
    except (PayloadTooLarge, ValueNotJournalable) as error:
        fields: dict[str, object] = {"position": result.position, "intent": result.intent, "ms": result.ms}
        if result.interrupted is not None:
            fields["interrupted"] = Interruption(
                cause=f"{result.interrupted.cause}; its partial output is lost: {error}"
            )
        else:
            fields["error"] = error_info(error)
        record = await writer.append(ToolResult.model_validate(fields))
    assert isinstance(record, ToolResult)
    return record


def _shortened(text: str) -> str:
    """A text short enough for a record; what is left out is said. No lone surrogates: JSON cannot carry them."""
    text = text.encode("utf-8", "backslashreplace").decode()
    left = len(text) - _ERROR_CHARACTERS
    return text if left <= 0 else f"{text[:_ERROR_CHARACTERS]} … ({left:,} more characters)"
