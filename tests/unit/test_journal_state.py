"""JOURNAL.md, State without quadratic growth: `store`, `restore`, and what a long loop costs."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json
from unit.journal_model import Paper

from agentbook.errors import JournalTruncated
from agentbook.journal.records import Claim, Commit, ModelResponse
from agentbook.journal.state import restore, store

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["", "a", "ü😀"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc/~ "), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
keys = st.sampled_from(["messages", "a/b", "", "/", "at", "append", "~1"])


@st.composite
def grown(draw, old):
    """A state that a turn may leave after `old`: the same, longer, shorter, changed within, or another."""
    new = copy.deepcopy(old)
    change = draw(st.sampled_from(["same", "longer", "longer", "longer", "within", "shorter", "other"]))
    lists = [new] if isinstance(new, list) else []
    if isinstance(new, dict):
        lists = [value for value in new.values() if isinstance(value, list)]
        if change == "other" and draw(st.booleans()):
            new[draw(keys)] = draw(values)
            return new
    for index in range(len(lists) if draw(st.integers(0, 3)) == 0 else min(1, len(lists))):
        if change == "longer":
            lists[index].extend(draw(st.lists(values, max_size=3)))
        elif change == "within" and lists[index]:
            lists[index][draw(st.integers(0, len(lists[index]) - 1))] = draw(values)
            lists[index].append(draw(values))
        elif change == "shorter" and lists[index]:
            lists[index].pop()
    return draw(values) if change == "other" else new


firsts = st.one_of(
    values,
    st.lists(values, max_size=4),
    st.dictionaries(keys, st.lists(values, max_size=3) | scalars, max_size=3),
)


def commit_of(paper, state, claim="c", iteration=0):
    """The commit of a turn that leaves `state`, written as a holder writes it."""
    past = paper.folded
    kept = store(
        past.state,
        state,
        base=past.advancing.seq if past.advancing else None,
        snapshot=past.snapshot,
        bytes_since=past.bytes_since,
    )
    commit = Commit(action="continue", state=kept.state, snapshot=kept.snapshot, head=paper.head or 1)
    return paper.write(commit, claim, iteration)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_stored_state_comes_back_equal_whatever_it_grew_from(data):
    paper, state = Paper(), data.draw(firsts)
    for iteration in range(data.draw(st.integers(1, 5))):
        commit_of(paper, state, iteration=iteration)
        assert to_json(paper.folded.state) == to_json(state)
        state = data.draw(grown(state))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_state_is_restored_from_its_base_alone(data):
    """With few bytes since the last full state, so that what can be appended is."""
    old = data.draw(firsts)
    new = data.draw(grown(old))
    kept = store(old, new, base=7, snapshot=3, bytes_since=0)
    assert kept.snapshot in (None, 3)
    commit = Commit(action="continue", state=kept.state, snapshot=kept.snapshot, head=1)
    assert to_json(restore(copy.deepcopy(old), commit)) == to_json(new)


@pytest.mark.parametrize(
    ("old", "new", "at", "gained"),
    [
        ([1], [1, 2], "", [2]),
        ({"messages": [1], "n": 1}, {"messages": [1, 2, 3], "n": 1}, "/messages", [2, 3]),
        ({"a": [1], "b": [1]}, {"a": [1], "b": [1, 2]}, "/b", [2]),
        ([], [None], "", [None]),
        ({"": [1], "a": 1}, {"": [1, 2], "a": 1}, "/", [2]),
        ({"/a~1/": [1], "": 1}, {"/a~1/": [1, 2], "": 1}, "//a~1/", [2]),
    ],
)
def test_a_list_that_grew_is_stored_as_what_it_gained(old, new, at, gained):
    kept = store(old, new, base=7, snapshot=3, bytes_since=0)
    assert kept.state == {"base": 7, "at": at, "append": gained}
    assert kept.snapshot == 3
    assert restore(old, Commit(action="continue", state=kept.state, snapshot=3, head=1)) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1], [2, 1]),
        ([1, 2], [1]),
        ([1], [True, 2]),
        ({"a": [1], "b": [1]}, {"a": [1, 2], "b": [1, 2]}),
        ({"a": [1], "n": 1}, {"a": [1, 2], "n": 2}),
        ({"a": [1]}, {"a": [1, 2], "b": 1}),
        ({"a": [1], "b": 1}, {"a": [1, 2]}),
        ({"a": 1}, {"a": 2}),
        (1, 2),
        (None, []),
        ([], {}),
    ],
)
def test_any_other_change_is_stored_in_full(old, new):
    kept = store(old, new, base=7, snapshot=3, bytes_since=0)
    assert (kept.state, kept.snapshot) == (new, None)


@pytest.mark.parametrize(("base", "snapshot"), [(None, None), (None, 3), (7, None)])
def test_the_first_state_is_stored_in_full(base, snapshot):
    assert store([1], [1, 2], base=base, snapshot=snapshot, bytes_since=0).snapshot is None


def test_a_full_state_is_stored_once_the_bytes_since_the_last_outweigh_it():
    old, new = [0] * 50, [0] * 51
    size = len(to_json(new))
    assert store(old, new, base=7, snapshot=3, bytes_since=size - 60).snapshot == 3
    assert store(old, new, base=7, snapshot=3, bytes_since=size + 1).snapshot is None


@pytest.mark.parametrize("old", [None, 1, {}, {"messages": 1}, {"other": [1]}, [1]])
def test_a_state_whose_base_is_not_there_is_truncated(old):
    grown_ = {"base": 7, "at": "/messages", "append": [2]}
    commit = Commit(action="continue", state=grown_, snapshot=3, head=1)
    with pytest.raises(JournalTruncated, match="7"):
        restore(old, commit)


def test_a_state_that_looks_like_an_appended_one_is_kept_as_it_is():
    state = {"base": 1, "at": "/messages", "append": [1]}
    paper = Paper()
    commit_of(paper, state)
    assert paper.folded.state == state
    commit_of(paper, state | {"append": [1, 2]}, iteration=1)
    assert paper.folded.state == state | {"append": [1, 2]}


def test_a_failed_attempt_leaves_the_state():
    paper = Paper()
    commit_of(paper, [1])
    paper.write(Commit(action="fail", head=1), "d", 1)
    assert paper.folded.state == [1]
    commit_of(paper, [1, 2], iteration=1)
    assert paper.folded.state == [1, 2]


def loop(turns, message):
    """The bytes of each turn of an agent loop whose conversation gains two messages a turn."""
    paper, conversation, sizes = Paper(gaps=(1,)), [], []
    for iteration in range(turns):
        claim = f"{iteration:032x}"
        past = paper.folded
        before = past.advancing.seq if past.advancing else None
        turn = [
            Claim(worker="w", dispatch=iteration, delivery=1, code="c", prev=before, head=paper.head),
            ModelResponse(position=0, model="m", request="d" * 64, response=message, ms=1.0),
        ]
        written = [paper.write(record, claim, iteration) for record in turn]
        conversation = [*conversation, {"role": "assistant", "text": message}, {"role": "user", "text": "more"}]
        written.append(commit_of(paper, {"messages": conversation}, claim, iteration))
        sizes.append(sum(len(record.encode()) for record in written))
    assert paper.folded.state == {"messages": conversation}
    return sizes


@pytest.mark.parametrize("message", ["short", "x" * 500])
def test_s7_bytes_grow_with_the_turns_and_not_with_their_square(message):
    short, long = sum(loop(100, message)), sum(loop(400, message))
    assert long < 5.5 * short, f"4 times the turns cost {long / short:.1f} times the bytes"
