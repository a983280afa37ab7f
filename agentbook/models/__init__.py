"""Models and what they are told: provider-neutral messages, requests and replies."""

from __future__ import annotations

from agentbook.models.messages import (
    AssistantMessage,
    Message,
    ModelReply,
    ModelRequest,
    ToolMessage,
    ToolRequest,
    ToolSpec,
    UserMessage,
)
from agentbook.models.model import Model, as_model
from agentbook.models.scripted import ScriptedModel

__all__ = [
    "AssistantMessage", "Message", "Model", "ModelReply", "ModelRequest", "ScriptedModel", "ToolMessage",
    "ToolRequest", "ToolSpec", "UserMessage", "as_model",
]  # fmt: skip
