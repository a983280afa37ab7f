"""Agents whose tool takes its process down, each time."""

from __future__ import annotations

import os

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agents.ledger import note

CODE = 7


@tool(replay="safe")
async def crash(*, call: ToolCall) -> str:
    """End the process."""
    note("tool", "crash", call.key)
    os._exit(CODE)


@tool(replay="unsafe")
async def pay(*, call: ToolCall) -> str:
    """Have the effect, then end the process."""
    note("tool", "pay", call.key)
    os._exit(CODE)


agent = Agent("dying", model=ScriptedModel([ToolCall("crash"), "never"]), tools=[crash])
payer = Agent("payer", model=ScriptedModel([ToolCall("pay"), "told"]), tools=[pay])
