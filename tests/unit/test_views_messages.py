"""What the timeline's widget is told."""

from __future__ import annotations

import json

import views_stories as stories

from agentbook.journal.records import ToolIntent
from agentbook.views import messages
from agentbook.views.facts import RunFacts
from agentbook.views.timeline import build


def test_snapshot_answers_one_question_with_everything_a_view_needs() -> None:
    message = json.loads(json.dumps(messages.snapshot(build(stories.halted().records), "v1.1")))
    assert (message["type"], message["id"]) == ("snapshot", "v1.1")
    used = {chip["state"] for block in message["timeline"]["blocks"] for row in block["rows"] for chip in row["chips"]}
    assert used <= message["words"]["states"].keys()
    assert message["words"]["states"]["replayed"]["sign"] == "↺"
    assert set(message["words"]["terms"]) >= {"claim", "record", "commit", "check", "fence", "position"}


def test_changes_are_whole_blocks_and_the_head() -> None:
    story = stories.before_the_kill()
    before = build(story.records)
    story.claim("kernel 4188", "b20c")
    after = build(story.records)
    sent = messages.changes(before, after)
    assert [message["type"] for message in sent] == ["block", "head"]
    assert sent[0]["block"] == json.loads(json.dumps(after.to_json()))["blocks"][1]
    assert messages.changes(after, after) == []


def test_change_of_status_alone_sends_the_head_alone() -> None:
    records = stories.killed_after_the_result().records
    sent = messages.changes(build(records, RunFacts(violations=0)), build(records, RunFacts(violations=2)))
    assert [message["type"] for message in sent] == ["head"]


def test_record_is_shown_as_it_is_stored() -> None:
    intent = stories.before_the_kill().records[-1]
    assert isinstance(intent, ToolIntent)
    assert messages.record(intent, "v1.2") == {
        "type": "record", "id": "v1.2", "seq": intent.seq, "record": json.loads(intent.encode()),
    }  # fmt: skip
    assert messages.error("v1.2", "gone") == {"type": "error", "id": "v1.2", "message": "gone"}


def test_ten_thousand_records_fit_into_one_message() -> None:
    timeline = build(stories.many_turns(1700, incident=800).records)
    assert len(json.dumps(messages.snapshot(timeline, "v"))) < 2_500_000


def test_the_front_ends_tests_use_the_messages_of_today() -> None:
    """`python tests/views_stories.py` writes them anew."""
    for name, message in stories.for_the_front_end().items():
        stored = (stories.FRONT_END / f"{name}.json").read_text()
        assert json.loads(stored) == json.loads(json.dumps(message)), name
