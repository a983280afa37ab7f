"""What a person declares: tools and agents."""

from __future__ import annotations

from agentbook.authoring.agents import Agent
from agentbook.authoring.tools import Tool, tool

__all__ = ["Agent", "Tool", "tool"]
