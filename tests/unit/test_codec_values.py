"""SCENARIOS S1 to S3: the same value and type on every path, or a refusal that names the path."""

import asyncio
import inspect
import json
import subprocess
import sys
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, SecretStr
from unit.codec_types import (
    Basket,
    Box,
    Celsius,
    Checked,
    Climate,
    Color,
    Doubling,
    Frozen,
    IntBox,
    Item,
    Level,
    Listy,
    MyDict,
    MyInt,
    MyList,
    MyStr,
    Numbers,
    OldPair,
    Pair,
    Point,
    Raising,
    Rights,
    Rounding,
    Weather,
    Word,
    spelled,
    through_the_journal,
)

from agentbook.codec import decode, encode
from agentbook.codec.tags import MAX_DEPTH
from agentbook.errors import FormatVersion, JournalError, ValueNotJournalable

BERLIN = ZoneInfo("Europe/Berlin")
NATIVE = [
    None,
    True,
    0,
    -1,
    2**53 + 1,
    -(2**64),
    2**4000,
    1.0,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    "",
    "a\x00b",
    "😀\u202e",
    "2024-01-01T00:00:00Z",
    [],
    {},
    [1, 1.0, True, None, "x", [[]], {"": {}}],
    {"a": [{"b": [1.5, 2.5]}], "type": "x", "a b": "ü"},
]
TAGGED = [
    float("nan"),
    float("inf"),
    -float("inf"),
    2**5000,
    -(10**5000),
    "\ud800",
    "\ud83d\ude00 apart, \\ud800 spelled",
    (),
    (1, (2.0, [3])),
    {1, 2},
    {"a", "b", "c"},
    frozenset({(1, 2), "x"}),
    b"\x00\xff",
    bytearray(b"x"),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("sNaN12"),
    Decimal("Infinity"),
    complex(-0.0, float("nan")),
    UUID(int=7),
    Path("a/b"),
    Path("a\udcff"),
    PurePosixPath("/x"),
    PureWindowsPath("c:\\x"),
    date(2024, 2, 29),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    timedelta(days=-1, microseconds=1),
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=timezone(timedelta(hours=-5, seconds=7))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 10, 27, 2, 30, fold=1),
    Color.CRIMSON,
    Color.BLUE,
    Level.LOW,
    Word.YES,
    Rights.READ,
    Rights.READ | Rights.WRITE,
    Rights(0),
    Point(1, Point({"a": Decimal(1)})),
    Frozen((1, {2}), hidden=b"x"),
    Checked(3),
    Pair(1, Pair({2}, None)),
    OldPair(1, 2),
    Item(name="x"),
    Item(name="x", price=Decimal("1.5"), tags={"b", "a"}, link="https://example.org/a?b=1"),
    Basket(erster=Item(name="x"), rest=[Item(name="y", price=(1, 2))], note={1: "extra"}, **{"$odd": 1}),
    Doubling(n=2),
    Numbers([1, 2]),
    IntBox(content=3),
    {1: "a", "1": "b", None: "c", (1, 2): "d", Level.LOW: "e"},
    {1.5: 1, True: 2},
    {"\ud800": 1},
    {"$type": "tuple", "items": [1]},
    {"$": 1, "$$type": {"$blob": 2}, "plain": 3},
    {"a": [{"b": (1, {"c": {Decimal(1)}})}]},
    [float("nan"), 1.0, -0.0],
    [2**5000, 1],
    ["\ud800", "ok"],
]


@pytest.mark.parametrize("value", NATIVE, ids=lambda value: ascii(value)[:40])
def test_s1_json_is_stored_as_it_is(value):
    assert encode(value) is value
    assert spelled(through_the_journal(value)) == spelled(value)


@pytest.mark.parametrize(
    "value", TAGGED, ids=lambda value: type(value).__name__
)  # a set prints differently in each process
def test_s1_the_same_value_and_type_come_back(value):
    stored = encode(value)
    assert stored is not value
    assert spelled(through_the_journal(value)) == spelled(value)
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


def test_s1_every_value_comes_back_from_inside_the_others():
    everything = {"list": TAGGED, "pair": Pair(left=TAGGED, right=Point({"deep": TAGGED}))}
    assert spelled(through_the_journal(everything)) == spelled(everything)


def test_a_cached_property_is_computed_again():
    value = Checked(2)
    assert value.tripled == 6
    back = through_the_journal(value)
    assert (back, back.tripled) == (value, 6)
    assert "tripled" not in encode(value)["fields"]


def test_private_attributes_of_a_model_come_back():
    basket = Basket(erster=Item(name="x"))
    basket._seen = 4
    assert through_the_journal(basket)._seen == 4
    assert not hasattr(through_the_journal(basket), "_later")


def test_decoded_containers_are_new():
    value = {"a": [1]}
    assert decode(value) == value
    assert decode(value)["a"] is not value["a"]


def test_a_set_has_one_stored_form_in_every_process():
    script = "from agentbook.codec import encode; print(encode({'a', 'b', 'c', ('d', 1), 5}))"
    forms = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in "123"
    }
    assert len(forms) == 1


def test_s2_a_long_text_is_stored_exactly():
    text = "a\x00😀\u202e" * 700_000
    assert through_the_journal({"output": text}) == {"output": text}


class Bad:
    def __repr__(self):
        raise RuntimeError("no repr")


class LoudZone(tzinfo):
    def utcoffset(self, when):
        return timedelta(0)


def in_function():
    class Local(BaseModel):
        x: int = 1

    return Local()


def redefined():
    fields = {"__module__": __name__, "__qualname__": "Fresh", "__annotations__": {"x": int}, "x": 1}
    old = type("Fresh", (BaseModel,), dict(fields))
    globals()["Fresh"] = type("Fresh", (BaseModel,), dict(fields))
    return old()


def with_attribute(value, name="note"):
    object.__setattr__(value, name, 1)
    return value


def cyclic():
    items = [{"a": []}]
    items[0]["a"].append(items)
    return items


def nested(levels, make):
    value = 1
    for _ in range(levels):
        value = make(value)
    return value


async def never_awaited(): ...


def coroutine():
    made = never_awaited()
    made.close()
    return made


REFUSED = [
    (
        lambda: {"items": [0, 0, 0, {"when": datetime(2024, 1, 1, tzinfo=LoudZone())}]},
        "result.items[3].when",
        "LoudZone",
    ),
    (lambda: {"a": Point(1, Pair(left=[Bad()]))}, "result.a.y.left[0]", "Bad has no stored form"),
    (lambda: {"two words": Bad(), 3: 1}, "result['two words']", "Bad"),
    (lambda: {3: Bad()}, "result[3]", "Bad"),
    (lambda: {Bad(): 1}, "result.keys()", "Bad"),
    (lambda: [{1, Fraction(1, 2)}], "result[0]{…}", "Fraction"),
    (lambda: MyDict(a=1), "result", "would come back as a plain dict; pass dict(value)"),
    (lambda: [MyList()], "result[0]", "plain list"),
    (lambda: {"a": MyInt(3)}, "result.a", "plain int"),
    (lambda: {"a": MyStr("x")}, "result.a", "plain str"),
    (lambda: {MyStr("x"): 1}, "result.keys()", "plain str"),
    (lambda: Listy(3), "result", "derives from a built-in class"),
    (lambda: with_attribute(Point(1)), "result", "attributes beside its fields: note"),
    (lambda: with_attribute(OldPair(1, 2)) if hasattr(OldPair(1, 2), "__dict__") else Bad(), "result", ""),
    (lambda: Item.model_construct(name="x").model_copy(update={"odd": 1}), "result", "beside its fields: odd"),
    (lambda: Basket.model_construct(rest=[]), "result", "constructed without first"),
    (lambda: Item(name="x", price=[Bad()]), "result.price[0]", "Bad"),
    (lambda: Climate(now=Celsius(3)), "result.now", "Celsius has no stored form"),
    (lambda: in_function(), "result", "defined inside a function"),
    (lambda: redefined(), "result", "ran again after this value was made"),
    (lambda: Box[int](content=1), "result", "has no name of its own"),
    (lambda: SecretStr("x"), "result", "SecretStr has no stored form"),
    (lambda: cyclic(), "result[0].a[0]", "contains itself"),
    (lambda: nested(200, lambda value: [value]), "result[0][0]", "nested deeper than 128"),
    (lambda: nested(100, lambda value: {"a": (value,)}), "result.a", "nested deeper than 128"),
    (lambda: coroutine(), "result", "nobody awaited"),
    (lambda: (n for n in range(3)), "result", "can be read only once"),
    (lambda: iter([1]), "result", "can be read only once"),
    (lambda: len, "result", "len is code"),
    (lambda: Point, "result", "Point is code"),
    (lambda: ValueError("x"), "result", "is an exception"),
    (lambda: object(), "result", "object has no stored form"),
]


@pytest.mark.parametrize(("make", "path", "reason"), REFUSED, ids=[f"{path}-{reason}" for _, path, reason in REFUSED])
def test_s1_a_refusal_names_the_path(make, path, reason):
    with pytest.raises(ValueNotJournalable) as caught:
        encode(make(), "result")
    assert caught.value.path.startswith(path)
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 300


def test_what_is_stored_is_within_the_readers_depth():
    deepest = nested(MAX_DEPTH, lambda value: [value])
    assert through_the_journal(deepest) == deepest
    for make in (lambda value: (value,), lambda value: {1: value}, Point, lambda value: Item(name="", price=value)):
        levels = 1
        while levels < MAX_DEPTH:
            try:
                encode(nested(levels, make))
            except ValueNotJournalable:
                break
            levels += 1
        assert levels > 30
        deepest = nested(levels - 1, make)
        assert repr(through_the_journal(deepest)) == repr(deepest)


def test_the_same_object_twice_is_no_cycle():
    shared = [{1}]
    assert through_the_journal([shared, shared, (shared,)]) == [shared, shared, (shared,)]


def test_s3_a_serialiser_that_raises_is_the_cause():
    with pytest.raises(ValueNotJournalable, match=r"result\[0\] .*LookupError|result\[0\].*serialiser down") as caught:
        encode([Raising()], "result")
    assert "serialiser down" in str(caught.value)
    assert "serialiser down" in str(caught.value.__cause__)


def test_s3_a_property_that_raises_is_the_cause():
    value = Point(1)
    del value.x
    with pytest.raises(ValueNotJournalable, match="AttributeError") as caught:
        encode(value, "result")
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_serialiser_for_display_does_not_change_the_value():
    assert through_the_journal(Rounding(x=1.25)).x == 1.25


def test_a_models_own_serialiser_stores_what_the_codec_cannot():
    assert through_the_journal([Weather(now=Celsius(3))]) == [Weather(now=Celsius(3))]


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"$type": "pydantic", "class": "not_imported_here:Item", "fields": {}}, "`import not_imported_here` first"),
        ({"$type": "enum", "class": "__main__:Colour", "name": "x"}, r"run the cell \(or script\) that defines Colour"),
        ({"$type": "dataclass", "class": "unit.codec_types:Gone", "fields": {}}, "no longer defines Gone"),
        (
            {"$type": "dataclass", "class": "unit.codec_types:Item", "fields": {}},
            "no longer a class of the stored kind",
        ),
        ({"$type": "pydantic", "class": "subprocess:Popen", "fields": {"args": "true"}}, "no longer a class"),
        ({"$type": "dataclass", "class": "os:system", "fields": {}}, "no longer a class"),
        (
            {"$type": "enum", "class": "unit.codec_types:Color", "name": "GREEN"},
            "Color.GREEN, which the class no longer",
        ),
        (
            {"$type": "dataclass", "class": "unit.codec_types:Point", "fields": {"y": 1}},
            "a new field x without a default",
        ),
        ({"$type": "dataclass", "class": "unit.codec_types:Point", "fields": {"x": 1, "z": 1}}, "no field z any more"),
        ({"$type": "pydantic", "class": "unit.codec_types:Item", "fields": {}}, "a new field name without a default"),
        ({"$type": "namedtuple", "class": "unit.codec_types:Pair", "fields": {"left": 1, "up": 2}}, "no field up any"),
        ({"$type": "datetime", "value": "2024-01-01T00:00:00", "zone": "Mars/Olympus"}, "install tzdata"),
        ({"$type": "datetime", "value": "yesterday"}, "a stored datetime cannot be read"),
        ({"$type": "tuple"}, "a stored tuple cannot be read"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(stored, text):
    with pytest.raises(JournalError, match=text):
        decode([stored])


def test_an_unknown_stored_type_is_of_a_newer_version():
    with pytest.raises(FormatVersion, match="'hologram'"):
        decode({"$type": "hologram"})


def test_decoding_imports_nothing_by_a_name_that_was_read():
    module = "wave"
    sys.modules.pop(module, None)
    with pytest.raises(JournalError, match="`import wave` first"):
        decode({"$type": "dataclass", "class": f"{module}:Wave_read", "fields": {}})
    assert module not in sys.modules


def test_a_field_that_a_class_has_gained_takes_its_default():
    stored = encode(Point(1, 2))
    del stored["fields"]["y"]
    assert decode(stored) == Point(1, 0)
    stored = encode(Item(name="x", tags={"a"}))
    del stored["fields"]["tags"]
    assert decode(stored) == Item(name="x")
    assert decode(stored).model_fields_set == {"name"}


@pytest.mark.parametrize(
    ("value", "expected", "back"),
    [
        ([1, 2], tuple[int, ...], (1, 2)),
        ({"name": "x"}, Item, Item(name="x")),
        (Item(name="x"), Item, Item(name="x")),
        ("2024-01-01", date, date(2024, 1, 1)),
        (Path("a"), Path, Path("a")),
        (None, int | None, None),
        (3, Annotated[int, [1]], 3),
        ({"name": "x"}, Annotated[Item, []], Item(name="x")),
    ],
)
def test_a_return_annotation_types_the_value(value, expected, back):
    assert spelled(decode(encode(value), expected)) == spelled(back)


def test_a_value_of_another_type_than_annotated_is_refused():
    with pytest.raises(JournalError, match="that the code expects"):
        decode("many", int)
    with pytest.raises(JournalError, match="that the code expects"):
        decode("many", asyncio.Queue)


def test_a_models_own_serialiser_is_not_used_if_it_would_change_a_type():
    value = Weather(now=Celsius(3), note=Level.LOW)
    with pytest.raises(ValueNotJournalable, match=r"result\.now .*Celsius"):
        encode(value, "result")
    with pytest.raises(ValueNotJournalable, match=r"result\.now .*Celsius"):
        encode(Weather.model_construct(now=Celsius(3), note="x", hour=-1), "result")


def test_a_stack_that_is_too_deep_is_a_refusal():
    def deeper(levels):
        return deeper(levels - 1) if levels else encode(nested(40, Point), "result")

    with pytest.raises(ValueNotJournalable, match=r"result .*Python stack"):
        deeper(sys.getrecursionlimit() - len(inspect.stack()) - 60)


def test_a_zone_without_a_name_is_refused():
    with (Path(zoneinfo.TZPATH[0]) / "Europe/Berlin").open("rb") as file:
        zone = ZoneInfo.from_file(file)
    with pytest.raises(ValueNotJournalable, match="ZoneInfo"):
        encode(datetime(2024, 1, 1, tzinfo=zone))
