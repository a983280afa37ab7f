"""A model that says what it was told to: for tests, demos and teaching."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import cast

from agentbook.errors import ConfigError
from agentbook.journal.calls import ToolCall
from agentbook.models.messages import ModelReply, ModelRequest
from agentbook.models.model import as_reply

Scripted = str | ToolCall | Sequence[ToolCall] | ModelReply | Exception
Item = Scripted | Callable[[ModelRequest], object]

_ITEMS = (
    "text, a ToolCall, a list of ToolCalls, a ModelReply, an exception, "
    "or a function of the request that returns one of these"
)


class ScriptedModel:
    """A model whose replies are written down.

    The reply is chosen by the *request*: a conversation that holds n replies of the model gets the
    n-th one (from 0), whatever this object was asked before. So a new process that takes a run over
    gets the reply that comes next, and a request that is repeated gets the same reply.

    An exception is not a reply: it stands before the one that follows it, and fails the first request
    for that one, once for this object. ``[ConnectionError("down"), "Hello."]`` fails once, then says Hello.

    Args:
        replies: text (a final answer), ToolCall, list of ToolCalls, ModelReply, exception,
            or a function that is given the ModelRequest and returns one of these.
        delay: seconds that each request takes.
        name: what records and views call it.

    Raises:
        ConfigError: an item is of another kind.

    Example:
        >>> model = ScriptedModel([ToolCall("search", {"query": "order 42"}), "It was delivered."])
        >>> model.requests
        0
    """

    def __init__(self, replies: Sequence[Item], *, delay: float = 0.0, name: str = "scripted") -> None:
        self.name = name
        self.delay = delay
        self._asked: list[ModelRequest] = []
        self._replies: list[Item] = []
        self._failures: dict[int, list[Exception]] = {}
        if isinstance(replies, str):
            raise ConfigError('ScriptedModel takes a list of replies: ScriptedModel(["…"])')
        for number, item in enumerate(replies):
            _check(number, item)
            if isinstance(item, Exception):
                self._failures.setdefault(len(self._replies), []).append(item)
            else:
                self._replies.append(item)

    @property
    def requests(self) -> int:
        """How many requests this object has really received."""
        return len(self._asked)

    def asked(self) -> list[ModelRequest]:
        """Every request this object has received, oldest first."""
        return list(self._asked)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Give the reply that the conversation is due.

        Raises:
            ConfigError: the script has no such reply.
            Exception: an exception of the script.
        """
        index = request.replies
        self._asked.append(request)
        failure = self._failure(index)
        await asyncio.sleep(self.delay)
        if failure is not None:
            raise failure
        if index >= len(self._replies):
            raise ConfigError(
                f"ScriptedModel {self.name!r} has {len(self._replies)} replies, and a conversation asks for reply "
                f"{index + 1}: write one more, or end the script with text, which is a final answer."
            )
        item = self._replies[index]
        if callable(item):
            answer = item(request)
            answer = await answer if inspect.isawaitable(answer) else answer
            if isinstance(answer, Exception):
                raise answer
            return as_reply(cast(object, answer), index, self.name)
        return as_reply(item, index, self.name)

    def _failure(self, index: int) -> Exception | None:
        try:
            return self._failures[index].pop(0)
        except (KeyError, IndexError):
            return None

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self._replies)} replies)"


def _check(number: int, item: object) -> None:
    if isinstance(item, str | ToolCall | ModelReply | Exception):
        return
    if isinstance(item, list | tuple):
        calls = cast(Sequence[object], item)
        if calls and all(isinstance(call, ToolCall) for call in calls):
            return
    elif callable(item) and not inspect.isclass(item):
        return
    raise ConfigError(f"item {number} of the script is {item!r}: it must be {_ITEMS}")
