"""Safe, unsafe, safe, answer: the agent of the crash matrix. Every start is counted in the ledger."""

from __future__ import annotations

import os

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agents.ledger import note, write_log

ANSWER = "refunded and told"
UNSURE = "the refund may have happened; told"
TOOLS = ("search", "refund", "notify")
"""The tool of each turn."""


@tool(replay="safe")
async def search(customer: str, *, call: ToolCall) -> str:
    """Find the orders of a customer."""
    note("tool", "search", call.key)
    return f"42{_bulk()}"


@tool(replay="unsafe")
async def refund(order: int, *, call: ToolCall) -> str:
    """Pay money back."""
    note("tool", "refund", call.key)
    return "refunded" + _bulk()


@tool(replay="safe")
async def notify(text: str, *, call: ToolCall) -> str:
    """Tell the customer."""
    note("tool", "notify", call.key)
    return "sent" + _bulk()


def _bulk() -> str:
    """What makes a result too large for its record, if the test asks for it."""
    return "." * int(os.environ.get("BULK", "0"))


def _answer(request) -> str:
    unsure = any(getattr(message, "interrupted", None) for message in request.messages)
    return UNSURE if unsure else ANSWER


_script = ScriptedModel(
    [
        ToolCall("search", {"customer": "ada"}),
        ToolCall("refund", {"order": 42}),
        ToolCall("notify", {"text": "done"}),
        _answer,
    ]
)


async def clerk(request):
    """The model, with its requests counted."""
    note("model", "clerk", str(request.replies))
    return await _script.respond(request)


agent = Agent("billing", model=clerk, tools=[search, refund, notify])
write_log()
