"""JOURNAL.md, Envelope: what a record looks like, and what a reader refuses."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentbook.errors import FormatVersion, JournalError
from agentbook.journal.records import (
    FENCING,
    RECORD_KINDS,
    Answer,
    Claim,
    Commit,
    ErrorInfo,
    InputPlaced,
    Interruption,
    ModelResponse,
    Pause,
    Purged,
    Question,
    Resolution,
    SagaCompensated,
    SagaFailed,
    StepAttempt,
    StepError,
    StepValue,
    Timer,
    ToolIntent,
    ToolPartial,
    ToolResult,
    Wait,
    decode,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
seqs = st.integers(1, 2**62)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
errors = st.builds(ErrorInfo, type=text, message=text, traceback=st.none() | text)
waits = st.builds(Wait, until=st.none() | text, modes=st.none() | st.lists(text, max_size=2))
ms = st.floats(0, 1e9)
outcomes = st.one_of(
    st.fixed_dictionaries({"output": values}),
    st.fixed_dictionaries({"error": errors}),
    st.fixed_dictionaries({"interrupted": st.builds(Interruption, partial=st.lists(values, max_size=2), cause=text)}),
    st.fixed_dictionaries({"reused": seqs}),
)

KINDS = {
    "claim": st.builds(
        Claim, worker=text, dispatch=seqs, delivery=seqs, code=text, prev=st.none() | seqs, head=st.none() | seqs
    ),
    "model": st.builds(
        ModelResponse, position=st.integers(0, 300), model=text, request=text, response=values,
        usage=st.none() | st.dictionaries(text, values, max_size=2), ms=ms,
    ),
    "tool.intent": st.builds(
        ToolIntent, position=st.integers(0, 300), name=text, input=values,
        replay=st.sampled_from(["safe", "unsafe"]), key=text, call_id=st.none() | text,
    ),
    "tool.partial": st.builds(ToolPartial, intent=seqs, output=values),
    "tool.result": st.builds(
        lambda outcome, **more: ToolResult(**outcome, **more),
        outcomes, position=st.integers(0, 300), intent=seqs, ms=ms,
    ),
    "input.placed": st.builds(
        InputPlaced, request_id=text, mode=text, content=values, by=st.none() | text, position=st.integers(0, 300)
    ),
    "step.attempt": st.builds(StepAttempt, name=text, replay=st.sampled_from(["safe", "unsafe"]), args=text),
    "step.value": st.builds(StepValue, name=text, value=values),
    "step.error": st.builds(
        StepError, name=text, error=errors, outcome=st.sampled_from(["not_started", "failed", "unknown"])
    ),
    "timer": st.builds(Timer, name=text, wake_at=text),
    "question": st.builds(
        lambda schema, **more: Question.model_validate({"schema": schema, **more}), values, id=text, prompt=text
    ),
    "answer": st.builds(Answer, id=text, value=values, by=st.none() | text),
    "saga.failed": st.builds(SagaFailed, cause=errors),
    "saga.compensated": st.builds(SagaCompensated, of=seqs, error=st.none() | errors),
    "pause": st.builds(
        Pause, reason=st.sampled_from(["sleep", "question", "halt", "parked", "requested", "left"]),
        wait=st.none() | waits, subjects=st.lists(text, max_size=2), head=seqs,
    ),
    "resolution": st.builds(
        Resolution, of=seqs, outcome=st.sampled_from(["happened", "failed", "did_not_happen"]), value=values, by=text
    ),
    "commit": st.builds(
        Commit, action=st.sampled_from(["continue", "complete", "abort", "fail"]), state=values,
        snapshot=st.none() | seqs, output=values, error=st.none() | errors, retriable=st.none() | st.booleans(),
        wait=st.none() | waits, inputs=st.lists(text, max_size=2), head=seqs,
    ),
    "purged": st.builds(Purged),
}  # fmt: skip

ENVELOPE = ("v", "kind", "run", "step", "iteration", "attempt", "claim", "n", "at")


def stamp(record, n=3):
    return record.stamped(
        run="order-42", step="agent", iteration=2, attempt=4, claim="ab" * 16, n=n, at="2026-01-01T00:00:00Z"
    )


def raw(kind="tool.result", **changed):
    """A record as another writer might have stored it; None leaves the field out."""
    fields = {
        "v": 1, "kind": kind, "run": "r", "step": "s", "iteration": 0, "attempt": 1, "claim": "c", "n": 0, "at": "t",
    }  # fmt: skip
    fields |= changed
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def test_every_kind_of_the_table_is_known():
    assert sorted(KINDS) == sorted(RECORD_KINDS)
    assert set(FENCING) == {"claim", "resolution", "purged"}


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_record_comes_back_as_it_was_written(kind):
    @given(KINDS[kind], st.integers(0, 2**40), seqs)
    @settings(max_examples=100, deadline=None)
    def holds(record, n, seq):
        stamped = stamp(record, n)
        data = stamped.encode()
        read = decode(data, seq)
        assert read == stamped.model_copy(update={"seq": seq})
        assert type(read) is type(record)
        assert read.encode() == data

    holds()


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_record_is_one_json_object_that_begins_with_the_envelope(kind):
    @given(KINDS[kind])
    @settings(max_examples=20, deadline=None)
    def holds(record):
        fields = json.loads(stamp(record).encode().decode("utf-8"))
        assert set(ENVELOPE) <= set(fields)
        assert (fields["v"], fields["kind"], fields["iteration"], fields["attempt"]) == (1, kind, 2, 4)
        assert "seq" not in fields

    holds()


def test_the_first_claim_says_that_it_has_no_head_and_no_commit_before_it():
    first = Claim(worker="w", dispatch=1, delivery=1, code="c", prev=None, head=None)
    fields = json.loads(stamp(first).encode())
    assert fields["prev"] is None
    assert fields["head"] is None


def test_a_question_keeps_the_name_schema():
    asked = Question.model_validate({"id": "q", "prompt": "?", "schema": {"type": "string"}})
    assert json.loads(stamp(asked).encode())["schema"] == {"type": "string"}


@pytest.mark.parametrize("version", [0, 2, "1", 1.5])
def test_j9_another_version_is_refused_by_name(version):
    with pytest.raises(FormatVersion, match=r"record 7 .*version") as refusal:
        decode(raw(v=version, position=0, intent=1, output=1), 7)
    assert repr(version) in str(refusal.value)


@pytest.mark.parametrize("kind", ["tool.results", "Claim", "", "memo", 3, ["claim"]])
def test_j9_an_unknown_kind_is_refused_by_name(kind):
    with pytest.raises(FormatVersion, match="record 7") as refusal:
        decode(raw(kind), 7)
    assert repr(kind) in str(refusal.value)


def test_j9_a_newer_version_is_named_before_anything_else_of_it_is_read():
    with pytest.raises(FormatVersion, match="version 2"):
        decode(b'{"v": 2, "what": "is this"}', 1)


@pytest.mark.parametrize("field", ENVELOPE)
def test_a_record_without_a_field_of_the_envelope_is_refused(field):
    with pytest.raises(JournalError, match="record 7"):
        decode(raw(**{field: None}, position=0, intent=1, output=1), 7)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"1", b'"claim"', b"null", b"\xff", b'{"v": 1} {}', b'{"v": NaN}', b'{"v": Infinity}'],
)
def test_what_is_not_one_json_object_is_refused(data):
    with pytest.raises(JournalError, match="record 7"):
        decode(data, 7)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_record_holds_no_number_that_is_not_json(number):
    with pytest.raises(JournalError, match="record 7"):
        decode(raw(position=0, intent=1, output="X").replace(b'"X"', number.encode()), 7)


def test_a_field_that_the_kind_does_not_have_is_refused():
    with pytest.raises(JournalError, match="record 7"):
        decode(raw(position=0, intent=1, output=1, outputs=2), 7)


def test_a_record_does_not_say_its_own_sequence():
    with pytest.raises(JournalError, match="seq"):
        decode(raw(position=0, intent=1, output=1, seq=9), 7)


def test_a_null_output_is_an_output():
    fields = json.loads(raw(position=0, intent=1))
    read = decode(json.dumps(fields | {"output": None}).encode(), 7)
    assert read.output is None
    assert json.loads(read.encode())["output"] is None
    assert "error" not in json.loads(stamp(ToolResult(position=0, intent=1, output=None)).encode())


SOME = {
    "output": 1,
    "error": {"type": "E", "message": "m"},
    "interrupted": {"partial": [], "cause": "died"},
    "reused": 4,
}


@pytest.mark.parametrize("first", SOME)
@pytest.mark.parametrize("second", [None, *SOME])
def test_a_result_holds_exactly_one_outcome(first, second):
    names = {first, second} - {None}
    data = raw(position=0, intent=1, **{name: SOME[name] for name in names})
    if len(names) == 1:
        assert decode(data, 7).model_fields_set >= names
    else:
        with pytest.raises(JournalError, match="exactly one"):
            decode(data, 7)


def test_a_result_without_an_outcome_is_refused():
    with pytest.raises(JournalError, match="exactly one"):
        decode(raw(position=0, intent=1), 7)
    with pytest.raises(ValidationError, match="exactly one"):
        ToolResult(position=0, intent=1)


@pytest.mark.parametrize("other", ["error", "interrupted", "reused"])
def test_a_null_beside_an_output_is_a_second_outcome(other):
    fields = json.loads(raw(position=0, intent=1, output=1))
    with pytest.raises(JournalError, match="exactly one"):
        decode(json.dumps(fields | {other: None}).encode(), 7)


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_records_do_not_change(kind):
    @given(KINDS[kind])
    @settings(max_examples=3, deadline=None)
    def holds(record):
        with pytest.raises(ValidationError):
            record.n = 1

    holds()


@pytest.mark.parametrize(
    ("action", "advancing"), [("continue", True), ("complete", True), ("abort", True), ("fail", False)]
)
def test_all_commits_advance_but_fail(action, advancing):
    assert Commit(action=action, head=1).advancing is advancing


def test_integers_beyond_two_to_the_53_and_minus_zero_are_kept():
    record = stamp(StepValue(name="x", value=[2**53 + 1, -0.0, 1.0, True, "\0", "😀"]))
    kept = decode(record.encode(), 1).value
    assert [type(value) for value in kept] == [int, float, float, bool, str, str]
    assert kept[0] == 2**53 + 1
    assert math.copysign(1, kept[1]) == -1
    assert kept[4:] == ["\0", "😀"]
