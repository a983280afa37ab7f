"""A tool call: what a model asks for, and what a running tool is handed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import JsonValue

from agentbook.errors import UsageError
from agentbook.journal.records import OnUnknown, Replay


@dataclass(frozen=True, slots=True)
class Binding:
    """Where in a run a tool call stands."""

    run: str
    iteration: int
    position: int
    key: str
    emit: Callable[[object], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by name.

    Scripted models and low-level handlers make them: ``ToolCall("search", {"query": "order 42"})``.
    A tool that declares a keyword parameter ``call: ToolCall`` is handed its own, which also
    knows where in the run it stands.

    Attributes:
        name: the tool's name.
        input: its arguments, as JSON.
        id: the model's own id for the call, or None.
    """

    name: str
    input: JsonValue = field(default_factory=dict[str, JsonValue])
    id: str | None = None
    binding: Binding | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def key(self) -> str:
        """The idempotency key: the same on every delivery and attempt of this call.

        Pass it to any system that deduplicates on a key (JOURNAL.md, Envelope).
        """
        return self._bound("key").key

    @property
    def run(self) -> str:
        """The run's id."""
        return self._bound("run").run

    @property
    def iteration(self) -> int:
        """The turn, counted from 0."""
        return self._bound("iteration").iteration

    @property
    def position(self) -> int:
        """The call's position within the turn, counted from 0."""
        return self._bound("position").position

    async def emit(self, chunk: object) -> None:
        """Record partial output: if the tool never returns, the model still sees it."""
        await self._bound("emit").emit(chunk)

    def _bound(self, attribute: str) -> Binding:
        if self.binding is None:
            raise UsageError(
                f"ToolCall.{attribute} exists only while the tool runs: declare a keyword parameter "
                "`call: ToolCall` in the tool and use that one."
            )
        return self.binding


ToolFunction = Callable[[ToolCall], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Execution:
    """One tool call of a handler, and how to run it.

    Attributes:
        call: the tool's name and input.
        replay: its declaration; None if the tool is not registered any more.
        run: runs it.
        on_unknown: what becomes of it if nobody knows how it ended.
    """

    call: ToolCall
    replay: Replay | None
    run: ToolFunction
    on_unknown: OnUnknown = "tell_model"
