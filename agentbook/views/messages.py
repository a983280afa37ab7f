"""The messages between a timeline and the widget that shows it.

| from the widget | answer |
|---|---|
| ``{type: "snapshot", id}`` when a view opens | ``{type: "snapshot", id, timeline, words}`` |
| ``{type: "record", id, seq}`` when a chip is chosen | ``{type: "record", id, seq, record}`` |
| any of them, in vain | ``{type: "error", id, message}`` |

Without being asked, to every view: ``{type: "block", block}`` replaces the block of that id
or adds it in its order, ``{type: "head", head}`` replaces the head, ``{type: "select", seq}``
chooses the chip of a record. All of them say what *is*, never what changed, so that one
message too many does no harm; an answer carries its question's id, and the other views of
the same widget ignore it.
"""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import from_json

from agentbook.journal.records import Record
from agentbook.views.blocks import to_json
from agentbook.views.timeline import Timeline, delta
from agentbook.views.words import vocabulary

Message = dict[str, JsonValue]


def snapshot(timeline: Timeline, request: str) -> Message:
    """The answer to a view that opens."""
    return {"type": "snapshot", "id": request, "timeline": timeline.to_json(), "words": vocabulary()}


def changes(old: Timeline, new: Timeline) -> list[Message]:
    """What every view needs to show a newer timeline."""
    messages: list[Message] = [{"type": "block", "block": to_json(block)} for block in delta(old, new)]
    if old.head != new.head:
        messages.append({"type": "head", "head": to_json(new.head)})
    return messages


def record(stored: Record, request: str) -> Message:
    """The answer to a view in which a chip was chosen: the record as it is stored, and its sequence."""
    return {"type": "record", "id": request, "seq": stored.seq, "record": from_json(stored.encode())}


def error(request: str, message: str) -> Message:
    """The answer to a question that could not be answered."""
    return {"type": "error", "id": request, "message": message}
