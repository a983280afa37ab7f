"""From a stored form back to the Python value."""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel, JsonValue, TypeAdapter


def decode(stored: JsonValue, type: Any = None) -> object:  # noqa: A002 - the field's word for it
    """The value of a stored form.

    Args:
        stored: what `encode` gave, read back from JSON.
        type: a type that the value is validated against with pydantic, or None.
    """
    value: object = stored
    if isinstance(stored, dict) and stored.get("$type") == "pydantic":
        module, _, name = str(stored["class"]).partition(":")
        found = getattr(sys.modules[module], name)
        assert issubclass(found, BaseModel)
        value = found.model_validate(stored["fields"])
    return value if type is None else TypeAdapter(type).validate_python(value)
