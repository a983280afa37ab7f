"""`Agent`: a model, its tools and its instructions under a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from agentbook import codec
from agentbook.authoring.sources import source
from agentbook.authoring.tools import Tool
from agentbook.errors import ConfigError
from agentbook.ids import check_name
from agentbook.models import Model, ToolSpec, as_model
from agentbook.models.model import FunctionModel, ModelFunction, function_name


@dataclass(frozen=True, eq=False, init=False)
class Agent:
    """An agent: the loop of model and tools that a run of it goes through.

    Attributes:
        name: one word, the same in every process that works on its runs.
        model: a `Model`, or a plain async function of the request.
        tools: what the model may call, each declared with `tool`.
        instructions: what the model is told before the conversation.
        max_iterations: how many turns a run may take.

    Raises:
        ConfigError: the name, the model or a tool cannot serve.

    Example:
        >>> from agentbook import ScriptedModel
        >>> Agent("greeter", model=ScriptedModel(["Hello."])).name
        'greeter'
    """

    name: str
    model: Model
    tools: tuple[Tool[..., object], ...]
    instructions: str
    max_iterations: int

    def __init__(
        self,
        name: str,
        *,
        model: Model | ModelFunction,
        tools: Sequence[Tool[..., object]] = (),
        instructions: str = "",
        max_iterations: int = 50,
    ) -> None:
        check_name("agent", name)
        if max_iterations < 1:
            raise ConfigError(f"agent {name}: max_iterations must be at least 1, not {max_iterations}")
        if callable(tools):
            raise ConfigError(f"agent {name}: tools is a list: tools=[{function_name(tools)}]")
        for entry in tools:
            _check_tool(name, entry)
        names = [entry.name for entry in tools]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ConfigError(f"agent {name} has two tools named {', '.join(twice)}: give one another name=…")
        given = {
            "name": name, "model": as_model(model), "tools": tuple(tools),
            "instructions": instructions, "max_iterations": max_iterations,
        }  # fmt: skip
        for field, value in given.items():
            object.__setattr__(self, field, value)

    @cached_property
    def toolbox(self) -> dict[str, Tool[..., object]]:
        """The tools by name."""
        return {entry.name: entry for entry in self.tools}

    def specs(self) -> list[ToolSpec]:
        """The tools as a model sees them."""
        return [ToolSpec(entry.name, entry.description, entry.schema) for entry in self.tools]

    @cached_property
    def code(self) -> str:
        """Digest of what this agent runs: the sources of its model and tools, its instructions and its bounds.

        The same in every process that runs the same code (JOURNAL.md, claim).
        """
        model = self.model.function if isinstance(self.model, FunctionModel) else self.model
        return codec.digest(
            {
                "name": self.name,
                "model": [source(model), self.model.name],
                "instructions": self.instructions,
                "max_iterations": self.max_iterations,
                "tools": [
                    [entry.name, entry.replay, entry.description, source(entry.function)] for entry in self.tools
                ],
            }
        )


def _check_tool(agent: str, entry: object) -> None:
    if isinstance(entry, Tool):
        return
    if callable(entry):
        raise ConfigError(
            f"agent {agent}: {function_name(entry)} is a plain function. Declare it: put "
            '@tool(replay="safe") or @tool(replay="unsafe") above it.'
        )
    raise ConfigError(f"agent {agent}: {entry!r} is not a tool")
