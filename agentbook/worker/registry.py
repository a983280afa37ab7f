"""What a worker can run: a handler per type, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentbook.authoring import Agent
from agentbook.worker.context import TaskContext
from agentbook.worker.loop import agent_turn

Handler = Callable[[TaskContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Registration:
    """A type that a worker serves.

    Attributes:
        type: its name; one word, part of a subject.
        handler: runs one iteration.
        code: digest of what it runs.
        halting: its tools of which a person is to say how a call ended when nobody knows.
    """

    type: str
    handler: Handler
    code: str
    halting: frozenset[str] = frozenset()


def registration_of(agent: Agent) -> Registration:
    """How a worker runs an agent: with the standard loop."""

    async def handler(ctx: TaskContext) -> None:
        await agent_turn(ctx, agent)

    halting = frozenset(name for name, tool in agent.toolbox.items() if tool.on_unknown == "halt")
    return Registration(agent.name, handler, agent.code, halting)
