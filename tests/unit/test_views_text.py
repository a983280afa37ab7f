"""The timeline in a terminal."""

from __future__ import annotations

import unicodedata
from textwrap import dedent

import views_stories as stories
from views_stories import Story

from agentbook.views.facts import Live, RunFacts
from agentbook.views.text import legend, render
from agentbook.views.timeline import build


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_crash_and_replay_read_as_a_story() -> None:
    story = stories.killed_in_the_unsafe_tool()
    facts = RunFacts(agent="billing", status="running", live=Live(story.holder, 3, "model"), violations=0)
    assert render(build(story.records, facts)) == dedent("""\
        order-42 · billing · running · replayed 0–2, now live at position 3
        turn 1 · 12 records · journal checked ✓

        turn 0 · committed
          kernel 4121 · claim 7f3a · record 1
             0  ◆ model                           ■ ran · 812 ms
             1  search_orders              safe   ■ ran · 41 ms
                ✓ commit · record 5

        turn 1 · taken over by kernel 4188 · running
          kernel 4121 · claim 91c2 · record 6 · dead
             0  ◆ model                           ■ ran · 1.2 s
             1  get_invoice                safe   ■ ran · 38 ms
             2  refund                     unsafe ? started, no result
                † died here
          ── fence · claim b20c at record 11: kernel 4121 can write nothing more to this run, even if it
             wakes up
          kernel 4188 · claim b20c · record 11 · now
             0  ◆ model                           ↺ replayed · 0 requests
             1  get_invoice                safe   ↺ replayed
             2  refund                     unsafe ⚡ may have happened: not run again
             3  ◆ model                           ⋯ running now, first live call""")


def test_no_line_is_wider_than_asked_for() -> None:
    story = Story()
    story.claim("kernel " + "9" * 200, "aaaa")
    story.error(story.intent(0, "查询" * 60), "E" * 100, "长话 " * 50)
    story.commit("fail", error={"type": "E", "message": "y" * 400})
    for width in (*range(72, 84), 100):
        for record_count in range(1, len(story.records) + 1):
            text = render(build(story.records[:record_count]), width=width)
            assert max(map(columns, text.splitlines())) <= width


def test_quiet_turns_of_a_long_run_are_one_line_each() -> None:
    text = render(build(stories.many_turns(6, incident=3).records))
    assert "turn 0 · model 812 ms → search 41 ms → model 812 ms → ✓ commit · record 6" in text.splitlines()
    assert "turn 3 · taken over by kernel 2 · committed" in text.splitlines()


def test_long_turn_shows_its_beginning_and_end() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    for position in range(200):
        story.tool(position, f"tool_{position}")
    text = render(build(story.records))
    assert "tool_0 " in text
    assert "tool_199 " in text
    assert "tool_100 " not in text
    assert "… 160 more calls …" in text


def test_legend_explains_the_signs_that_are_used_and_no_others() -> None:
    text = legend(build(stories.killed_after_the_result().records))
    assert [line[0] for line in text.splitlines()] == ["■", "↺"]
