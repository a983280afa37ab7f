"""From a stored form back to the Python value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from pydantic import ConfigDict, JsonValue, PydanticUserError, TypeAdapter, ValidationError

from agentbook.codec import arrays, frames, objects, scalars
from agentbook.codec.tags import TAG, Fields, Whole
from agentbook.errors import FormatVersion, JournalError


def decode(stored: JsonValue, type: Any = None) -> object:  # noqa: A002 - the field's word for it
    """The value of a stored form: new containers, the same value and type that was encoded.

    Nothing is imported by a name that the data holds: a class is found only in modules
    that are imported already.

    Args:
        stored: what `encode` gave, read back from JSON.
        type: what the value must be, such as a return annotation: pydantic validates it. None: anything.

    Raises:
        JournalError: it is of a class that is not known here, or that has changed; the text says what to do.
        FormatVersion: it was written by a newer version.

    Example:
        >>> decode({"$type": "tuple", "items": [1, 2]})
        (1, 2)
    """
    value = _whole(stored)
    return value if type is None else _validated(value, type)


def _whole(stored: JsonValue) -> Any:
    if isinstance(stored, dict):
        if TAG in stored:
            return _tagged(stored)
        return {
            key[1:] if key[:1] == "$" else key: item if type(item) in _ATOMS else _whole(item)
            for key, item in stored.items()
        }
    elif isinstance(stored, list):
        return [item if type(item) in _ATOMS else _whole(item) for item in stored]
    return stored


_ATOMS = frozenset({str, int, float, bool, type(None)})


def _tagged(stored: Fields) -> object:
    tag = cast(str, stored[TAG])
    read = _READERS.get(tag)
    if read is None:
        raise FormatVersion(f"a stored value is of type {tag!r}, which this agentbook does not know: upgrade it.")
    try:
        return read(stored, _whole)
    except JournalError:
        raise
    except ImportError as error:
        raise JournalError(f"a stored {tag} needs {error.name}: pip install {error.name}, then resume.") from error
    except Exception as error:
        raise JournalError(f"a stored {tag} cannot be read: {error!r}") from error


def _items(stored: Fields, whole: Whole) -> list[Any]:
    return [whole(item) for item in cast(list[JsonValue], stored["items"])]


def _scalar(read: Callable[[Any], object]) -> Callable[[Any, Whole], object]:
    return lambda stored, whole: read(stored)


_READERS: dict[str, Callable[[Any, Whole], object]] = {
    "tuple": lambda stored, whole: tuple(_items(stored, whole)),
    "set": lambda stored, whole: set(_items(stored, whole)),
    "frozenset": lambda stored, whole: frozenset(_items(stored, whole)),
    "dict": lambda stored, whole: {whole(key): whole(item) for key, item in stored["items"]},
    **{tag: _scalar(read) for tag, read in scalars.FROM_STORED.items()},
    **objects.FROM_STORED,
    **arrays.FROM_STORED,
    **frames.FROM_STORED,
}


def _validated(value: object, type: Any) -> object:  # noqa: A002 - as in `decode`
    try:
        adapter = _cached_adapter(type)
    except TypeError:  # an annotation may hold something that cannot be hashed
        adapter = _adapter(type)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise JournalError(f"a stored value is not the {type!r} that the code expects: {error}") from error


def _adapter(type: Any) -> TypeAdapter[object]:  # noqa: A002 - as in `decode`
    try:
        return TypeAdapter(type)
    except PydanticUserError:
        # A class that pydantic knows nothing of, such as DataFrame, is checked by isinstance.
        return TypeAdapter(type, config=ConfigDict(arbitrary_types_allowed=True))


_cached_adapter = functools.lru_cache(maxsize=256)(_adapter)
