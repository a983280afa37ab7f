"""From a function's signature to the JSON Schema of its arguments, and back to typed arguments."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ArgsKwargs

from agentbook.errors import ConfigError
from agentbook.journal.calls import ToolCall

CALL = "call"
"""The keyword under which a tool is handed its own `ToolCall`."""


class Signature:
    """The arguments of a tool, without the ones it is handed by agentbook.

    Attributes:
        schema: JSON Schema of the arguments.
        wants_call: whether the function declares ``call: ToolCall``.

    Raises:
        ConfigError: the signature cannot serve a tool; the text says what to write.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        parameters = _parameters(function, name)
        hints = _hints(function, name)
        self.wants_call = hints.get(CALL) is ToolCall and CALL in parameters
        _check_call(parameters, hints, name)
        self._positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY]
        shown = [p for p in parameters.values() if not (self.wants_call and p.name == CALL)]

        def collect(**arguments: object) -> dict[str, object]:
            return arguments

        # pydantic reads these two attributes; resolved hints spare it from looking for names in this module.
        collect.__signature__ = inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in shown])  # pyright: ignore[reportFunctionMemberAccess]
        collect.__annotations__ = {p.name: hints.get(p.name, Any) for p in shown}
        try:
            self._adapter: TypeAdapter[dict[str, object]] = TypeAdapter(cast("type[dict[str, object]]", collect))
            self.schema = cast(dict[str, JsonValue], self._adapter.json_schema())
        except PydanticUserError as error:
            raise ConfigError(f"tool {name}: a parameter has a type that JSON cannot carry: {error.message}") from error
        self._name = name

    def validate(self, given: JsonValue) -> dict[str, object]:
        """The typed arguments of a call.

        Raises:
            ValueError: an argument is missing, unknown or of another type; the text names it.
        """
        if not isinstance(given, dict):
            raise ValueError(f"{self._name} takes an object of named arguments, not {given!r}")
        try:
            # A copy: the tool may change what it is given, the recorded call may not change with it.
            return self._adapter.validate_python(ArgsKwargs((), cast(dict[str, Any], copy.deepcopy(given))))
        except ValidationError as error:
            problems = "; ".join(f"{_where(part['loc'])}: {part['msg']}" for part in error.errors())
            raise ValueError(f"{self._name} cannot take this input: {problems}") from error

    def bind(self, arguments: Mapping[str, object], call: ToolCall) -> tuple[list[object], dict[str, object]]:
        """Positional and keyword arguments of the function itself."""
        keywords = {**arguments, CALL: call} if self.wants_call else dict(arguments)
        return [keywords.pop(name) for name in self._positional], keywords


def _where(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _parameters(function: Callable[..., object], name: str) -> dict[str, inspect.Parameter]:
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        raise ConfigError(f"tool {name}: {function!r} has no readable signature; wrap it in a function") from None
    while isinstance(function, partial):
        # What a partial has fixed is no longer the model's to choose.
        for fixed in cast(dict[str, object], function.keywords):
            parameters.pop(fixed, None)
        function = cast(Callable[..., object], function.func)
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(f"tool {name}: *{parameter.name} has no schema; name each parameter, with its type")
    return parameters


def _hints(function: object, name: str) -> dict[str, Any]:
    while isinstance(function, partial):
        function = cast(object, function.func)
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {name}: the annotation {error.name!r} is not known here. Import or define it at the top level, "
            "and not only under TYPE_CHECKING."
        ) from error


def _check_call(parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], name: str) -> None:
    for parameter in parameters.values():
        hint = hints.get(parameter.name, parameter.empty)
        if hint is ToolCall and parameter.name != CALL:
            raise ConfigError(f"tool {name}: name the ToolCall parameter `call`, not {parameter.name!r}")
        if hint is ToolCall and parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"tool {name}: `call` is passed by keyword; write it after a `*`")
        if parameter.name == CALL and hint is parameter.empty:
            raise ConfigError(f"tool {name}: annotate the parameter: `call: ToolCall`")
