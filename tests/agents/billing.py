"""Safe, unsafe, safe, answer: the agent of the crash matrix. Every start is counted in the ledger."""

from __future__ import annotations

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agents.ledger import note, write_log

ANSWER = "refunded and told"
UNSURE = "the refund may have happened; told"
TOOLS = ("search", "refund", "notify")
"""The tool of each turn."""


@tool(replay="safe")
async def search(customer: str, *, call: ToolCall) -> list[int]:
    """Find the orders of a customer."""
    note("tool", "search", call.key)
    return [42]


@tool(replay="unsafe")
async def refund(order: int, *, call: ToolCall) -> str:
    """Pay money back."""
    note("tool", "refund", call.key)
    return "refunded"


@tool(replay="safe")
async def notify(text: str, *, call: ToolCall) -> str:
    """Tell the customer."""
    note("tool", "notify", call.key)
    return "sent"


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
