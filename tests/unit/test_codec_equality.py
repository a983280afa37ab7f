"""JOURNAL.md, Replay rules: canonical equality; and properties of the whole codec."""

import datetime
import json
import math
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json
from unit.codec_types import Color, Frozen, Pair, Point, spelled

from agentbook.codec import canonical, decode, digest, encode, equal
from agentbook.errors import ValueNotJournalable

texts = st.text(st.characters(exclude_categories=()), max_size=8)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
natives = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)
hashables = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | texts
    | st.binary(max_size=6)
    | st.dates()
    | st.uuids()
    | st.sampled_from(Color),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Pair, inner, inner),
    max_leaves=6,
)
scalars = (
    hashables
    | st.floats()
    | st.complex_numbers()
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones() | st.just(datetime.UTC), allow_imaginary=True)
    | st.times()
    | st.timedeltas()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$type", "$$", "$", "a", "items", ""]), inner, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(Frozen, st.tuples(inner), inner)
    ),
    max_leaves=12,
)


@given(values)
@settings(deadline=None, max_examples=300)
def test_any_value_comes_back_the_same(value):
    assert spelled(decode(from_json(to_json(encode(value)), allow_inf_nan=False))) == spelled(value)


@given(natives)
@settings(deadline=None)
def test_a_native_value_is_stored_as_it_is_unless_a_key_is_escaped(value):
    stored = encode(value)
    assert spelled(decode(stored)) == spelled(value)
    if "$" not in json.dumps(value):
        assert stored is value


@given(natives, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_key_order_and_white_space_do_not_matter(value, shuffle):
    def shuffled(value):
        if isinstance(value, dict):
            items = [(key, shuffled(item)) for key, item in value.items()]
            shuffle.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    other = json.loads(json.dumps(shuffled(value), indent=3))
    assert canonical(other) == canonical(value)
    assert digest(other) == digest(value)


@given(natives, natives)
@settings(deadline=None)
def test_equal_is_equality_of_json_values(a, b):
    def told_apart(value):
        """Python calls True and 1 equal; JSON does not."""
        if isinstance(value, dict):
            return {key: told_apart(item) for key, item in value.items()}
        if isinstance(value, list):
            return [told_apart(item) for item in value]
        return (str(value),) if isinstance(value, bool) else value

    assert equal(a, b) == (told_apart(a) == told_apart(b))
    assert equal(a, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("1", "1.0"),
        ("1", "1e0"),
        ("100", "1e2"),
        ("0", "-0.0"),
        ('{"a":1,"b":[2.0]}', '{ "b" : [ 2 ], "a" : 1.0 }'),
        ("9007199254740992", "9007199254740992.0"),
    ],
)
def test_two_spellings_of_one_value_are_equal(a, b):
    assert equal(json.loads(a), json.loads(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (2**53, 2**53 + 1),
        (float(2**53), 2**53 + 1),
        (True, 1),
        (False, 0),
        (None, False),
        ("1", 1),
        ([], {}),
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
        ([True], [1]),
        ({"a": "1"}, {"a": 1}),
        ("e\u0301", "é"),
        (0.1 + 0.2, 0.3),
    ],
)
def test_two_values_are_not_equal(a, b):
    assert not equal(a, b)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, {"a": [math.nan]}, (1,), {1: 2}, {"a": {3}}, 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_json_has_no_canonical_form(value):
    with pytest.raises(ValueNotJournalable):
        canonical(value)


def test_a_refusal_names_the_path():
    with pytest.raises(ValueNotJournalable, match=r"value\.a\[1\]"):
        canonical({"a": [1, math.nan]})


def test_a_cycle_has_no_canonical_form():
    items = []
    items.append(items)
    with pytest.raises(ValueNotJournalable, match="contains itself"):
        canonical(items)


def test_the_order_of_other_keys_than_text_does_not_matter():
    assert equal(encode({1: "a", 2: "b"}), encode({2: "b", 1: "a"}))
    assert equal(encode([{1, 2, "x"}]), encode([{"x", 2, 1}]))
    assert not equal(encode({1: "a"}), encode({"1": "a"}))
    assert not equal(encode((1, 2)), encode([1, 2]))
    assert not equal(encode(Decimal("1.0")), encode(Decimal("1.00")))


def test_the_digest_is_the_same_in_every_process():
    assert digest({"b": [1.0, None], "a": "é"}) == "9b10bedce64e86a275540261fbe95bc6c195bfb10d5def7a5fc12eefcc7d0a87"


def test_a_lone_surrogate_has_a_canonical_form():
    assert canonical("\ud800") == b'"\\ud800"'


def test_large_shuffled_objects_are_equal():
    keys = [str(number) for number in range(1000)]
    shuffled = keys[:]
    random.Random(1).shuffle(shuffled)
    assert equal(dict.fromkeys(keys, 1), dict.fromkeys(shuffled, 1.0))
