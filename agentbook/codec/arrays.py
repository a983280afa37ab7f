"""numpy scalars and arrays. numpy is used only if the value's owner has imported it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pydantic import JsonValue

from agentbook.codec.tags import TAG, Fields, Part, Unstorable, Whole

_KINDS = frozenset("biufcMmSU")
_WIDEST = {"f": 8, "c": 16}
"""Bytes; wider floats differ from machine to machine."""


def to_stored(value: Any, part: Part) -> Fields | None:
    """The stored form of a numpy scalar or array; None for any other value.

    Raises:
        Unstorable: its dtype has no stored form.
    """
    np: Any = sys.modules.get("numpy")
    if np is None or not hasattr(np, "ndarray"):
        return None
    elif type(value) is np.ndarray:
        return _array_to_stored(value, part)
    elif isinstance(value, np.generic):
        return _scalar_to_stored(value, part)
    return None


def _array_to_stored(value: Any, part: Part) -> Fields:
    shape: list[JsonValue] = [*value.shape]
    if value.dtype.kind == "O":
        # Walked by position, so that an element that is a list stays an element.
        items = [part(item, f"[{index}]") for index, item in enumerate(value.ravel().tolist())]
        return {TAG: "numpy.array", "dtype": "object", "shape": shape, "items": items}
    _check_dtype(value.dtype)
    data = base64.b64encode(value.tobytes()).decode("ascii")
    return {TAG: "numpy.array", "dtype": value.dtype.str, "shape": shape, "base64": data}


def _array_from_stored(stored: Any, whole: Whole) -> object:
    np: Any = import_module("numpy")

    array: Any
    if "items" in stored:
        array = np.empty(len(stored["items"]), dtype=object)
        for index, item in enumerate(stored["items"]):
            array[index] = whole(item)
    else:
        # bytearray, because an array over bytes cannot be written to.
        array = np.frombuffer(bytearray(base64.b64decode(stored["base64"])), dtype=np.dtype(stored["dtype"]))
    return array.reshape(stored["shape"])


def _scalar_to_stored(value: Any, part: Part) -> Fields:
    dtype = value.dtype
    _check_dtype(dtype)
    if type(value) is not dtype.type:
        raise Unstorable(f"a {type(value).__qualname__} would come back as a {dtype.type.__name__}")
    if dtype.kind in "Mm":
        item = int(value.view("i8"))
    elif dtype.kind in "SU":
        # numpy's own `str` and `item` drop NULs at the end.
        item = bytes(value) if dtype.kind == "S" else str.__str__(value)
    else:
        item = value.item()
    return {TAG: "numpy.scalar", "dtype": dtype.str, "value": part(item, "")}


def _scalar_from_stored(stored: Any, whole: Whole) -> object:
    np: Any = import_module("numpy")

    dtype = np.dtype(stored["dtype"])
    item: Any = whole(stored["value"])
    if dtype.kind in "Mm":
        return np.array(item, dtype="i8").view(dtype)[()]
    return dtype.type(item)


def _check_dtype(dtype: Any) -> None:
    if dtype.kind not in _KINDS or dtype.itemsize > _WIDEST.get(dtype.kind, dtype.itemsize) or dtype.metadata:
        raise Unstorable(f"numpy dtype {dtype} has no stored form; convert it with .astype(…)")


FROM_STORED: dict[str, Callable[[Any, Whole], object]] = {
    "numpy.array": _array_from_stored,
    "numpy.scalar": _scalar_from_stored,
}
