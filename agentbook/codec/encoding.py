"""From a Python value to its stored form."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, cast

from pydantic import JsonValue

from agentbook.codec import arrays, frames, objects, scalars
from agentbook.codec.decoding import decode
from agentbook.codec.equality import canonical
from agentbook.codec.tags import MAX_DEPTH, TAG, Unstorable
from agentbook.errors import ValueNotJournalable

_ATOMS: frozenset[object] = frozenset({bool, type(None)})
_LONG = 1 << 62
_kind = cast(Callable[[object], object], type)


def encode(value: object, path: str = "value") -> JsonValue:
    """The stored form of a value: JSON that `decode` turns into the same value of the same type.

    A value that is JSON through and through is given back as it is, not copied.

    Args:
        value: what to store.
        path: what errors call it, for example ``result``.

    Raises:
        ValueNotJournalable: the value, or a part of it, has no stored form. Its cause is what the
            value's own code raised, if that is why.

    Example:
        >>> from decimal import Decimal
        >>> encode({"price": Decimal("9.90"), "tags": ("a", "b")})
        {'price': {'$type': 'Decimal', 'value': '9.90'}, 'tags': {'$type': 'tuple', 'items': ['a', 'b']}}
    """
    if _is_plain(value, MAX_DEPTH):
        return cast(JsonValue, value)
    try:
        return _Encoder().encode(value, path, MAX_DEPTH)
    except RecursionError as error:
        raise ValueNotJournalable(path, "it is nested too deep for the Python stack") from error


# The one check that every value pays, so it is written for speed: scalars are looked at where they
# stand, because a call costs more than the check.
def _is_plain(value: Any, depth: int) -> bool:
    """Whether a value is its own stored form."""
    kind = _kind(value)
    if kind is dict:
        if depth == 0:
            return False
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$" or not (key.isascii() or scalars.is_text(key)):
                return False
            kind = _kind(item)
            if kind is str:
                if not (item.isascii() or scalars.is_text(item)):
                    return False
            elif kind is int:
                if not (-_LONG < item < _LONG or scalars.is_short(item)):
                    return False
            elif kind is float:
                if not math.isfinite(item):
                    return False
            elif kind not in _ATOMS and not _is_plain(item, depth - 1):
                return False
        return True
    elif kind is list:
        return depth > 0 and _is_plain_list(value, depth - 1)
    elif kind is str:
        return value.isascii() or scalars.is_text(value)
    elif kind is int:
        return -_LONG < value < _LONG or scalars.is_short(value)
    elif kind is float:
        return math.isfinite(value)
    return kind in _ATOMS


def _is_plain_list(items: list[Any], depth: int) -> bool:
    if len(items) > 4:
        # Long lists of one kind, such as embeddings, are checked without a Python loop.
        kinds = set(map(type, items))
        if kinds == {float}:
            return all(map(math.isfinite, items))
        elif kinds == {str}:
            return all(map(str.isascii, items)) or all(map(scalars.is_text, items))
    for item in items:  # noqa: SIM110 - a generator in all() costs more than the check
        if not _is_plain(item, depth):
            return False
    return True


class _Encoder:
    """Encodes one value; remembers which containers it is inside of."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def encode(self, value: object, path: str, depth: int) -> JsonValue:
        """The stored form of a part, with `depth` levels of JSON left for it."""
        plain = _scalar(value)
        if plain is not _NONE:
            return cast(JsonValue, plain)
        if id(value) in self._open:
            raise ValueNotJournalable(path, "it contains itself")
        # The deepest form puts an object and a list around its parts.
        if depth < 2:
            raise ValueNotJournalable(_short(path), f"it is nested deeper than {MAX_DEPTH} levels of JSON")
        self._open.add(id(value))
        try:
            stored = self._compound(value, path, depth)
        except (ValueNotJournalable, RecursionError):
            raise
        except Unstorable as reason:
            raise ValueNotJournalable(path, str(reason)) from reason.__cause__
        except Exception as error:
            # The value's own code (a serialiser, a property, an equality) failed: that is what a person must see.
            raise ValueNotJournalable(path, f"{type(error).__name__}: {error}") from error
        finally:
            self._open.discard(id(value))
        return stored

    def _compound(self, value: Any, path: str, depth: int) -> JsonValue:
        kind = type(cast(object, value))
        if kind is list:
            return [self.encode(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value)]
        elif kind is dict:
            return self._dict(value, path, depth)
        elif kind in scalars.TO_STORED:
            return scalars.TO_STORED[kind](value)

        def part(item: object, suffix: str) -> JsonValue:
            return self.encode(item, path + suffix, depth - 2)

        if kind is tuple:
            return {TAG: "tuple", "items": [part(item, f"[{index}]") for index, item in enumerate(value)]}
        elif kind is set or kind is frozenset:
            # In an order of their own, so that one set has one stored form in every process.
            return {TAG: kind.__name__, "items": sorted((part(item, "{…}") for item in value), key=canonical)}
        stored = objects.to_stored(value, part) or arrays.to_stored(value, part)
        if stored is None:
            # A frame puts two levels more around its columns.
            stored = frames.to_stored(value, lambda item, suffix: self.encode(item, path + suffix, depth - 4))
            if stored is None:
                raise Unstorable(_advice(value))
            frames.check_same(decode(stored), value)
        return stored

    def _dict(self, value: dict[object, object], path: str, depth: int) -> JsonValue:
        if all(type(key) is str and (key.isascii() or scalars.is_text(key)) for key in value):
            return {
                _escaped(cast(str, key)): self.encode(item, path + _step(key), depth - 1) for key, item in value.items()
            }
        # Three levels: the object, the list of pairs, and the pair.
        pairs: list[JsonValue] = [
            [self.encode(key, f"{path}.keys()", depth - 3), self.encode(item, path + _step(key), depth - 3)]
            for key, item in value.items()
        ]
        return {TAG: "dict", "items": pairs}


_NONE = object()


def _scalar(value: Any) -> object:
    """The stored form of a JSON scalar, or `_NONE` for any other value."""
    kind = type(cast(object, value))
    if kind in _ATOMS:
        return value
    elif kind is str:
        return value if value.isascii() else scalars.text_to_stored(value)
    elif kind is int:
        return value if scalars.is_short(value) else {TAG: "int", "hex": hex(value)}
    elif kind is float:
        return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
    return _NONE


def _escaped(key: str) -> str:
    return f"${key}" if key.startswith("$") else key


def _step(key: object) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    return f"[{key!r}]" if isinstance(key, str | int | float | bytes | None) else f"[{type(key).__name__}]"


def _short(path: str) -> str:
    return path if len(path) <= 80 else f"{path[:60]}…"


def _advice(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__
    for base in (str, int, float, dict, list, tuple, set, frozenset, bytes):
        if isinstance(value, base):
            return f"a {name} would come back as a plain {base.__name__}; pass {base.__name__}(value)"
    if inspect.isawaitable(value):
        return f"it is a {name} that nobody awaited"
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or hasattr(kind, "__next__"):
        return f"a {name} can be read only once; pass list(value)"
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"{getattr(value, '__qualname__', name)} is code, not a value"
    if isinstance(value, BaseException):
        return f"a {name} is an exception; raise it, or pass its text"
    full = name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
    return f"{full} has no stored form; pass JSON, a dataclass, a pydantic model, or one of the types the codec lists"
