"""`@tool`: a function that a model may call, and what may happen to the call after a crash."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar, cast, get_args

from pydantic import JsonValue

from agentbook.authoring.running import running_call
from agentbook.authoring.signatures import Signature
from agentbook.authoring.threads import in_thread
from agentbook.errors import ConfigError, OutcomeUnknown
from agentbook.ids import check_name
from agentbook.journal.calls import ToolCall
from agentbook.journal.records import OnUnknown, Replay
from agentbook.models.model import function_name, is_async

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_CHOOSE = (
    'say what a crash may do to {name}: @tool(replay="safe") or @tool(replay="unsafe").\n'
    "safe: a call without a recorded result runs again (a read, a harmless repeat); "
    "unsafe: it is never run again by itself (a charge, an e-mail)."
)


class Tool(Generic[P, R]):
    """A declared tool. Made by `tool`; calling it calls the plain function.

    Attributes:
        name: what the model calls it.
        description: what it does, for the model.
        replay: ``safe`` or ``unsafe``: may a call without a recorded result run again?
        schema: JSON Schema of its arguments.
        timeout: seconds after which a safe call fails and an unsafe one is unknown, or None.
        on_unknown: ``tell_model`` or ``halt``: who is told where nobody knows how a call ended?
        function: the function as it was written.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        replay: Replay,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        on_unknown: OnUnknown = "tell_model",
    ) -> None:
        self.function = function
        self.name = _checked_name(function, name)
        _check_function(function, self.name)
        if replay not in get_args(Replay):
            raise ConfigError(f"replay={replay!r} is neither: " + _CHOOSE.format(name=self.name))
        if timeout is not None and timeout <= 0:
            raise ConfigError(f"tool {self.name}: timeout is a positive number of seconds, not {timeout}")
        if on_unknown not in get_args(OnUnknown):
            raise ConfigError(
                f"tool {self.name}: on_unknown={on_unknown!r} is neither 'tell_model' (the model reads that the call "
                "may have happened) nor 'halt' (the run stops until a person says how it ended)"
            )
        self.replay: Replay = replay
        self.on_unknown: OnUnknown = on_unknown
        self.description = inspect.cleandoc(description if description is not None else _docstring(function))
        self.timeout = timeout
        self._signature = Signature(function, self.name)
        functools.update_wrapper(self, function)

    def __reduce__(self) -> tuple[object, ...]:
        # A validator cannot travel to another process; the function and its declaration can.
        declared = (self.function, self.replay, self.name, self.description, self.timeout, self.on_unknown)
        return _declared, declared

    @property
    def schema(self) -> dict[str, JsonValue]:
        return self._signature.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name}, replay={self.replay!r})"

    def validate(self, input: JsonValue) -> dict[str, object]:  # noqa: A002 - the journal's word for it
        """The typed arguments of a call, without `call`.

        Raises:
            ValueError: an argument is missing, unknown or of another type; the text names it.
        """
        return self._signature.validate(input)

    async def run(self, input: JsonValue, call: ToolCall) -> object:  # noqa: A002 - the journal's word for it
        """Run the tool once. A plain function runs in a thread, with this task's context variables.

        Args:
            input: its arguments, as JSON.
            call: handed to the function if it declares ``call: ToolCall``.

        Raises:
            ValueError: the input is not what the tool takes; the function has not started.
            TimeoutError: a safe tool took longer than `timeout`. A plain function goes on in its thread all the same.
            OutcomeUnknown: an unsafe tool took longer: it may have happened.
            Exception: whatever the function raises.
        """
        positional, keywords = self._signature.bind(self.validate(input), call)
        start = cast(Callable[..., object], self.function)
        limit = asyncio.timeout(self.timeout)
        running = running_call.set(call)
        try:
            async with limit:
                if is_async(start):
                    result = start(*positional, **keywords)
                else:
                    result = await in_thread(start, positional, keywords)
                # A plain function around an async one, such as a lambda, gives something to await as well.
                return await result if inspect.isawaitable(result) else result
        except TimeoutError as error:
            if not limit.expired():
                raise
            late = f"tool {self.name} took longer than its timeout of {self.timeout:g} s"
            if self.replay == "unsafe":
                raise OutcomeUnknown(f"{late}: it may have happened") from error
            raise TimeoutError(late) from error
        finally:
            running_call.reset(running)


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    replay: Replay | None = None,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    on_unknown: OnUnknown = "tell_model",
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    """Declare a function as a tool.

    Args:
        function: not given; it is here so that a bare ``@tool`` gets an error that explains the choice.
        replay: ``safe``: a call without a recorded result runs again after a crash.
            ``unsafe``: it is never run again by itself. There is no default.
        name: what the model calls it; the function's name if not given.
        description: what it does, for the model; the docstring if not given.
        timeout: seconds after which a safe call fails with TimeoutError, and an unsafe one is unknown.
        on_unknown: what happens where nobody knows how a call ended, because its holder died or it said so.
            ``tell_model``: the model reads that it may have happened. ``halt``: the run stops until a person
            says how it ended (`Run.resolve`).

    Raises:
        ConfigError: a choice is missing or wrong, or the signature cannot serve a tool.

    Example:
        >>> @tool(replay="unsafe")
        ... async def charge(card: str, cents: int, *, call: ToolCall) -> dict[str, str]:
        ...     '''Charge a card.'''
        ...     return {"charged": card, "key": call.key}
        >>> charge.name
        'charge'
    """
    if function is not None and not callable(function):
        raise ConfigError(f"@tool decorates a function, not {function!r}")
    if replay is None or function is not None:
        raise ConfigError(_CHOOSE.format(name=name or (function_name(function) if function else "the tool")))

    def declare(function: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            function,
            replay=replay,
            name=name,
            description=description,
            timeout=timeout,
            on_unknown=on_unknown,
        )

    return declare


def _declared(
    function: Callable[..., object],
    replay: Replay,
    name: str,
    description: str,
    timeout: float | None,
    on_unknown: OnUnknown,
) -> Tool[..., object]:
    return Tool(function, replay=replay, name=name, description=description, timeout=timeout, on_unknown=on_unknown)


def _checked_name(function: object, name: str | None) -> str:
    if name is None:
        name = function_name(function)
        if not callable(function) and not _unbound(function):
            raise ConfigError(f"@tool decorates a function, not {function!r}")
        if name == "<lambda>" or not hasattr(cast(object, function), "__name__"):
            raise ConfigError(f'{function!r} has no name of its own: @tool(..., name="…")')
    return check_name("tool", name)


def _docstring(function: object) -> str:
    while isinstance(function, functools.partial):
        function = cast(object, function.func)
    if inspect.isroutine(function):
        return function.__doc__ or ""
    return type(function).__call__.__doc__ or type(function).__doc__ or ""


def _check_function(function: object, name: str) -> None:
    if isinstance(function, Tool):
        raise ConfigError(f"tool {name} is declared twice: use one @tool")
    if inspect.isclass(function):
        raise ConfigError(f"{name} is a class, which cannot be a tool: decorate a function that makes and uses one")
    if _unbound(function) or _in_class_body(function):
        raise ConfigError(
            f"{name} is a method of a class that has no object yet: decorate a function, "
            f"or declare the method of an object: tool(replay=…)(thing.{name})"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"tool {name} yields: return one value, and record what comes before it with call.emit(…)")


def _unbound(function: object) -> bool:
    return isinstance(function, staticmethod | classmethod | property)


def _in_class_body(function: object) -> bool:
    if not inspect.isfunction(function):
        return False
    first = next(iter(inspect.signature(function).parameters), None)
    owner = function.__qualname__.rpartition(".")[0]
    return first in ("self", "cls") and bool(owner) and not owner.endswith("<locals>")
