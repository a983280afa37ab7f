"""J9: a journal that version 1 wrote is read as long as there is a version 1. The files are never rewritten."""

import copy
import json
from pathlib import Path

import pytest

from agentbook.errors import AgentbookError, FormatVersion, JournalError
from agentbook.journal import memo
from agentbook.journal.check import check
from agentbook.journal.fold import fold
from agentbook.journal.records import RECORD_KINDS, Purged, decode
from agentbook.journal.spill import references
from agentbook.protocol.events import StepEvent, event_of
from agentbook.protocol.events import decode as decode_event
from agentbook.protocol.snapshot import RunSnapshot

FOLDER = Path(__file__).parent / "fixtures" / "journal_v1"
LINES = [json.loads(line) for line in (FOLDER / "records.jsonl").read_text("utf-8").splitlines()]
MAY_BE_LEFT_OUT = {
    "model": ("usage",),
    "tool.intent": ("call_id",),
    "tool.result": ("ms",),
    "input.placed": ("by",),
    "question": ("digest",),
    "answer": ("by",),
    "saga.compensated": ("error",),
    "pause": ("subjects", "cause"),
    "resolution": ("evidence",),
    "commit": ("state", "snapshot", "output", "error", "retriable", "reason", "wait", "inputs"),
}


def stored(fields):
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.fixture
def records():
    return [decode(stored(line["record"]), line["seq"]) for line in LINES]


def test_the_fixtures_hold_every_kind_and_every_outcome():
    assert {line["record"]["kind"] for line in LINES} == set(RECORD_KINDS)
    results = [line["record"] for line in LINES if line["record"]["kind"] == "tool.result"]
    outcomes = {name for result in results for name in ("output", "error", "interrupted", "reused") if name in result}
    assert outcomes == {"output", "error", "interrupted", "reused"}


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['seq']}-{line['record']['kind']}")
def test_j9_each_record_of_version_1_is_read_and_written_back_byte_for_byte(line):
    record = decode(stored(line["record"]), line["seq"])
    assert json.loads(record.encode()) == line["record"]
    assert record.encode() == stored(line["record"])


def test_j9_a_journal_of_version_1_folds_and_is_clean(records):
    journal = [record for record in records if not isinstance(record, Purged)]
    assert check(journal, turns=2), check(journal, turns=2)
    found = fold(journal)
    assert found.state == {"messages": ["one", "two"]}
    assert (found.head, found.upto, found.snapshot) == (3, 37, 34)
    assert found.closed_by is not None
    assert references(journal[-1]) == {"0" * 64: "output"}


def test_j9_at_each_record_the_fold_of_version_1_is_what_it_was():
    """What replay and open decide on, as version 1's memo of each prefix says it."""
    wanted = [json.loads(line) for line in (FOLDER / "memos.jsonl").read_text("utf-8").splitlines()]
    assert len(wanted) == len(LINES)
    for end, kept in enumerate(wanted, start=1):
        records = [decode(stored(line["record"]), line["seq"]) for line in LINES[:end]]
        last = records[-1]
        written = json.loads(memo.Memo(last.seq, last.claim, last.n, fold(records)).encode())
        # A fold may come to know more; what it knew, it still says the same of.
        known = {name: value for name, value in written["fold"].items() if name in kept["fold"]}
        assert known == kept["fold"], f"record {last.seq}"


def test_j9_events_and_snapshots_of_version_1_are_read(records):
    events = [json.loads(line) for line in (FOLDER / "events.jsonl").read_text("utf-8").splitlines()]
    by_seq = {record.seq: record for record in records}
    assert {event["type"] for event in events if event["type"].startswith("step")} == {
        "step.continue", "step.completed", "step.failed", "step.paused", "step.resolved",
    }  # fmt: skip
    for event in events:
        read = decode_event(stored(event))
        assert json.loads(read.encode()) == event
        if isinstance(read, StepEvent):
            assert read == event_of(by_seq[read.journal_seq])
    snapshot = json.loads((FOLDER / "snapshot.json").read_text("utf-8"))
    assert json.loads(RunSnapshot.model_validate(snapshot).encode()) == snapshot


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['seq']}-{line['record']['kind']}")
def test_j9_whatever_is_changed_in_a_record_is_refused_by_name(line):
    fields = line["record"]
    for version in (0, 2, "1", None):
        with pytest.raises(FormatVersion, match=f"record {line['seq']} has format version"):
            decode(stored({**fields, "v": version}), line["seq"])
    with pytest.raises(FormatVersion, match=r"'tool\.newer'.*upgrade"):
        decode(stored({**fields, "kind": "tool.newer"}), line["seq"])
    with pytest.raises(JournalError, match=f"record {line['seq']}"):
        decode(stored({**fields, "extra": 1}), line["seq"])
    for name in fields:
        rest = copy.deepcopy(fields)
        del rest[name]
        if name in MAY_BE_LEFT_OUT.get(fields["kind"], ()):
            assert json.loads(decode(stored(rest), line["seq"]).encode()) == rest
            continue
        with pytest.raises(AgentbookError, match=f"record {line['seq']}"):
            decode(stored(rest), line["seq"])
