"""An agent whose tool is held while a gate is closed: its first start only, in whichever process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agents.ledger import Ledger, note, write_log

ANSWER = "held and let go"
GATE = "gate"


@tool(replay="safe")
async def hold(*, call: ToolCall) -> str:
    """Wait for the gate."""
    ledger = Path(os.environ["LEDGER"])
    first = Ledger(ledger).count("hold") == 0
    note("tool", "hold", call.key)
    while first and not ledger.with_name(GATE).exists():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.01)
    return "held"


@tool(replay="safe")
async def after(*, call: ToolCall) -> str:
    """Come after."""
    note("tool", "after", call.key)
    return "after"


agent = Agent("held", model=ScriptedModel([ToolCall("hold"), ToolCall("after"), ANSWER]), tools=[hold, after])
write_log()
