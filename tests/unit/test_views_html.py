"""The timeline as static HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import views_stories as stories
from views_stories import Story

from agentbook.views.facts import Live, RunFacts
from agentbook.views.html import render
from agentbook.views.style import SCOPE, stylesheet
from agentbook.views.timeline import build
from agentbook.views.words import TERMS

ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></div><h1>x",
    "' onmouseover='x",
    "&lt;b&gt;",
    "\u202edesrever",
]
VOID = {"br", "img", "hr"}


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails on a tag that is closed in the wrong order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.titles: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.titles |= {value for name, value in attrs if name == "title" and value}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def crash() -> str:
    story = stories.killed_in_the_unsafe_tool()
    return render(build(story.records, RunFacts(status="running", live=Live(story.holder, 3, "model"))))


def test_says_everything_in_words_with_the_style_stripped() -> None:
    text = Reader(crash()).text
    for phrase in ("† died here", "may have happened: not run again", "replayed · 0 requests", "started, no result"):
        assert phrase in text


def test_is_a_table_whose_columns_are_positions_and_whose_rows_are_holders() -> None:
    html = crash()
    table = html[html.rindex("<table") : html.rindex("</table>")]
    assert re.findall(r'scope="col">(.*?)</th>', table)[3].endswith("</abbr> 3")
    assert re.findall(r'scope="row"><b><bdi>(.*?)</bdi>', table) == ["kernel 4121", "kernel 4188"]


def test_nothing_is_loaded_and_nothing_runs() -> None:
    reader = Reader(crash())
    assert reader.tags.isdisjoint({"script", "img", "link", "iframe", "object", "svg", "a", "form", "input"})
    assert {name for name in reader.attributes if name.startswith("on") or name in ("src", "href", "style")} == set()
    assert "url(" not in stylesheet()
    assert "@import" not in stylesheet()


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_models_and_tools_chose_is_text(attack: str) -> None:
    story = Story(run="order-42")
    story.claim(attack, "aaaa")
    story.placed(0, attack, {attack: attack})
    story.error(story.intent(0, attack, "unsafe"), attack, attack)
    story.commit("fail", error={"type": attack, "message": attack})
    html = render(build(story.records, RunFacts(agent=attack)))
    reader = Reader(html)
    clean = Reader(render(build(stories.killed_after_the_result().records)))
    assert reader.tags <= clean.tags
    assert reader.attributes <= clean.attributes
    assert attack.replace("\u202e", "\\u202e") in reader.text


def test_every_rule_is_scoped() -> None:
    css = stylesheet().replace("@media (prefers-color-scheme:dark){", "")
    selectors = re.findall(r"(?:^|\})([^{}]+)\{", css)
    assert len(selectors) > 30
    assert all(f".{SCOPE}" in part for rule in selectors for part in re.split(r",(?![^(]*\))", rule))


def test_theme_of_the_front_end_outranks_the_systems() -> None:
    css = stylesheet()
    assert 'body:is([data-jp-theme-light="false"]' in css
    assert ':root:not(:has(body:is([data-jp-theme-light="true"]' in css


def test_terms_that_nobody_understands_have_one_sentence_each() -> None:
    titles = Reader(crash()).titles
    for term in ("claim", "record", "commit", "fence", "position"):
        assert TERMS[term] in titles
    checked = render(build(stories.before_the_kill().records, RunFacts(violations=0)))
    assert TERMS["check"] in Reader(checked).titles


def test_thousand_records_stay_under_fifty_kilobytes() -> None:
    story = stories.many_turns(180, incident=90)
    assert len(story.records) > 1000
    html = render(build(story.records))
    assert len(html.encode()) < 50_000
    assert "taken over by kernel 2" in html
    Reader(html)


def test_list_of_folded_turns_leaves_out_its_middle() -> None:
    html = render(build(stories.many_turns(400).records))
    assert html.count("<li>") == 61
    assert "… 339 turns more …" in html


def test_thousand_records_of_nothing_but_incidents_stay_under_two_hundred_kilobytes() -> None:
    story = Story()
    for iteration in range(170):
        story.turn(iteration).claim("kernel 1", f"a{iteration:03x}")
        refund = story.intent(0, "refund", "unsafe")
        story.claim("kernel 2", f"b{iteration:03x}")
        story.interrupted(refund)
        story.model(1)
        story.commit()
    assert len(story.records) > 1000
    assert len(render(build(story.records)).encode()) < 200_000


def test_long_turn_leaves_out_its_middle_columns() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    for position in range(200):
        story.tool(position, f"tool_{position}_")
    html = render(build(story.records))
    assert "tool_0_" in html
    assert "tool_199_" in html
    assert "tool_100_" not in html
    assert "… 168 more …" in html
