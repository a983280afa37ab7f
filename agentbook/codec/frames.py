"""pandas frames, series, indexes and scalars. pandas is used only if the value's owner has imported it.

A frame has more corners than any list of dtypes, so `encode` reads each one back with
`check_same`, and refuses it if it does not come back exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pydantic import JsonValue

from agentbook.codec.scalars import zone_from_stored, zone_to_stored
from agentbook.codec.tags import TAG, Fields, Part, Unstorable, Whole


def to_stored(value: Any, part: Part) -> Fields | None:
    """The stored form of a pandas object; None for any other value.

    Raises:
        Unstorable: a column or an index of it has no stored form.
    """
    pd: Any = sys.modules.get("pandas")
    if pd is None or not hasattr(pd, "DataFrame"):
        return None
    elif value is pd.NA or value is pd.NaT:
        return {TAG: "pandas.NA" if value is pd.NA else "pandas.NaT"}
    elif type(value) is pd.Timestamp:
        zone: Fields = {} if value.tz is None else {"zone": zone_to_stored(value.tz)}
        return {TAG: "pandas.Timestamp", "value": part(value.to_datetime64(), ""), **zone}
    elif type(value) is pd.Timedelta:
        return {TAG: "pandas.Timedelta", "value": part(value.to_timedelta64(), "")}
    elif type(value) is pd.DataFrame:
        columns = [
            _array_to_stored(pd, value.iloc[:, n].array, part, f"[{name!r}]") for n, name in enumerate(value.columns)
        ]
        return {
            TAG: "pandas.DataFrame", "columns": part(value.columns, ".columns"),
            "index": part(value.index, ".index"), "data": [*columns], **_attrs(value, part),
        }  # fmt: skip
    elif type(value) is pd.Series:
        return {
            TAG: "pandas.Series", "name": part(value.name, ".name"), "index": part(value.index, ".index"),
            "data": _array_to_stored(pd, value.array, part, ".array"), **_attrs(value, part),
        }  # fmt: skip
    elif type(value) is pd.RangeIndex:
        name = part(value.name, ".name")
        return {TAG: "pandas.RangeIndex", "start": value.start, "stop": value.stop, "step": value.step, "name": name}
    elif type(value) is pd.MultiIndex:
        levels = [part(level, f".levels[{n}]") for n, level in enumerate(value.levels)]
        codes = [part(pd.Index(codes).to_numpy(), f".codes[{n}]") for n, codes in enumerate(value.codes)]
        names = part(list(value.names), ".names")
        return {TAG: "pandas.MultiIndex", "levels": [*levels], "codes": [*codes], "names": names}
    elif type(value) in (pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.CategoricalIndex):
        frequency: Fields = {"freq": value.freqstr} if getattr(value, "freq", None) is not None else {}
        data = _array_to_stored(pd, value.array, part, ".array")
        return {TAG: "pandas.Index", "data": data, "name": part(value.name, ".name"), **frequency}
    return None


def _array_to_stored(pd: Any, array: Any, part: Part, suffix: str) -> JsonValue:
    """The stored form of one column's values."""
    dtype = array.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = part(dtype.categories, f"{suffix}.categories")
        return {
            "kind": "category",
            "ordered": dtype.ordered,
            "categories": categories,
            "codes": part(array.codes, suffix),
        }
    elif isinstance(dtype, pd.DatetimeTZDtype):
        instants = part(array.tz_convert("UTC").tz_localize(None).to_numpy(), suffix)
        return {"kind": "zoned", "zone": zone_to_stored(dtype.tz), "instants": instants}
    elif isinstance(dtype, pd.StringDtype):
        texts: list[JsonValue] = [
            None if absent else part(text, f"{suffix}[{n}]")
            for n, (text, absent) in enumerate(zip(array, array.isna(), strict=True))
        ]
        return {
            "kind": "text",
            "storage": dtype.storage,
            "na": "NA" if dtype.na_value is pd.NA else "nan",
            "texts": texts,
        }
    elif type(array).__name__ in _MASKED:
        values = array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return {"kind": type(array).__name__, "values": part(values, suffix), "mask": part(array.isna(), suffix)}
    elif isinstance(array, pd.arrays.NumpyExtensionArray) or type(dtype).__module__.startswith("numpy"):
        return {"kind": "numpy", "values": part(array.to_numpy(), suffix)}
    raise Unstorable(f"{suffix} has dtype {dtype}, which has no stored form; convert it with .astype(…)")


def _array_of(pd: Any, stored: Any, whole: Whole) -> Any:
    kind = stored["kind"]
    if kind == "category":
        dtype = pd.CategoricalDtype(whole(stored["categories"]), ordered=stored["ordered"])
        return pd.Categorical.from_codes(whole(stored["codes"]), dtype=dtype)
    elif kind == "zoned":
        instants = pd.DatetimeIndex(whole(stored["instants"]))
        return instants.tz_localize("UTC").tz_convert(zone_from_stored(stored["zone"])).array
    elif kind == "text":
        missing = pd.NA if stored["na"] == "NA" else float("nan")
        dtype = pd.StringDtype(storage=stored["storage"], na_value=missing)
        return pd.array([missing if text is None else whole(text) for text in stored["texts"]], dtype=dtype)
    elif kind in _MASKED:
        return getattr(pd.arrays, kind)(whole(stored["values"]), whole(stored["mask"]))
    return whole(stored["values"])


_MASKED = ("IntegerArray", "FloatingArray", "BooleanArray")


def _attrs(value: Any, part: Part) -> Fields:
    if not value.flags.allows_duplicate_labels:
        raise Unstorable("it forbids duplicate labels, a flag that has no stored form")
    return {"attrs": part(value.attrs, ".attrs")} if value.attrs else {}


def check_same(back: Any, value: Any) -> None:
    """Refuse a frame, series or index that did not come back exactly.

    Raises:
        Unstorable: it did not.
    """
    pd: Any = import_module("pandas")
    same = {pd.DataFrame: "assert_frame_equal", pd.Series: "assert_series_equal"}.get(type(value), "assert_index_equal")
    if not isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        return
    given: dict[str, bool] = {} if same == "assert_index_equal" else {"check_freq": True, "check_flags": True}
    try:
        getattr(pd.testing, same)(back, value, check_exact=True, **given)
    except Exception as error:
        raise Unstorable(f"it would not come back the same: {error}") from error


def _frame_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    index: Any = whole(stored["index"])
    columns = {n: _series(pd, data, index, whole) for n, data in enumerate(stored["data"])}
    frame = pd.DataFrame(columns, index=index)
    frame.columns = whole(stored["columns"])
    frame.attrs = whole(stored.get("attrs", {}))
    return frame


def _series(pd: Any, stored: Any, index: Any, whole: Whole) -> Any:
    array = _array_of(pd, stored, whole)
    return pd.Series(array, index=index, dtype=array.dtype)


def _series_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    series = _series(pd, stored["data"], whole(stored["index"]), whole)
    series.name = whole(stored["name"])
    series.attrs = whole(stored.get("attrs", {}))
    return series


def _index_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    array = _array_of(pd, stored["data"], whole)
    index: Any = pd.Index(array, dtype=array.dtype, name=whole(stored["name"]))
    if "freq" in stored:
        index.freq = stored["freq"]
    return index


def _range_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    return pd.RangeIndex(stored["start"], stored["stop"], stored["step"], name=whole(stored["name"]))


def _multi_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    levels = [whole(level) for level in stored["levels"]]
    codes = [whole(codes) for codes in stored["codes"]]
    return pd.MultiIndex(levels, codes, names=whole(stored["names"]))


def _timestamp_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    instant: Any = pd.Timestamp(whole(stored["value"]))
    return instant.tz_localize("UTC").tz_convert(zone_from_stored(stored["zone"])) if "zone" in stored else instant


def _constant_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    return pd.NA if stored[TAG] == "pandas.NA" else pd.NaT


def _timedelta_from_stored(stored: Any, whole: Whole) -> object:
    pd: Any = import_module("pandas")

    return pd.Timedelta(whole(stored["value"]))


FROM_STORED: dict[str, Callable[[Any, Whole], object]] = {
    "pandas.DataFrame": _frame_from_stored,
    "pandas.Series": _series_from_stored,
    "pandas.Index": _index_from_stored,
    "pandas.RangeIndex": _range_from_stored,
    "pandas.MultiIndex": _multi_from_stored,
    "pandas.Timestamp": _timestamp_from_stored,
    "pandas.Timedelta": _timedelta_from_stored,
    "pandas.NA": _constant_from_stored,
    "pandas.NaT": _constant_from_stored,
}
