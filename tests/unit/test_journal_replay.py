"""JOURNAL.md, Replay rules: `replay` held against a model written from its tables (`journal_model`)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.journal_model import Ask, Desk

from agentbook import codec
from agentbook.errors import ReplayMismatch
from agentbook.journal import replay
from agentbook.journal.check import check
from agentbook.journal.records import Resolution, ToolIntent, ToolPartial, ToolResult

ANY_LENGTH = 10**6

# Few names and inputs, so that equal calls are common; each pair of inputs is equal or differs canonically.
INPUTS = [1, 1.0, True, {"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, {"a": 1}, None]
asks = st.one_of(
    st.just(Ask()),
    st.builds(Ask, st.sampled_from(["charge", "charge", "search"]), st.sampled_from(INPUTS)),
)
declarations = st.fixed_dictionaries(
    {
        "charge": st.sampled_from(["unsafe", "unsafe", "unsafe", "safe", None]),
        "search": st.sampled_from(["safe", "safe", "safe", "unsafe", None]),
    }
)
deliveries = st.lists(st.tuples(st.integers(0, 14) | st.just(ANY_LENGTH), declarations), min_size=1, max_size=3)


def spelled(ask):
    return (ask.name, codec.canonical(ask.input))


def tales(calls):
    """Iterations of attempts; each attempt has its calls, its deliveries and how the last of them ends."""
    attempts = st.lists(
        st.tuples(calls, deliveries, st.sampled_from(["fail", "pause", "timeout"])), min_size=1, max_size=4
    )
    return st.lists(attempts, min_size=1, max_size=2)


ENDINGS = {"fail": Desk.fail, "pause": Desk.pause, "timeout": lambda desk: None}


def play(tale):
    """Live through a tale, each delivery compared call by call."""
    desk = Desk()
    for attempts_ in tale:
        for number, (calls, deliveries_, ending) in enumerate(attempts_, start=1):
            for dies_after, declared in deliveries_:
                if desk.deliver(number, calls, declared, dies_after, ENDINGS[ending]):
                    break
        last_calls, declared = attempts_[-1][0], attempts_[-1][1][0][1]
        desk.deliver(len(attempts_) + 1, last_calls, declared, ANY_LENGTH, lambda desk: desk.commit("continue"))
    return desk


@given(tales(st.lists(asks, max_size=5)))
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_calls_crashes_attempts_and_declarations_match_the_model(tale):
    desk = play(tale)
    assert all(started <= 1 for started in desk.unsafe_starts.values()), desk.unsafe_starts
    report = check(desk.paper.records)
    assert report, report


@given(st.lists(asks, max_size=6), st.lists(st.integers(1, 25), max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_finished_model_call_is_never_sent_again_in_its_attempt(calls, deaths):
    desk = Desk()
    declared = {"charge": "unsafe", "search": "safe"}
    for dies_after in [*deaths, ANY_LENGTH]:
        stored = {record.position for record in desk.paper.records if record.kind == "model"}
        before = desk.requests.copy()
        desk.deliver(1, calls, declared, dies_after, lambda desk: None)
        sent = {position for _, _, position in (desk.requests - before)}
        assert not sent & stored
    assert len({record.position for record in desk.paper.records if record.kind == "model"}) == sum(
        ask.name is None for ask in calls
    )


@given(st.lists(asks, min_size=1, max_size=5), st.integers(0, 40), st.data())
@settings(max_examples=400, deadline=None)
def test_j4_a_changed_call_is_a_mismatch_that_names_its_position_and_the_old_calls_still_replay(calls, dies, data):
    desk, declared = Desk(), {"charge": "unsafe", "search": "safe"}
    desk.deliver(1, calls, declared, dies, lambda desk: None)
    recorded = sorted(position for _, position in desk.ledger.rows)
    changed_at = data.draw(st.integers(0, len(calls) - 1))
    changed = list(calls)
    changed[changed_at] = Ask("another", 1)
    if changed_at in recorded:
        with pytest.raises(ReplayMismatch) as mismatch:
            desk.deliver(1, changed, declared, ANY_LENGTH, lambda desk: None)
        assert mismatch.value.position == changed_at
        assert "another" in mismatch.value.attempted
        was = calls[changed_at]
        assert ("model" if was.name is None else was.name) in mismatch.value.recorded
        assert str(changed_at) in str(mismatch.value)
        assert desk.starts["another"] == 0
    desk.deliver(1, calls, declared, ANY_LENGTH, lambda desk: desk.commit("complete"))
    assert check(desk.paper.records)


@pytest.mark.parametrize(
    ("recorded", "asked", "differs"),
    [
        (1, 1.0, False), (1, True, True), (0, False, True), (2**53, 2**53 + 1, True), (None, {}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False), ([1, 2], [2, 1], True), ("1", 1, True), (1e3, 1000, False),
    ],
)  # fmt: skip
def test_calls_are_compared_by_canonical_input(recorded, asked, differs):
    desk = Desk()
    desk.deliver(1, [Ask("charge", recorded)], {"charge": "unsafe"}, ANY_LENGTH, lambda desk: None)
    past = desk.paper.folded
    if differs:
        with pytest.raises(ReplayMismatch):
            replay.tool_call(past, 1, 0, "charge", asked, "unsafe")
    else:
        assert isinstance(replay.tool_call(past, 1, 0, "charge", asked, "unsafe"), replay.Recorded)


def started(*asks, declared=None, attempt=1, dies_after=None):
    """A desk whose first holder died; by default right after its last call's effect."""
    desk = Desk()
    moves = dies_after if dies_after is not None else 1 + 4 * (len(asks) - 1) + sum(a.name is None for a in asks) + 3
    desk.deliver(attempt, asks, declared or {"charge": "unsafe", "search": "safe"}, moves, lambda desk: None)
    return desk


@pytest.mark.parametrize("recorded", ["safe", "unsafe"])
@pytest.mark.parametrize("current", ["safe", "unsafe", None])
def test_an_intent_alone_runs_again_only_if_it_was_and_is_safe(recorded, current):
    desk = started(Ask("charge", 1), declared={"charge": recorded})
    (intent,) = [record for record in desk.paper.records if isinstance(record, ToolIntent)]
    answer = replay.tool_call(desk.paper.folded, 1, 0, "charge", 1, current)
    if (recorded, current) == ("safe", "safe"):
        assert answer == replay.RunAgain(intent.key, intent.seq)
    else:
        assert answer == replay.Interrupted(intent.seq, ())


def test_an_interrupted_call_shows_every_partial_in_order():
    desk = started(Ask("charge", 1))
    intent = desk.paper.records[-1].seq
    for output in ("one", {"two": 2}, None):
        desk.paper.write(ToolPartial(intent=intent, output=output), desk.claim)
    answer = replay.tool_call(desk.paper.folded, 1, 0, "charge", 1, "unsafe")
    assert answer == replay.Interrupted(intent, ("one", {"two": 2}, None))


@pytest.mark.parametrize("current", ["safe", "unsafe", None])
def test_an_intent_that_did_not_happen_runs_again_under_a_new_intent_and_the_same_key(current):
    desk = started(Ask("charge", 1))
    intent = desk.paper.records[-1]
    desk.paper.write(Resolution(of=intent.seq, outcome="did_not_happen", by="ada"), "f" * 32)
    answer = replay.tool_call(desk.paper.folded, 1, 0, "charge", 1, current)
    assert answer == replay.RunAgain(intent.key, None)


@pytest.mark.parametrize("name", ["m", "another model"])
def test_another_model_or_request_is_no_mismatch(name):
    desk = started(Ask(), dies_after=ANY_LENGTH)
    answer = replay.model_call(desk.paper.folded, 1, 0)
    assert isinstance(answer, replay.Recorded)


def test_a_model_call_where_a_tool_call_is_recorded_is_a_mismatch_and_the_other_way_round():
    with pytest.raises(ReplayMismatch) as first:
        replay.model_call(started(Ask("charge", {"cents": 5})).paper.folded, 1, 0)
    assert '{"cents":5}' in first.value.recorded
    with pytest.raises(ReplayMismatch) as second:
        replay.tool_call(started(Ask(), dies_after=9).paper.folded, 1, 0, "charge", {"cents": 5}, "safe")
    assert '{"cents":5}' in second.value.attempted


def second_attempt(*first, declared=None):
    """The fold after a first attempt that died after the effect of its last call, and a new one's claim."""
    desk = started(*first, declared=declared)
    desk.deliver(2, [], {}, ANY_LENGTH, lambda desk: None)
    return desk


def test_f9_another_charge_at_the_position_of_the_first_has_another_key():
    past = second_attempt(Ask("charge", 10)).paper.folded
    answer = replay.tool_call(past, 2, 0, "charge", 20, "unsafe")
    assert answer == replay.Live("order-42.agent.0.1")


def test_f9_the_same_charge_at_another_position_has_the_same_key():
    desk = second_attempt(Ask("charge", 10), declared={"charge": "safe"})
    answer = replay.tool_call(desk.paper.folded, 2, 3, "charge", 10, "unsafe")
    assert answer == replay.Live("order-42.agent.0.0")


def test_an_unsafe_call_of_an_earlier_attempt_is_honoured_at_any_position_and_only_once():
    desk = second_attempt(Ask("charge", 10))
    closed = desk.paper.records[-1]
    assert closed.interrupted is not None
    answer = replay.tool_call(desk.paper.folded, 2, 4, "charge", 10, "safe")
    assert answer == replay.Reuse(closed)
    desk.paper.write(ToolResult(position=4, intent=closed.intent, reused=closed.seq), desk.claim, attempt=2)
    assert isinstance(replay.tool_call(desk.paper.folded, 2, 5, "charge", 10, "unsafe"), replay.Live)
    assert isinstance(replay.tool_call(desk.paper.folded, 2, 4, "charge", 10, "unsafe"), replay.Recorded)
    # An attempt after that one honours the original again: its reuse started nothing.
    assert replay.tool_call(desk.paper.folded, 3, 0, "charge", 10, "unsafe") == replay.Reuse(closed)


def test_equal_unsafe_calls_of_an_earlier_attempt_are_honoured_in_their_order():
    desk = second_attempt(Ask("charge", 10), Ask("charge", 10), Ask("charge", 10))
    results = [record for record in desk.paper.records if isinstance(record, ToolResult)]
    for position, result in enumerate(results):
        assert replay.tool_call(desk.paper.folded, 2, position, "charge", 10, "unsafe") == replay.Reuse(result)
        desk.paper.write(ToolResult(position=position, intent=result.intent, reused=result.seq), desk.claim, attempt=2)


def test_a_safe_call_of_an_earlier_attempt_is_not_reused():
    desk = second_attempt(Ask("search", 1))
    assert replay.tool_call(desk.paper.folded, 2, 0, "search", 1, "safe") == replay.Live("order-42.agent.0.0")


def test_a_model_call_of_an_earlier_attempt_is_not_reused():
    desk = second_attempt(Ask(), Ask("search", 1))
    assert replay.model_call(desk.paper.folded, 2, 0) == replay.Live()
