"""What replay, check and decoding refuse, beside what their own tests hold."""

import json

import pytest
from unit.journal_model import Ask, Desk
from unit.test_journal_check import TURN, claim, commit, intent, journal, reported, result
from unit.test_journal_records import raw, stamp
from unit.test_journal_replay import ANY_LENGTH

from agentbook.errors import FormatVersion, JournalError, ValueNotJournalable
from agentbook.journal import replay
from agentbook.journal.check import check
from agentbook.journal.records import StepValue, decode


def test_f9_a_second_equal_charge_does_not_get_the_key_of_the_one_that_was_honoured():
    desk = Desk()
    desk.deliver(1, [Ask("charge", 10)], {"charge": "unsafe"}, ANY_LENGTH, Desk.fail)
    desk.deliver(2, [Ask("charge", 10)], {"charge": "unsafe"}, ANY_LENGTH, lambda desk: None)
    answer = replay.tool_call(desk.paper.folded, 2, 1, "charge", 10, "unsafe")
    assert isinstance(answer, replay.Live)
    assert answer.key != "order-42.agent.0.0"


def test_a_reuse_and_an_intent_of_one_attempt_that_share_a_key_are_found():
    records = journal(
        *TURN[:4], ("a", commit("fail")), ("b", claim(), 0, 2), ("b", result(3, 0, reused=4), 0, 2),
        ("b", intent(1, call=1), 0, 2), ("b", result(8, 1), 0, 2), ("b", commit(), 0, 2),
    )
    assert ("one key, one position of an attempt", 8) in reported(records)


def test_a_reuse_of_a_result_of_its_own_attempt_is_found():
    records = journal(*TURN[:4], ("a", result(3, 2, reused=4)), ("a", commit()))
    assert ("reused points at a real result", 5) in reported(records)


@pytest.mark.parametrize("other", ["error", "interrupted", "reused"])
def test_a_null_is_no_outcome(other):
    fields = json.loads(raw(position=0, intent=1))
    with pytest.raises(JournalError):
        decode(json.dumps(fields | {other: None}).encode(), 7)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_json_is_refused_and_not_stored_as_null(number):
    with pytest.raises(ValueNotJournalable):
        stamp(StepValue(name="x", value=[number])).encode()


@pytest.mark.parametrize(
    "changed",
    [{"position": "3"}, {"position": 3.0}, {"intent": True}, {"n": "0"}, {"iteration": -1}, {"attempt": 0}, {"n": -1}],
)
def test_a_field_of_another_type_or_out_of_range_is_refused(changed):
    fields = json.loads(raw(position=0, intent=1, output=1))
    with pytest.raises(JournalError):
        decode(json.dumps(fields | changed).encode(), 7)


def test_the_version_true_is_not_the_version_1():
    with pytest.raises(FormatVersion):
        decode(raw(v=True, position=0, intent=1, output=1), 7)


def test_an_open_intent_of_an_attempt_that_a_newer_claim_followed_is_found():
    """Open 6 closes it before anything else runs; Check excuses only intents under the newest claim."""
    records = journal(*TURN[:3], ("a", commit("fail")), ("b", claim(dispatch=2), 0, 2), ("b", result(99), 0, 2))[:5]
    late = journal(*TURN[:3], ("a", commit("fail")), ("b", claim(dispatch=2), 0, 2), ("b", commit("fail"), 0, 2))
    assert check(records)
    assert ("every intent answered", 3) in reported(late)
