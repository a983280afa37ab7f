"""The demo's agent: it looks an order up, refunds it and tells the customer.

Every start of a model request and of a tool is noted in a file outside the journal, so that
the demo can prove what ran, whatever the journal says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentbook.authoring import Agent, tool
from agentbook.journal.calls import ToolCall
from agentbook.models import ModelReply, ModelRequest, ScriptedModel, ToolMessage

EFFECTS_VARIABLE = "AGENTBOOK_DEMO_EFFECTS"
"""The environment variable that names the effects file."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One start of something, as the effects file holds it.

    Attributes:
        kind: ``model`` or ``tool``.
        key: the call's idempotency key; for a model request, how many replies it had seen.
        pid: the process that started it.
    """

    kind: Literal["model", "tool"]
    name: str
    key: str
    pid: int


def note(kind: Literal["model", "tool"], name: str, key: str) -> None:
    """Append one line to the effects file, through to the disk."""
    line = json.dumps({"kind": kind, "name": name, "key": key, "pid": os.getpid()})
    with Path(os.environ[EFFECTS_VARIABLE]).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def effects(path: Path) -> Iterator[Effect]:
    """Read the effects file."""
    if path.exists():
        for line in path.read_text().splitlines():
            yield Effect(**json.loads(line))


@tool(replay="safe")
async def search_orders(customer: str, *, call: ToolCall) -> list[dict[str, object]]:
    """Find the orders of a customer."""
    note("tool", "search_orders", call.key)
    return [{"order": 42, "items": 2, "cents": 5900}]


@tool(replay="unsafe")
async def refund(order: int, cents: int, *, call: ToolCall) -> dict[str, object]:
    """Pay money back. Running it twice pays twice."""
    note("tool", "refund", call.key)
    return {"order": order, "refunded": cents}


@tool(replay="safe")
async def notify(customer: str, text: str, *, call: ToolCall) -> str:
    """Tell the customer something; the mailer sends one mail per key."""
    note("tool", "notify", call.key)
    return "sent"


def _after_refund(request: ModelRequest) -> ToolCall:
    """What a careful model does when it reads that the refund may have happened."""
    last = request.messages[-1]
    unsure = isinstance(last, ToolMessage) and last.interrupted is not None
    text = "We are checking your refund." if unsure else "Your refund of 59.00 is on its way."
    return ToolCall("notify", {"customer": "ada", "text": text})


def _answer(request: ModelRequest) -> str:
    unsure = any(isinstance(message, ToolMessage) and message.interrupted for message in request.messages)
    if unsure:
        return "The refund of order 42 may have gone through; I did not start it again, and told the customer."
    return "Order 42 is refunded and the customer knows."


_script = ScriptedModel(
    [
        ToolCall("search_orders", {"customer": "ada"}),
        ToolCall("refund", {"order": 42, "cents": 5900}),
        _after_refund,
        _answer,
    ]
)


async def clerk(request: ModelRequest) -> ModelReply:
    """A scripted model that counts its requests outside the journal."""
    note("model", "clerk", str(request.replies))
    return await _script.respond(request)


agent = Agent(
    "billing",
    model=clerk,
    tools=[search_orders, refund, notify],
    instructions="You are a billing clerk. Refund what is due and tell the customer.",
)
