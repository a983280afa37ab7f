"""What counts as a model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, cast, runtime_checkable

from agentbook.errors import ConfigError
from agentbook.journal.calls import ToolCall
from agentbook.models.messages import ModelReply, ModelRequest, ToolRequest

Answer = ModelReply | str | ToolCall | Sequence[ToolCall]
"""What a plain function may answer with."""

ModelFunction = Callable[[ModelRequest], Awaitable[Answer]]

_ACCEPTED = (
    "a model is an async function `async def model(request)` that returns text, a ToolCall, a list of "
    "ToolCalls or a ModelReply; or an object with a `name` and an `async def respond(self, request)`"
)


@runtime_checkable
class Model(Protocol):
    """A language model, or something that stands in for one."""

    @property
    def name(self) -> str:
        """What records and views call it."""
        ...

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Answer one request. Whatever it raises fails the turn."""
        ...


class FunctionModel:
    """A plain async function as a model.

    Attributes:
        name: the function's name.
        function: the function.
    """

    def __init__(self, function: ModelFunction, name: str) -> None:
        self.function = function
        self.name = name

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Call the function and bring its answer into one shape.

        Raises:
            ConfigError: it answered with something else.
        """
        answer: object = self.function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return as_reply(answer, request.replies, self.name)

    def __repr__(self) -> str:
        return f"FunctionModel({self.name})"


def as_model(model: object) -> Model:
    """Take a model, or make one of a plain async function.

    Raises:
        ConfigError: it is neither.
    """
    if inspect.isclass(model):
        raise ConfigError(f"{model.__name__} is a class, not a model: make an object of it. {_ACCEPTED}")
    if isinstance(model, Model):
        if not isinstance(cast(object, model.name), str) or not is_async(model.respond):
            raise ConfigError(f"{model!r} has a `name` that is not text or a `respond` that is not async: {_ACCEPTED}")
        return model
    name = function_name(model)
    if callable(model) and (is_async(model) or name == "<lambda>"):
        return FunctionModel(cast(ModelFunction, model), name)
    if callable(model):
        raise ConfigError(f"{name} is not async, and would hold up other runs: write `async def`. {_ACCEPTED}")
    raise ConfigError(f"{model!r} is not a model: {_ACCEPTED}")


def as_reply(answer: object, index: int, who: str) -> ModelReply:
    """Bring an answer into one shape; calls without an id get one that is the same in every process.

    Args:
        answer: text, a ToolCall, a list of them, or a ModelReply.
        index: how many replies the conversation held before it.
        who: the model's name, for the error.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(answer, ModelReply):
        return answer
    if isinstance(answer, str):
        return ModelReply(text=answer)
    calls = list(cast(Sequence[object], answer)) if isinstance(answer, list | tuple) else [answer]
    requests = [
        ToolRequest(id=call.id or f"call_{index}_{number}", name=call.name, input=call.input)
        for number, call in enumerate(calls)
        if isinstance(call, ToolCall)
    ]
    if not requests or len(requests) != len(calls):
        raise ConfigError(f"model {who} answered with {answer!r}: {_ACCEPTED}")
    return ModelReply(tool_calls=requests)


def is_async(function: object) -> bool:
    """Whether calling it gives something to await: async functions, partials of one, async callable objects."""
    while isinstance(function, partial):
        function = cast(object, function.func)
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


def function_name(function: object) -> str:
    """What to call a function, a partial of one, or a callable object."""
    while isinstance(function, partial):
        function = cast(object, function.func)
    return str(getattr(function, "__name__", type(function).__name__))
