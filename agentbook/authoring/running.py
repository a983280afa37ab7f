"""Which tool call runs here, in this task or thread."""

from __future__ import annotations

from contextvars import ContextVar

from agentbook.journal.calls import ToolCall

running_call: ContextVar[ToolCall | None] = ContextVar("running_call", default=None)
"""The call that the present code runs in; None outside of tools."""
