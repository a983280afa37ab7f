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
    """

    type: str
    handler: Handler
    code: str


def registration_of(agent: Agent) -> Registration:
    """How a worker runs an agent: with the standard loop."""

    async def handler(ctx: TaskContext) -> None:
        await agent_turn(ctx, agent)

    return Registration(agent.name, handler, agent.code)
