"""How records become blocks, rows and chips."""

from __future__ import annotations

import json

import pytest
import views_stories as stories
from views_stories import Story

from agentbook.journal.records import (
    Answer,
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
)
from agentbook.views.blocks import Block, Row
from agentbook.views.facts import Live, Refused, RunFacts
from agentbook.views.timeline import Timeline, build, delta


def shown(row: Row) -> list[str]:
    """A row's chips, each as ``name state``."""
    return [f"{chip.name} {chip.state}" for chip in row.chips]


def only(timeline: Timeline) -> Block:
    (block,) = timeline.blocks
    return block


def test_turn_without_incident_is_quiet_and_ends_with_its_commit() -> None:
    story = Story()
    stories.quiet_turn(story, 0)
    block = only(build(story.records))
    (row,) = block.rows
    assert shown(row) == ["model ran", "search_orders ran"]
    assert [chip.note for chip in row.chips] == ["ran · 812 ms", "ran · 41 ms"]
    assert row.mark is not None
    assert (row.mark.text, row.mark.column, row.mark.seq) == ("✓ commit · record 5", 2, 5)
    assert block.quiet
    assert (block.title, block.headline) == ("turn 0", "committed")
    assert block.line == "model 812 ms → search_orders 41 ms → ✓ commit · record 5"


def test_columns_are_positions_and_each_chip_names_its_records() -> None:
    story = Story()
    stories.quiet_turn(story, 0)
    block = only(build(story.records))
    search = block.rows[0].chips[1]
    assert [column.position for column in block.columns] == [0, 1]
    assert (search.began, search.seq, search.key, search.declared) == (3, 4, "order-42.agent.0.1", "safe")


def test_holder_at_work_shows_its_open_call_as_running() -> None:
    block = build(stories.before_the_kill().records).blocks[1]
    assert shown(block.rows[0]) == ["model ran", "get_invoice ran", "refund running"]
    assert block.rows[0].mark is None
    assert block.outcome == "running"


def test_nobody_answering_shows_the_open_call_as_unknown_and_the_holder_as_dead() -> None:
    timeline = build(stories.before_the_kill().records, RunFacts(nobody=True, status="running"))
    row = timeline.blocks[1].rows[0]
    assert shown(row)[2] == "refund unknown"
    assert row.mark is not None
    assert row.mark.text == "† died here: nobody works on the run now"
    assert timeline.head.headline == "running · nobody works on it now"


def test_unsafe_call_of_a_dead_holder_may_have_happened_and_is_not_run_again() -> None:
    story = stories.killed_in_the_unsafe_tool()
    facts = RunFacts(agent="billing", status="running", live=Live(story.holder, 3, "model"), violations=0)
    timeline = build(story.records, facts)
    first, second = timeline.blocks[1].rows
    assert shown(first) == ["model ran", "get_invoice ran", "refund unknown"]
    assert first.mark is not None
    assert (first.mark.text, first.mark.column) == ("† died here", 3)
    assert shown(second) == ["model replayed", "get_invoice replayed", "refund interrupted", "model running"]
    assert second.chips[2].note == "may have happened: not run again"
    assert second.chips[3].note == "running now, first live call"
    assert second.chips[3].cursor
    assert timeline.head.headline == "running · replayed 0–2, now live at position 3"
    assert timeline.head.detail == "turn 1 · 12 records · journal checked ✓"
    assert timeline.blocks[1].headline == "taken over by kernel 4188 · running"


def test_fence_says_who_fenced_whom_at_which_record() -> None:
    fence = build(stories.killed_in_the_unsafe_tool().records).blocks[1].rows[1].fence
    assert fence is not None
    assert not fence.closed
    assert fence.text == (
        "fence · claim b20c at record 11: kernel 4121 can write nothing more to this run, even if it wakes up"
    )


def test_finished_calls_stand_as_replayed_under_the_ones_that_ran() -> None:
    block = only(build(stories.killed_after_the_result().records))
    first, second = block.rows
    assert shown(first) == ["model ran", "charge ran"]
    assert shown(second) == ["model replayed", "charge replayed", "model ran"]
    assert second.chips[0].note == "replayed · 0 requests"
    assert second.chips[1].seq == first.chips[1].seq
    assert block.headline == "taken over by kernel 2 · final answer"
    assert not block.quiet


def test_three_holders_a_safe_call_is_run_again_and_an_idle_holder_has_no_chips() -> None:
    block = only(build(stories.three_holders().records))
    first, second, third = block.rows
    assert shown(first) == ["model ran", "search unknown"]
    assert shown(second) == []
    assert second.mark is not None
    assert second.mark.text == "† died before it recorded anything"
    assert shown(third) == ["model replayed", "search reran", "model ran"]
    assert third.chips[1].note == "ran again (safe) · 40 ms"
    assert block.headline == "taken over twice, last by kernel 3 · final answer"


def test_replaying_holder_shows_what_it_has_not_reached_as_next() -> None:
    story = stories.before_the_kill()
    story.claim("kernel 4188", "b20c")
    timeline = build(story.records, RunFacts(status="running", live=Live(story.holder, 1)))
    assert shown(timeline.blocks[1].rows[1]) == ["model replayed", "get_invoice next", "refund next"]
    assert timeline.head.headline == "running · replaying, now at position 1"


def test_call_recorded_by_a_sibling_of_the_open_one_is_replayed_once_its_holder_ended() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    slow, quick = story.intent(1, "slow"), story.intent(2, "quick")
    story.result(quick)
    story.claim("kernel 2", "bbbb")
    story.result(slow)
    assert shown(only(build(story.records)).rows[1]) == ["model replayed", "slow reran", "quick next"]
    story.commit("complete")
    assert shown(only(build(story.records)).rows[1]) == ["model replayed", "slow reran", "quick replayed"]


def test_new_attempt_reuses_results_and_closes_what_was_left_open() -> None:
    timeline = build(stories.two_attempts().records)
    first, second = timeline.blocks
    assert (first.id, second.id) == ("0.1", "0.2")
    assert (first.title, second.title) == ("turn 0 · attempt 1", "turn 0 · attempt 2")
    assert shown(first.rows[0])[2] == "refund unknown"
    assert first.rows[0].mark is not None
    assert first.rows[0].mark.text == "✗ failed: TimeoutError: too slow · record 6"
    assert shown(second.rows[0]) == ["refund interrupted", "model ran", "charge replayed", "model ran"]
    assert second.rows[0].chips[2].note == "reused from attempt 1"
    assert second.columns[0].position is None
    assert second.rows[0].fence is None, "attempt 1 ended itself, so nobody was fenced"
    assert not first.quiet
    assert not second.quiet


def test_new_attempt_fences_the_holder_of_one_that_never_ended() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    story.turn(0, 2).claim("kernel 2", "bbbb")
    first, second = build(story.records).blocks
    assert first.outcome == "given up"
    assert second.rows[0].fence is not None
    assert "kernel 1 can write nothing more" in second.rows[0].fence.text


def test_halted_run_says_which_call_and_keeps_it_unknown() -> None:
    timeline = build(stories.halted().records)
    row = timeline.blocks[1].rows[1]
    assert shown(row) == ["model replayed", "get_invoice replayed", "refund unknown"]
    assert row.chips[2].note == "started, no result: someone must say how it ended"
    assert timeline.head.headline == "halted · refund may or may not have happened"
    assert timeline.head.alarm


@pytest.mark.parametrize(
    ("outcome", "state", "note"),
    [
        ("happened", "recorded", "anna says it happened"),
        ("failed", "error", "anna says it failed"),
        ("did_not_happen", "recorded", "anna says it did not happen"),
    ],
)
def test_resolution_is_a_row_of_whoever_said_it(outcome: str, state: str, note: str) -> None:
    story = stories.halted()
    fields = {"value": {"id": 1}} if outcome == "happened" else {}
    story.add(Resolution.model_validate({"of": 10, "outcome": outcome, "by": "anna", **fields}), claim="e" * 32)
    block = build(story.records).blocks[1]
    row = block.rows[2]
    assert (row.holder, row.state) == ("anna", "said")
    assert [(chip.name, chip.state, chip.note) for chip in row.chips] == [("refund", state, note)]
    assert block.outcome == "settled"


def test_resolved_call_is_replayed_or_run_again_by_the_next_holder() -> None:
    story = stories.halted()
    story.add(Resolution(of=10, outcome="did_not_happen", by="anna"), claim="e" * 32)
    story.claim("kernel 5", "5555")
    again = story.intent(2, "refund", "unsafe")
    story.result(again, ms=12)
    rows = build(story.records).blocks[1].rows
    assert rows[3].chips[2].note == "ran again: it had not happened · 12 ms"
    assert rows[3].fence is not None
    assert rows[3].fence.closed, "nothing was taken from a holder that had paused"

    told = stories.halted()
    told.add(Resolution(of=10, outcome="happened", value=1, by="anna"), claim="e" * 32)
    told.claim("kernel 5", "5555")
    told.model(3)
    assert build(told.records).blocks[1].rows[3].chips[2].note == "replayed: anna said it happened"


def test_resolution_in_the_holders_own_cell_reopens_its_row() -> None:
    story = stories.halted()
    story.add(Resolution(of=10, outcome="happened", value=1, by="anna"))
    story.model(3)
    row = build(story.records).blocks[1].rows[1]
    assert row.chips[2].note == "anna says it happened"
    assert row.mark is None


def test_outcome_that_a_reconciler_found_is_no_second_run() -> None:
    story = stories.before_the_kill()
    refund = story.records[-1]
    assert isinstance(refund, ToolIntent)
    story.claim("kernel 4188", "b20c")
    story.result(refund)
    chip = build(story.records).blocks[1].rows[1].chips[2]
    assert (chip.state, chip.note) == ("recorded", "looked up: it had happened")


def test_safe_call_that_the_cursor_stands_on_is_running_again() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.intent(0, "search")
    story.claim("kernel 2", "bbbb")
    chip = only(build(story.records, RunFacts(live=Live(story.holder, 0, "search")))).rows[1].chips[0]
    assert (chip.state, chip.note, chip.cursor) == ("running", "running again", True)


def test_replayed_chip_says_what_was_recorded_if_that_is_no_plain_value() -> None:
    story = stories.killed_in_the_unsafe_tool()
    story.error(story.intent(3, "mail"), "Bounced", "no such box")
    story.claim("kernel 3", "cccc")
    story.commit()
    notes = [chip.note for chip in build(story.records).blocks[1].rows[2].chips]
    assert notes[2:] == [
        "replayed: may have happened, not run again", "replayed: the recorded error · Bounced: no such box",
    ]  # fmt: skip


def test_first_call_of_a_turn_is_not_called_the_first_live_one() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    timeline = build(story.records, RunFacts(status="running", live=Live(story.holder, 0)))
    (chip,) = only(timeline).rows[0].chips
    assert (chip.name, chip.note) == ("next call", "running now")
    assert timeline.head.headline == "running · live at position 0"


def test_kernel_that_fences_itself_is_named_by_its_older_claim() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    story.claim("kernel 1", "bbbb")
    fence = only(build(story.records)).rows[1].fence
    assert fence is not None
    assert "record 3: its older claim aaaa can write nothing more" in fence.text


def test_turn_that_took_two_attempts_is_never_quiet() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.commit("fail", reason="timeout")
    story.turn(0, 2).claim("kernel 2", "bbbb")
    story.model(0)
    story.commit()
    assert [block.quiet for block in build(story.records).blocks] == [False, False]


def test_step_that_did_not_start_runs_again() -> None:
    story = Story()
    story.claim("cell 1", "aaaa")
    error = {"type": "ConnectionRefusedError", "message": ""}
    story.add(StepAttempt(name="charge", replay="unsafe", args="d"))
    story.add(StepError.model_validate({"name": "charge", "outcome": "not_started", "error": error}))
    story.claim("cell 2", "bbbb")
    story.add(StepAttempt(name="charge", replay="unsafe", args="d"))
    story.add(StepValue(name="charge", value=1))
    first, second = only(build(story.records)).rows
    assert first.chips[0].note == "did not start, may run again · ConnectionRefusedError"
    assert (second.chips[0].state, second.chips[0].note) == ("reran", "ran again · value kept")


def test_cancelled_run_shows_what_it_cut() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    refund, search = story.intent(1, "refund", "unsafe"), story.intent(2, "search")
    story.interrupted(refund, "cancelled")
    story.error(search, "Cancelled", "")
    block = only(build(story.records, RunFacts(status="cancelled")))
    row = block.rows[0]
    assert shown(row) == ["model ran", "refund interrupted", "search error"]
    assert row.chips[1].note == "may have happened: cut by the cancellation"
    assert row.mark is not None
    assert row.mark.text == "‖ over: the run is cancelled"
    assert block.outcome == "cut"


def test_writer_refused_by_the_fence_is_stalled_and_not_dead() -> None:
    story = stories.killed_in_the_unsafe_tool()
    older = story.records[5].claim
    facts = RunFacts(refused=(Refused(older, "result of refund"),))
    row = build(story.records, facts).blocks[1].rows[0]
    assert row.note.endswith("stalled")
    assert row.mark is not None
    assert (row.mark.kind, row.mark.text) == ("fenced", "⊘ woke up: result of refund refused by the fence")


def test_tool_error_is_an_outcome_that_is_seen() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.error(story.intent(0, "search"), "ValueError", "no\nsuch order")
    story.commit()
    block = only(build(story.records))
    assert block.rows[0].chips[0].note == r"failed · ValueError: no\nsuch order"
    assert not block.quiet


def test_partial_outputs_are_counted() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    copy = story.intent(0, "copy", "unsafe")
    story.add(ToolPartial(intent=copy.seq, output=1))
    assert only(build(story.records)).rows[0].chips[0].note == "running now · 1 partial output"
    story.claim("kernel 2", "bbbb")
    story.interrupted(copy, partial=[1])
    rows = only(build(story.records)).rows
    assert rows[0].chips[0].note == "started, no result · 1 partial output"
    assert rows[1].chips[0].note == "may have happened: not run again · 1 partial output kept"


def test_input_stands_before_the_call_that_reads_it() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    story.placed(1, "steer", "be brief")
    story.model(1)
    chips = only(build(story.records)).rows[0].chips
    assert [(chip.kind, chip.name) for chip in chips] == [
        ("model", "model"), ("input", "steer “be brief”"), ("model", "model"),
    ]  # fmt: skip
    assert chips[1].note == "read by the call at position 1"


def test_named_steps_sleeps_and_questions_have_chips_of_their_own() -> None:
    story = Story()
    story.claim("cell 1", "aaaa")
    story.add(StepAttempt(name="charge", replay="unsafe", args="d"))
    story.add(StepValue(name="charge", value=1))
    story.add(StepValue(name="look up", value=1))
    story.add(Timer(name="cooldown", wake_at="2030-01-01T00:00:00Z"))
    story.pause("sleep", wait={"until": "2030-01-01T00:00:00Z"})
    story.claim("cell 2", "bbbb")
    story.add(Question.model_validate({"id": "q", "prompt": "Ship it?", "schema": {}}))
    story.add(Answer(id="q", value=True, by="anna"))
    story.add(StepAttempt(name="mail", replay="unsafe", args="d"))
    story.add(
        StepError.model_validate(
            {"name": "mail", "outcome": "unknown", "error": {"type": "TimeoutError", "message": ""}}
        )
    )
    first, second = only(build(story.records)).rows
    assert shown(first) == ["charge ran", "look up ran", "sleep cooldown waiting"]
    assert [chip.declared for chip in first.chips] == ["unsafe", "safe", None]
    assert first.mark is not None
    assert first.mark.text == "‖ sleeps until 2030-01-01T00:00:00Z · record 6"
    assert shown(second) == [
        "charge replayed", "look up replayed", "sleep cooldown replayed", "“Ship it?” recorded", "mail unknown",
    ]  # fmt: skip
    assert second.chips[3].note == "answered by anna: “true”"
    assert second.fence is not None
    assert second.fence.closed


def test_rollback_names_what_it_undid() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    charge = story.intent(0, "charge", "unsafe")
    story.result(charge)
    story.add(SagaFailed.model_validate({"cause": {"type": "NoRoom", "message": "full"}}))
    story.add(SagaCompensated(of=charge.seq))
    story.commit("abort")
    block = only(build(story.records))
    assert shown(block.rows[0]) == ["charge ran", "rollback error", "undo charge ran"]
    assert block.outcome == "aborted"


def test_claim_that_holds_several_turns_has_a_row_in_each() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    story.commit()
    story.turn(1).model(0)
    first, second = build(story.records).blocks
    assert (first.rows[0].seq, second.rows[0].seq) == (1, 1)
    assert second.rows[0].fence is None
    assert shown(second.rows[0]) == ["model ran"]


def test_journal_that_begins_in_the_middle_is_shown_with_an_unknown_holder() -> None:
    story = stories.killed_after_the_result()
    block = only(build(story.records[1:]))
    assert block.rows[0].holder == "unknown holder"
    assert shown(block.rows[0]) == ["model ran", "charge ran"]


def test_empty_and_purged_journals_have_a_head() -> None:
    assert build([], RunFacts(run="x")).head.headline == "running"
    story = Story()
    story.add(Purged(), claim="f" * 32)
    purged = build(story.records)
    assert (purged.head.status, purged.blocks) == ("purged", ())


def test_delta_holds_only_the_blocks_that_changed() -> None:
    story = stories.before_the_kill()
    before = build(story.records)
    story.claim("kernel 4188", "b20c")
    after = build(story.records)
    assert [block.id for block in delta(before, after)] == ["1.1"]
    assert delta(after, after) == ()
    assert delta(build([]), after) == after.blocks


def test_json_leaves_out_what_is_not_there() -> None:
    data = json.loads(json.dumps(build(stories.killed_in_the_unsafe_tool().records).to_json()))
    model = data["blocks"][0]["rows"][0]["chips"][0]
    assert model == {
        "column": 0, "kind": "model", "name": "model", "state": "ran", "note": "ran · 812 ms", "seq": 2, "ms": 812,
    }  # fmt: skip
    assert data["blocks"][1]["id"] == "1.1"


HOSTILE = [
    "a[0]", "查询", 'x"y', "a|b", "</div>", "end", "graph", "line\nbreak", "x" * 300, "", "ns::f", "<lambda> <map>",
    "back\\", "\x1b[2J", "\u202eright", "\ud800", "nul\0",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_on_one_line_without_anything_a_terminal_acts_on(name: str) -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.tool(0, name)
    shown_name = only(build(story.records)).rows[0].chips[0].name
    assert shown_name.strip()
    assert len(shown_name) <= 80
    assert shown_name.isprintable()
    shown_name.encode()


def test_hostile_names_stay_distinct() -> None:
    names = [*HOSTILE, "x" * 299 + "y", "y" + "x" * 299]
    story = Story()
    story.claim("kernel 1", "aaaa")
    for position, name in enumerate(names):
        story.tool(position, name)
    chips = only(build(story.records)).rows[0].chips
    assert len({chip.name for chip in chips}) == len(names)
