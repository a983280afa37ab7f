"""A digest of code: the same in every process that runs the same code."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import cast

from pydantic import JsonValue


def source(subject: object) -> JsonValue:
    """The text of a function or of an object's class, else a description of its bytecode."""
    while isinstance(subject, functools.partial):
        subject = cast(object, subject.func)
    target = subject if inspect.isroutine(subject) or inspect.isclass(subject) else type(subject)
    try:
        return inspect.getsource(target)
    except (OSError, TypeError):
        pass
    code = getattr(target, "__code__", None)
    name = f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', '')}"
    return [name, _bytecode(code)] if isinstance(code, CodeType) else name


def _bytecode(code: CodeType) -> JsonValue:
    return [code.co_code.hex(), list(code.co_names), [_constant(constant) for constant in code.co_consts]]


def _constant(constant: object) -> JsonValue:
    if isinstance(constant, CodeType):
        return _bytecode(constant)
    if isinstance(constant, frozenset):
        # The order of a set of text differs from process to process.
        return [*sorted(repr(item) for item in cast(frozenset[object], constant))]
    return repr(constant)
