"""JOURNAL.md, Check: correct histories are clean, and a journal that breaks one rule is reported by that rule."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.journal_model import AT, RUN, STEP, Ask, Desk
from unit.test_journal_replay import ANY_LENGTH, asks, play, spelled, tales

from agentbook.journal.check import check
from agentbook.journal.records import (
    Claim,
    Commit,
    InputPlaced,
    Interruption,
    ModelResponse,
    Pause,
    Resolution,
    ToolIntent,
    ToolPartial,
    ToolResult,
)

HEAD = 1


def claim(**fields):
    given_ = {"worker": "w", "dispatch": 1, "delivery": 1, "code": "c", "prev": None, "head": HEAD}
    return Claim(**(given_ | fields))


def model(position=0):
    return ModelResponse(position=position, model="m", request="d", response="r", ms=1.0)


def intent(position=1, call=None, **fields):
    key = f"{RUN}.{STEP}.0.{position if call is None else call}"
    return ToolIntent(**{"position": position, "name": "charge", "input": 1, "replay": "unsafe", "key": key} | fields)


def result(of, position=1, **outcome):
    return ToolResult(position=position, intent=of, **(outcome or {"output": "done"}))


def commit(action="continue", **fields):
    states = {"state": {"messages": []}, "snapshot": None} if action in ("continue", "complete") else {}
    return Commit(action=action, head=HEAD, **(states | fields))


def journal(*entries):
    """Records at sequences 1, 2, 3 …; an entry is (claim, record) or (claim, record, iteration, attempt)."""
    records, numbers = [], {}
    for seq, entry in enumerate(entries, start=1):
        who, record, iteration, attempt = (*entry, 0, 1)[:4] if len(entry) == 2 else (*entry, 1)[:4]
        numbers[who] = numbers.get(who, -1) + 1
        records.append(
            record.stamped(
                run=RUN, step=STEP, iteration=iteration, attempt=attempt, claim=who, n=numbers[who], at=AT, seq=seq
            )
        )
    return records


def renumbered(record, **fields):
    return record.model_copy(update=fields)


FIRST = claim(head=None)
TURN = [("a", FIRST), ("a", model()), ("a", intent()), ("a", result(3)), ("a", commit())]


def test_an_empty_journal_is_clean():
    assert check([])
    assert check([], turns=0)


def test_a_turn_is_clean():
    report = check(journal(*TURN), turns=1)
    assert report
    assert report.records == 5
    assert "clean" in str(report)


CLEAN = {
    "two turns and a delta": [
        *TURN, ("b", claim(prev=5), 1), ("b", model(), 1),
        ("b", commit(state={"base": 5, "at": "/messages", "append": [1]}, snapshot=5), 1),
    ],
    "a successor after a death": [
        *TURN[:3], ("b", claim()), ("b", result(3, interrupted=Interruption(cause="died"))), ("b", commit()),
    ],
    "an open intent under the newest claim": TURN[:3],
    "an open intent that emits": [*TURN[:3], ("a", ToolPartial(intent=3, output=1))],
    "an open intent named by a pause": [
        *TURN[:3], ("a", Pause(reason="halt", subjects=[f"{RUN}.{STEP}.0.1"], head=HEAD)),
    ],
    "an intent answered by a resolution": [
        *TURN[:3], ("a", Pause(reason="halt", subjects=[f"{RUN}.{STEP}.0.1"], head=HEAD)),
        ("r", Resolution(of=3, outcome="did_not_happen", by="ada")), ("b", claim(dispatch=2)),
        ("b", intent()), ("b", result(7)), ("b", commit()),
    ],
    "a new attempt that honours an unsafe call": [
        *TURN[:3], ("a", commit("fail")), ("b", claim(dispatch=2), 0, 2),
        ("b", result(3, interrupted=Interruption(cause="died")), 0, 2), ("b", model(), 0, 2),
        ("b", result(3, reused=6), 0, 2), ("b", commit(), 0, 2),
    ],
    "a new attempt that inherits a key": [
        *TURN[:3], ("a", commit("fail")), ("b", claim(dispatch=2), 0, 2),
        ("b", result(3, interrupted=Interruption(cause="attempt ended")), 0, 2),
        ("b", intent(4, call=1), 0, 2), ("b", result(7, 4), 0, 2), ("b", commit(), 0, 2),
    ],
    "an answer in another order than the intents": [
        *TURN[:3], ("a", intent(2)), ("a", ToolPartial(intent=3, output=1)), ("a", result(4, 2)), ("a", result(3)),
        ("a", commit()),
    ],
    "a pause, and the next dispatch": [
        *TURN[:2], ("a", Pause(reason="requested", head=HEAD)), ("b", claim(dispatch=2)), ("b", commit("complete")),
    ],
    "claims alone": [("a", FIRST), ("b", claim()), ("c", claim())],
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_correct_journals_are_clean(name):
    report = check(journal(*CLEAN[name]))
    assert report, report


def reported(records, **more):
    return {(violation.rule, violation.seq) for violation in check(records, **more).violations}


def only(records, rule, seq, *others):
    """The journal breaks this rule, and no other, at this sequence; the report shows both records."""
    report = check(records)
    assert not report
    assert {(violation.rule, violation.seq) for violation in report.violations} == {(rule, seq)}, report
    (violation, *_) = report.violations
    shown = {record.seq for record in violation.records}
    assert seq in shown
    assert shown >= set(others), shown
    assert rule in str(report)
    assert str(seq) in str(report)


def test_a_second_advancing_commit_of_an_iteration():
    records = journal(*TURN, ("b", claim(prev=5), 0), ("b", commit(), 0))
    found = reported(records)
    assert ("one advancing commit per iteration", 7) in found
    assert ("nothing of an iteration after its commit", 6) in found
    assert ("one commit per attempt", 7) in found


def test_a_second_advancing_commit_of_another_attempt():
    found = reported(journal(*TURN, ("b", claim(prev=5), 0, 2), ("b", commit(), 0, 2)))
    assert ("one advancing commit per iteration", 7) in found
    assert not {rule for rule, _ in found} & {"one commit per attempt"}


def test_a_second_commit_of_an_attempt():
    only(
        journal(("a", FIRST), ("a", commit("fail")), ("b", claim()), ("b", commit("fail"))),
        "one commit per attempt", 4, 2,
    )  # fmt: skip


def test_a_record_of_an_iteration_after_its_commit():
    late = reported(journal(*TURN, ("a", model(2))))
    assert late == {("nothing of an iteration after its commit", 6), ("no record after its own commit", 6)}
    behind = reported(journal(*TURN, ("b", claim(prev=5), 1), ("b", model(), 0)))
    assert behind == {("nothing of an iteration after its commit", 7), ("iterations in order", 7)}


def test_a_record_after_the_claim_that_fenced_its_writer():
    only(journal(*TURN[:2], ("b", claim()), ("a", model(1))), "no record after the fence", 4, 3)


def test_a_record_after_the_resolution_that_fenced_its_writer():
    only(
        journal(*TURN[:3], ("r", Resolution(of=3, outcome="happened", by="ada")), ("a", result(3))),
        "no record after the fence", 5, 4,
    )  # fmt: skip


def test_a_record_after_its_writers_own_pause():
    only(
        journal(*TURN[:2], ("a", Pause(reason="requested", head=HEAD)), ("a", model(1))),
        "no record after its own pause", 4, 3,
    )  # fmt: skip


def test_a_record_after_its_writers_own_failure():
    only(journal(("a", FIRST), ("a", commit("fail")), ("a", model())), "no record after its own commit", 3, 2)


@pytest.mark.parametrize("numbers", [[1, 2], [0, 0], [0, 2], [0, -1]])
def test_numbers_of_a_claim_that_are_not_0_1_2(numbers):
    records = [renumbered(record, n=n) for record, n in zip(journal(*TURN[:2]), numbers, strict=True)]
    seqs = [record.seq for record, right in zip(records, [0, 1], strict=True) if record.n != right]
    found = reported(records)
    assert {rule for rule, _ in found} == {"n contiguous per claim"}
    assert ("n contiguous per claim", seqs[0]) in found


def test_an_intent_without_a_result_when_its_iteration_ends():
    only(journal(*TURN[:3], ("a", commit())), "every intent answered", 3, 4)


def test_an_intent_answered_twice():
    only(journal(*TURN[:4], ("a", result(3)), ("a", commit())), "one result per intent", 5, 4)


def test_an_answer_to_what_is_no_intent():
    only(journal(*TURN[:2], ("a", result(2)), ("a", commit())), "every result answers an intent", 3)


def test_an_answer_at_another_position():
    only(journal(*TURN[:3], ("a", result(3, 2)), ("a", commit())), "every result answers an intent", 4, 3)


def test_an_input_placed_twice():
    placed = InputPlaced(request_id="i1", mode="steer", content="x", position=1)
    only(
        journal(*TURN[:2], ("a", placed), ("b", claim()), ("b", placed)), "each input placed once", 5, 3
    )  # fmt: skip


@pytest.mark.parametrize(("turns", "clean"), [(0, False), (1, True), (2, False)])
def test_a_settled_run_has_as_many_commits_as_the_engine_counted(turns, clean):
    report = check(journal(*TURN), turns=turns)
    assert bool(report) is clean
    if not clean:
        assert {(found.rule, found.seq) for found in report.violations} == {("commits agree with the engine", 5)}


@pytest.mark.parametrize(("turns", "clean"), [(0, True), (1, True), (2, False)])
def test_the_journal_may_be_one_commit_ahead_while_its_event_is_not_accepted(turns, clean):
    assert bool(check(journal(*TURN), turns=turns, settled=False)) is clean


def test_the_journal_may_not_be_two_commits_ahead():
    records = journal(*TURN, ("b", claim(prev=5), 1), ("b", commit(), 1))
    assert not check(records, turns=0, settled=False)
    assert check(records, turns=1, settled=False)


def test_a_failed_attempt_is_no_turn():
    assert check(journal(("a", FIRST), ("a", commit("fail"))), turns=0)


@pytest.mark.parametrize("other", [{"input": 2}, {"name": "refund"}, {"input": True}])
def test_two_different_calls_that_share_a_key(other):
    records = journal(
        *TURN[:4], ("a", commit("fail")), ("b", claim(), 0, 2),
        ("b", intent(1, **other), 0, 2), ("b", result(7), 0, 2),
    )  # fmt: skip
    only(records, "one key, one call", 7, 3)


def test_two_positions_of_an_attempt_that_share_a_key():
    only(
        journal(*TURN[:4], ("a", intent(2, call=1)), ("a", result(5, 2)), ("a", commit())),
        "one key, one position of an attempt", 5, 3,
    )  # fmt: skip


@pytest.mark.parametrize("target", [2, 3, 99])
def test_a_reuse_of_what_is_no_result(target):
    records = journal(
        *TURN[:4], ("a", commit("fail")), ("b", claim(), 0, 2), ("b", result(3, reused=target), 0, 2),
        ("b", commit(), 0, 2),
    )  # fmt: skip
    only(records, "reused points at a real result", 7)


def test_a_reuse_of_another_calls_result():
    records = journal(
        *TURN[:4], ("a", intent(2)), ("a", result(5, 2)), ("a", commit("fail")), ("b", claim(), 0, 2),
        ("b", result(5, reused=4), 0, 2), ("b", commit(), 0, 2),
    )  # fmt: skip
    only(records, "reused points at a real result", 9)


def test_a_result_reused_twice_in_an_attempt():
    records = journal(
        *TURN[:4], ("a", commit("fail")), ("b", claim(), 0, 2), ("b", result(3, 0, reused=4), 0, 2),
        ("b", result(3, 1, reused=4), 0, 2), ("b", commit(), 0, 2),
    )  # fmt: skip
    found = reported(records)
    assert {seq for _, seq in found} == {8}, found


def test_a_journal_whose_head_is_gone():
    records = journal(*TURN)[1:]
    assert ("head present", 2) in reported(records)
    only(journal(("a", claim(head=7)))[:1], "head present", 1)


@pytest.mark.parametrize("late", [claim(head=9), Pause(reason="left", head=9), Commit(action="fail", head=9)])
def test_a_record_that_names_another_head(late):
    entries = [("a", FIRST), ("b", late)] if isinstance(late, Claim) else [("a", FIRST), ("a", late)]
    only(journal(*entries), "head present", 2, 1)


@pytest.mark.parametrize("delta", [{"base": 4, "at": "/messages", "append": []}, {"at": "", "append": []}, []])
def test_a_state_that_builds_on_another_commit(delta):
    records = journal(*TURN, ("b", claim(prev=5), 1), ("b", commit(state=delta, snapshot=5), 1))
    only(records, "state builds on the last commit", 7, 5)


def test_a_state_that_names_another_full_state():
    delta = {"base": 5, "at": "/messages", "append": []}
    records = journal(*TURN, ("b", claim(prev=5), 1), ("b", commit(state=delta, snapshot=4), 1))
    only(records, "state builds on the last commit", 7, 5)


@pytest.mark.parametrize("seq", [1, 2])
def test_a_sequence_that_does_not_follow_the_one_before(seq):
    records = journal(*TURN[:3])
    records[2] = renumbered(records[2], seq=seq)
    only(records, "ascending sequences", seq, 2)


def test_a_claim_that_names_another_commit():
    only(journal(*TURN, ("b", claim(prev=4), 1)), "claims name the last commit", 6, 5)


def test_an_iteration_left_out():
    only(journal(*TURN, ("b", claim(prev=5), 2)), "one iteration after the other", 6)


calls = st.lists(asks, max_size=5)


@given(tales(calls))
@settings(max_examples=200, deadline=None)
def test_whatever_correct_holders_write_is_clean(tale):
    desk = play(tale)
    report = check(desk.paper.records, turns=desk.iteration)
    assert report, report


def answered(records):
    return [record for record in records if isinstance(record, ToolResult) and record.reused is None]


def a_record_less(records, rng):
    """Any record of a claim but its last: the next one's number shows it."""
    kept = [r for r in records if any(s.claim == r.claim and s.n > r.n for s in records)]
    gone = rng.choice(kept)
    records.remove(gone)
    return next(r.seq for r in records if r.claim == gone.claim and r.n > gone.n)


def a_fenced_writer(records, rng):
    claims = [record for record in records if isinstance(record, Claim)]
    if len(claims) < 2:
        return None
    fenced = rng.choice(claims[:-1])
    records.append(
        ToolPartial(intent=1, output=1).stamped(
            run=RUN, step=STEP, iteration=records[-1].iteration, attempt=1, claim=fenced.claim,
            n=1 + max(r.n for r in records if r.claim == fenced.claim), at=AT, seq=records[-1].seq + 1,
        )
    )  # fmt: skip
    return records[-1].seq


def a_result_doubled(records, rng):
    if not (results := answered(records)):
        return None
    first = rng.choice(results)
    index = records.index(first)
    for later, record in enumerate(records):
        if record.claim == first.claim and record.n > first.n:
            records[later] = record.model_copy(update={"n": record.n + 1})
    records[index + 1 : index + 1] = [first.model_copy(update={"n": first.n + 1, "seq": first.seq + 1})]
    return first.seq + 1


def a_key_of_another_call(records, rng):
    by_iteration = {}
    for record in records:
        if isinstance(record, ToolIntent):
            by_iteration.setdefault(record.iteration, []).append(record)
    pairs = [
        (one, two)
        for intents in by_iteration.values()
        for one in intents
        for two in intents
        if one.seq < two.seq and spelled(Ask(one.name, one.input)) != spelled(Ask(two.name, two.input))
        and one.key != two.key
        and two.key not in {other.key for other in intents if other is not two}
    ]  # fmt: skip
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    records[records.index(two)] = two.model_copy(update={"key": one.key})
    return two.seq


BREAKS = {
    "n contiguous per claim": a_record_less,
    "no record after the fence": a_fenced_writer,
    "one result per intent": a_result_doubled,
    "one key, one call": a_key_of_another_call,
}


@pytest.mark.parametrize("rule", BREAKS)
def test_a_break_anywhere_in_a_correct_history_is_found(rule):
    done = 0

    @given(tales(calls), st.integers(0, 2**32))
    @settings(max_examples=150, deadline=None)
    def holds(tale, seed):
        nonlocal done
        records = play(tale).paper.records
        seq = BREAKS[rule](records, random.Random(seed))
        if seq is not None:
            done += 1
            assert (rule, seq) in reported(records)

    holds()
    assert done > 10


def test_eight_thousand_records_are_checked_in_seconds():
    desk = Desk()
    for _ in range(1000):
        many = [Ask(), Ask("charge", 1), Ask("search", 1)]
        declared = {"charge": "unsafe", "search": "safe"}
        desk.deliver(1, many, declared, ANY_LENGTH, lambda desk: desk.commit("continue"))
    assert len(desk.paper.records) > 8000
    begun = time.process_time()
    assert check(desk.paper.records, turns=1000)
    assert time.process_time() - begun < 3
