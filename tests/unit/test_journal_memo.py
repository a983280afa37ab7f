"""JOURNAL.md, Memo: `fold(memo + rest) = fold(all)` at every prefix of any history."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.journal_model import Paper
from unit.test_journal_replay import asks, play, tales

from agentbook.journal import memo
from agentbook.journal.fold import Fold
from agentbook.journal.records import (
    Claim,
    Commit,
    ErrorInfo,
    InputPlaced,
    Interruption,
    ModelResponse,
    Pause,
    Purged,
    Resolution,
    StepValue,
    Timer,
    ToolIntent,
    ToolPartial,
    ToolResult,
)
from agentbook.journal.state import store

MOVES = [
    "claim", "claim", "attempt", "model", "intent", "intent", "intent", "partial", "result", "result", "reuse",
    "input", "named", "pause", "halt", "resolve", "resolve", "continue", "continue", "fail", "abort", "purged",
]  # fmt: skip
RESULTS = [
    {"output": {"ü": [1, None, "😀"]}},
    {"output": None},
    {"error": ErrorInfo(type="ValueError", message="no", traceback="…")},
    {"interrupted": Interruption(partial=[1, {"a": 2.5}], cause="died")},
]
RESOLUTIONS = [
    {"outcome": "happened", "value": {"receipt": 7}},
    {"outcome": "failed", "error": ErrorInfo(type="Declined", message="no")},
    {"outcome": "did_not_happen"},
]


class Teller:
    """Writes whatever record comes to mind, so long as what it refers to is there."""

    def __init__(self, draw):
        self.paper = Paper()
        self.draw = draw
        self.claims = 0
        self.iteration, self.attempt, self.position = 0, 1, 0
        self.calls = []

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def write(self, record):
        return self.paper.write(record, f"{self.claims:032x}", self.iteration, self.attempt)

    def claim(self):
        self.claims += 1
        self.position = 0
        fields = {"worker": "w", "dispatch": self.claims, "delivery": 1, "code": "c", "prev": None}
        self.write(Claim(**fields, head=self.paper.head))

    def next_turn(self):
        self.iteration, self.attempt, self.calls = self.iteration + 1, 1, []
        self.claim()

    def move(self, what):
        head, fold = self.paper.head, self.paper.folded
        match what:
            case "claim":
                self.claim()
            case "attempt":
                self.attempt += 1
                self.claim()
            case "model":
                response = self.pick("text", {"tool_calls": []}, None)
                usage = self.pick({}, {"usage": {"tokens": 3}})
                self.write(
                    ModelResponse(position=self.next(), model="m", request="d", response=response, ms=1, **usage)
                )
            case "intent":
                name, declared = self.pick(("charge", "unsafe"), ("search", "safe"))
                position, key = self.next(), f"order-42.agent.{self.iteration}.{len(self.calls)}"
                intent = ToolIntent(position=position, name=name, input={"n": 1}, replay=declared, key=key, call_id="c")
                self.calls.append(self.write(intent))
            case "partial" if self.calls:
                self.write(ToolPartial(intent=self.pick(*self.calls).seq, output=self.pick(1, {"a": []}, None)))
            case "result" if self.calls:
                call = self.pick(*self.calls)
                self.write(ToolResult(position=call.position, intent=call.seq, ms=2.5, **self.pick(*RESULTS)))
            case "reuse" if answered := [call for call in fold.intents.values() if call.result is not None]:
                result = self.pick(*answered).result
                self.write(ToolResult(position=self.next(), intent=result.intent, reused=result.seq))
            case "input":
                placed = InputPlaced(request_id="i", mode="steer", content=["x"], position=self.position)
                self.write(placed)
            case "named":
                self.write(self.pick(StepValue(name="x", value=1), Timer(name="t", wake_at="2026-01-01T00:00:00Z")))
            case "pause":
                self.write(Pause(reason=self.pick("sleep", "parked", "left"), head=head))
                self.claim()
            case "halt":
                self.write(Pause(reason="halt", subjects=[call.key for call in self.calls], cause="?", head=head))
            case "resolve" if self.calls:
                call = self.pick(*self.calls)
                self.claims += 1
                self.write(Resolution(of=call.seq, by="ann", **self.pick(*RESOLUTIONS)))
            case "continue":
                self.write(Commit(action="continue", head=head, **self.state()))
                self.next_turn()
            case "fail":
                error = ErrorInfo(type="E", message="m")
                self.write(Commit(action="fail", error=error, retriable=True, head=head))
                self.attempt += 1
                self.claim()
            case "abort":
                self.write(Commit(action="abort", head=head))
                self.next_turn()
            case "purged":
                self.claims += 1
                self.write(Purged())
                self.claim()

    def next(self):
        self.position += 1
        return self.position - 1

    def state(self):
        old = self.paper.folded.state
        messages = old["messages"] if isinstance(old, dict) else []
        new = self.pick({"messages": [*messages, "x" * self.draw(st.integers(0, 400))]}, {"messages": []}, [1], None)
        fold = self.paper.folded
        base = fold.advancing.seq if fold.advancing else None
        kept = store(old, new, base=base, snapshot=fold.snapshot, bytes_since=fold.bytes_since)
        return {"state": kept.state, "snapshot": kept.snapshot}


@st.composite
def histories(draw):
    teller = Teller(draw)
    teller.claim()
    for what in draw(st.lists(st.sampled_from(MOVES), max_size=25)):
        teller.move(what)
    return teller.paper.records


def folded(records, start=None):
    fold = Fold() if start is None else start
    for record in records:
        fold.add(record, len(record.encode()))
    return fold


def remembered(fold, last):
    """The fold as it comes back from a stored memo, inline or as a large one."""
    written = memo.Memo(fold.upto, last.claim, last.n, fold)
    inline = memo.build(memo.parse(written.encode()))
    assert (inline.upto, inline.claim, inline.n) == (last.seq, last.claim, last.n)
    stored = memo.parse(written.encode({"sha256": "x", "size": 1}))
    assert stored["fold"] == {"$blob": {"sha256": "x", "size": 1}}
    large = memo.build({**stored, "fold": json.loads(written.encode_fold())})
    assert large == inline
    return inline.fold


def holds_at_every_prefix(records):
    whole = folded(records)
    for end in range(1, len(records) + 1):
        before = folded(records[:end])
        found = remembered(before, records[end - 1])
        assert found == before
        assert folded(records[end:], found) == whole, f"a memo up to record {records[end - 1].seq}"


@given(histories())
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_memo_and_the_rest_fold_to_the_whole_at_every_prefix(records):
    holds_at_every_prefix(records)


@given(tales(st.lists(asks, max_size=4)))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_memo_of_what_correct_holders_wrote_folds_on_to_the_whole(tale):
    holds_at_every_prefix(play(tale).paper.records)


def test_f11_an_unsafe_call_that_was_open_when_the_memo_was_written_is_still_open():
    paper = Paper()
    paper.write(Claim(worker="w", dispatch=1, delivery=1, code="c", prev=None, head=None), "a" * 32)
    call = ToolIntent(position=0, name="charge", input=1, replay="unsafe", key="order-42.agent.0.0")
    intent = paper.write(call, "a" * 32)
    found = remembered(paper.folded, intent)
    (again,) = found.attempt(1).tool_calls()
    assert again.open
    assert again.intent == intent
    assert found.intents[intent.seq] is again, "one call, held once"


@pytest.mark.parametrize(
    "stored",
    [
        {"v": 1, "upto": 3, "claim": "c", "n": 0},
        {"v": 1, "upto": 3, "claim": "c", "n": 0, "fold": None},
        {"v": 1, "upto": 3, "claim": "c", "n": 0, "fold": {}},
        {"v": 1, "upto": 3, "claim": "c", "n": 0, "fold": {"intents": 7}},
    ],
)
def test_a_memo_that_cannot_be_read_is_none_and_no_error(stored):
    assert memo.build(stored) is None


@pytest.mark.parametrize("stored", [b"", b"junk", b"[1]", b"7", b"{}", b'{"v":1'])
def test_what_is_no_memo_is_none_and_no_error(stored):
    assert memo.parse(stored) is None


def test_a_memo_of_another_version_is_none():
    written = memo.Memo(1, "c", 0, Fold()).encode()
    assert memo.parse(written) is not None
    assert memo.parse(written.replace(b'"v":1', b'"v":2')) is None
