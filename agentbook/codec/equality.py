"""When two JSON values are the same (JOURNAL.md, Replay rules)."""

from __future__ import annotations

import hashlib
import json
import math

from pydantic import JsonValue

from agentbook.errors import ValueNotJournalable


def canonical(value: JsonValue) -> bytes:
    """The one spelling of a JSON value: equal values give equal bytes, in every process.

    Key order and white space do not matter; ``1``, ``1.0`` and ``1e0`` are equal;
    ``2**53`` and ``2**53 + 1`` are not; ``True`` is not ``1``.

    Args:
        value: a JSON value, for example what `agentbook.codec.encode` gave.

    Raises:
        ValueNotJournalable: it holds NaN, an infinity, or something that is not JSON.

    Example:
        >>> canonical({"b": 1.0, "a": [2]})
        b'{"a":[2],"b":1}'
    """
    try:
        return _spell(_normal(value)).encode("ascii")
    except _NotJson as error:
        raise ValueNotJournalable("value" + "".join(reversed(error.steps)), error.reason) from None
    except RecursionError:
        raise ValueNotJournalable("value", "it contains itself, or is nested too deep") from None


def digest(value: JsonValue) -> str:
    """The SHA-256 of the canonical bytes, in hexadecimal.

    Raises:
        ValueNotJournalable: as `canonical`.
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def equal(a: JsonValue, b: JsonValue) -> bool:
    """Whether two JSON values are the same value.

    Raises:
        ValueNotJournalable: as `canonical`.
    """
    return canonical(a) == canonical(b)


def _spell(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class _NotJson(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str] = []


def _normal(value: JsonValue) -> JsonValue:
    """The same value with one spelling of each number. A new container, or the scalar itself."""
    if type(value) is str or value is None or type(value) is bool:
        return value
    elif type(value) is dict:
        return _normal_object(value)
    elif type(value) is list:
        normal: list[JsonValue] = []
        try:
            for item in value:
                normal.append(item if type(item) is str else _normal(item))
        except _NotJson as error:
            error.steps.append(f"[{len(normal)}]")
            raise
        return normal
    elif type(value) is int:
        # json.dumps cannot spell an int beyond Python's limit of digits; nothing encoded is that long.
        if value.bit_length() > 8192:
            raise _NotJson(f"an int of {value.bit_length():,} bits is too long for a JSON number")
        return value
    elif type(value) is float:
        if not math.isfinite(value):
            raise _NotJson(f"{value!r} is not JSON")
        return int(value) if value.is_integer() else value
    raise _NotJson(f"{type(value).__name__} is not a JSON type")


def _normal_object(value: dict[str, JsonValue]) -> JsonValue:
    key = ""
    normal: dict[str, JsonValue] = {}
    try:
        for key, item in value.items():
            if type(key) is not str:
                raise _NotJson("a key is not text")
            normal[key] = item if type(item) is str else _normal(item)
    except _NotJson as error:
        error.steps.append(f".{key}")
        raise
    items = normal.get("items")
    if type(items) is list and normal.get("$type") == "dict":
        # A dictionary whose keys are not text is stored as pairs; their order is no part of its value either.
        normal["items"] = sorted(items, key=_spell)
    return normal
