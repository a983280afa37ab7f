"""What encoding and decoding agree on: the tag, the escape, the depth, and the names of classes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydantic import JsonValue

from agentbook.errors import JournalError

TAG = "$type"
"""The key that marks a stored form. A key of a user's dictionary that starts with ``$`` gets one more."""

MAX_DEPTH = 128
"""Levels of JSON within one value. The reader of records stops at 200, and a record has levels of its own."""

Fields = dict[str, JsonValue]

Part = Callable[[object, str], JsonValue]
"""Encodes a part of a value; the text is what the path gains, for example ``.when`` or ``[3]``."""

Whole = Callable[[JsonValue], Any]
"""Decodes a part of a stored form."""


class Unstorable(Exception):
    """The value at hand has no stored form; `encode` adds the path."""


def class_name(cls: type) -> str:
    """The name under which `find_class` will find a class again.

    Raises:
        Unstorable: it will not.
    """
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in name:
        raise Unstorable(f"{cls.__qualname__} is defined inside a function; define it in a cell or module itself")
    if "[" in cls.__qualname__:
        raise Unstorable(
            f"{cls.__qualname__} has no name of its own; give it one: class Named({cls.__qualname__}): ..."
        )
    found = _look_up(name)
    if found is not cls:
        raise Unstorable(
            f"{name} is now another class: its cell or module ran again after this value was made"
            if found is not None
            else f"{name} cannot be found again under this name"
        )
    return name


def find_class(name: JsonValue, kind: Callable[[type], bool]) -> type:
    """The class of that name, if a module that is already imported has it. Nothing is imported.

    Raises:
        JournalError: there is none, or it is not of the kind.
    """
    found = _look_up(str(name))
    if isinstance(found, type) and kind(found):
        return found
    module, _, qualname = str(name).partition(":")
    if found is not None:
        problem = f"{qualname} of {module} is no longer a class of the stored kind: bring the old definition back"
    elif module == "__main__":
        problem = f"run the cell (or script) that defines {qualname} first"
    elif module in sys.modules:
        problem = f"module {module} no longer defines {qualname}: bring it back, or load the old version"
    else:
        problem = f"`import {module}` first"
    raise JournalError(f"a stored value is of class {name}, which is not known here: {problem}, then resume.")


def _look_up(name: str) -> object:
    module, _, qualname = name.partition(":")
    found: object = sys.modules.get(module)
    names = qualname.split(".") if found is not None else []
    for position, part in enumerate(names):
        if position and not isinstance(found, type):
            return None
        # vars, not getattr: a module's __getattr__ may import.
        found = vars(found).get(part)
    return found
