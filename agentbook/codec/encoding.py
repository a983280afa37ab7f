"""From a Python value to its stored form."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, JsonValue

from agentbook.errors import ValueNotJournalable


def encode(value: object, path: str = "value") -> JsonValue:
    """The stored form of a value.

    Args:
        value: what to store.
        path: what errors call it, for example ``result``.

    Raises:
        ValueNotJournalable: the value, or a part of it, has no stored form.
    """
    if isinstance(value, BaseModel):
        return {
            "$type": "pydantic",
            "class": f"{type(value).__module__}:{type(value).__qualname__}",
            "fields": cast(JsonValue, value.model_dump(mode="json")),
        }
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return cast(JsonValue, value)
    raise ValueNotJournalable(path, f"{type(value).__name__} has no stored form")
