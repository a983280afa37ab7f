"""SCENARIOS S1: numpy and pandas values, stored when the program that made them has imported these."""

import datetime
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from unit.codec_types import Pair, Point, spelled, through_the_journal

from agentbook.codec import encode
from agentbook.errors import ValueNotJournalable

SCALARS = [
    np.float64(1.5), np.float64("nan"), np.float64(-0.0), np.float32(0.1), np.float16(2), np.int8(-3), np.int64(2**62),
    np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 - 2j), np.complex128(complex(0, float("inf"))),
    np.str_("ü\x00"), np.bytes_(b"a\x00b"), np.datetime64("2024-01-01T00:00:00.000000001"), np.datetime64("2024-01"),
    np.datetime64("NaT"), np.timedelta64(3, "D"), np.timedelta64("NaT"),
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_a_numpy_scalar_comes_back_with_its_dtype(value):
    back = through_the_journal({"in": [value]})["in"][0]
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()


ARRAYS = [
    np.arange(6).reshape(2, 3), np.array(3.5), np.zeros((0, 4), dtype="u2"), np.array([1.5, np.nan, -0.0], dtype=">f4"),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(10)[::3], np.array([True, False]),
    np.array(["a", "bü"]), np.array([b"x", b"yz"]), np.array(["2024-01-01", "NaT"], dtype="M8[s]"), np.array([1 + 2j]),
]  # fmt: skip


@pytest.mark.parametrize("value", ARRAYS, ids=repr)
def test_a_numpy_array_comes_back_with_dtype_and_shape(value):
    back = through_the_journal(Pair(value)).left
    assert type(back) is np.ndarray
    assert (back.dtype.str, back.shape, back.tobytes()) == (value.dtype.str, value.shape, value.tobytes())
    assert back.flags.writeable


def test_an_array_of_objects_keeps_each_element():
    value = np.empty((2, 2), dtype=object)
    value[:] = [[Decimal(1), [1, 2]], [(3,), None]]
    back = through_the_journal(value)
    assert (back.dtype, back.shape) == (object, (2, 2))
    assert spelled(back.ravel().tolist()) == spelled(value.ravel().tolist())


BERLIN = "Europe/Berlin"
TIMES = pd.date_range("2024-10-26", periods=3, freq="D", tz=BERLIN)
FRAMES = {
    "empty": pd.DataFrame(),
    "no rows": pd.DataFrame({"a": pd.Series([], dtype="int32"), "b": pd.Series([], dtype="str")}),
    "no columns": pd.DataFrame(index=[1, 2]),
    "plain": pd.DataFrame({"a": [1, 2], "b": [1.5, np.nan], "c": ["x", None], "d": [True, False]}),
    "objects": pd.DataFrame({"a": pd.Series([1, "x", Decimal(2), (1, 2), None, pd.NA, pd.NaT], dtype=object)}),
    "dtypes": pd.DataFrame(
        {
            "i": pd.array([1, None], dtype="Int64"),
            "u": pd.array([1, 2], dtype="UInt8"),
            "f": pd.array([1.5, None], dtype="Float32"),
            "b": pd.array([True, None], dtype="boolean"),
            "s": pd.array(["x", None], dtype="string"),
            "py": pd.array(["x", None], dtype=pd.StringDtype("python", na_value=np.nan)),
            "c": pd.Categorical(["lo", None], categories=["hi", "lo"], ordered=True),
            "t": pd.to_datetime(["2024-01-01", None]),
            "ms": pd.Series(["2024-01-01", None], dtype="datetime64[ms]"),
            "z": pd.to_datetime(["2024-01-01", None]).tz_localize(BERLIN),
            "utc": pd.to_datetime(["2024-01-01", None]).tz_localize("UTC"),
            "d": pd.to_timedelta(["3h", None]),
        }
    ),
    "zone and frequency": pd.DataFrame({"x": [1, 2, 3]}, index=TIMES.rename("when")),
    "dates": pd.DataFrame({"x": [1, 2]}, index=pd.Index([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)])),
    "many levels": pd.DataFrame(
        {("a", 1): [1, 2], ("b", 2): [3, 4]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["l", None])
    ),
    "twice": pd.DataFrame([[1, "x"], [2, "y"]], columns=["same", "same"], index=[7, 7]),
    "range": pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(9, 3, -2, name="n")),
    "categories": pd.DataFrame({"a": [1, 2]}, index=pd.CategoricalIndex(["x", "y"])),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_exactly(name):
    value = FRAMES[name]
    back = through_the_journal([value])[0]
    pd.testing.assert_frame_equal(back, value, check_exact=True, check_freq=True, check_column_type=True)
    assert [str(dtype) for dtype in back.dtypes] == [str(dtype) for dtype in value.dtypes]
    for column in range(value.shape[1]):
        if str(value.dtypes.iloc[column]) == "object":
            assert spelled(back.iloc[:, column].tolist()) == spelled(value.iloc[:, column].tolist())


@pytest.mark.parametrize("name", [name for name, frame in FRAMES.items() if frame.shape[1]])
def test_each_column_comes_back_as_a_series(name):
    for _, column in FRAMES[name].items():
        pd.testing.assert_series_equal(through_the_journal(column), column, check_exact=True)


def test_attributes_of_a_frame_come_back():
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["source"] = ("bank", Decimal(1))
    assert through_the_journal(frame).attrs == frame.attrs


@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp("2024-01-01T00:00:00.000000001"), pd.Timestamp("2024-10-27 00:30", tz="UTC").tz_convert(BERLIN),
        pd.Timestamp("2024-10-27 01:30", tz="UTC").tz_convert(BERLIN),
        pd.Timestamp("2024-01-01").as_unit("s"), pd.Timedelta("1ns"), pd.NaT, pd.NA, pd.RangeIndex(3),
        pd.Index(["a", None]), TIMES, pd.timedelta_range("1h", periods=3, freq="h"),
    ],
    ids=repr,
)  # fmt: skip
def test_other_pandas_values_come_back(value):
    back = through_the_journal((value,))[0]
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert getattr(back, "unit", None) == getattr(value, "unit", None)
    assert getattr(back, "fold", None) == getattr(value, "fold", None)


class Thing:
    pass


class MyFrame(pd.DataFrame):
    pass


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (np.longdouble(1), "result", "longdouble|float128"),
        (np.zeros(2, dtype=[("a", "i4")]), "result", "dtype"),
        (np.array([1, Thing()], dtype=object), r"result\[1\]", "Thing"),
        (np.ma.masked_array([1], [True]), "result", "MaskedArray has no stored form"),
        (pd.DataFrame({"a": [1], "b": [Thing()]}), r"result\['b'\]\[0\]", "Thing"),
        (pd.DataFrame({"p": pd.period_range("2024", periods=1)}), "result", r"\['p'\] has dtype period"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "result", r"\['a'\] has dtype Sparse"),
        (pd.Series([1], name=Thing()), r"result\.name", "Thing"),
        (pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False), "result", "duplicate labels"),
        (MyFrame({"a": [1]}), "result", "MyFrame has no stored form"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused_by_path(value, path, reason):
    with pytest.raises(ValueNotJournalable, match=rf"^{path} cannot be journaled: .*({reason})"):
        encode(value, "result")


def test_a_frame_inside_a_dataclass_is_stored_too():
    back = through_the_journal(Point({"frame": FRAMES["dtypes"]}))
    pd.testing.assert_frame_equal(back.x["frame"], FRAMES["dtypes"])


def test_the_codec_imports_neither_numpy_nor_pandas():
    script = (
        "import sys; from decimal import Decimal; from agentbook.codec import decode, encode; "
        "decode(encode({'a': (Decimal(1), {2})})); print(sorted({'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
