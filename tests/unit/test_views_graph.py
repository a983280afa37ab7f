"""The graph derived from what happened, as Mermaid, Graphviz and SVG."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import views_stories as stories
from views_stories import Story

from agentbook.errors import MissingExtra
from agentbook.views import dot
from agentbook.views.draw import draw
from agentbook.views.facts import Live, RunFacts
from agentbook.views.graph import RunGraph
from agentbook.views.mermaid import escaped
from agentbook.views.timeline import build

WIDGETS = Path(__file__).parents[2] / "widgets"

# SCENARIOS R1, and what Mermaid, its Markdown, Graphviz and terminals would each act on.
HOSTILE = [
    "a[0]", "查询", 'x"y', "a|b", "</div>", "end", "graph", "line\nbreak", "x" * 300, "", "ns::f", "<lambda> <map>",
    "back\\", "1. list", "2) list", "- item", "+ item", "# head", "**b**", "__init__", "`x`", "#quot;", "%%{init}%%",
    '"]; click n0 "javascript:x', "&lt;", "<", "A --> B", r"\N\G\l", "<b>bold</b>", "\ud800", "\x1b[2J",
]  # fmt: skip


def graph(story: Story, **facts: object) -> RunGraph:
    return draw(build(story.records, RunFacts(**facts)))  # type: ignore[arg-type]


def hostile() -> RunGraph:
    story = Story()
    story.claim("kernel 1", "aaaa")
    for position, name in enumerate(HOSTILE):
        story.tool(position, name)
    return graph(story)


def shown(drawn: RunGraph) -> list[str]:
    return [" ".join(node.lines) for node in drawn.nodes]


def parsed(*texts: str) -> list[dict[str, object]]:
    """What the real Mermaid parser makes of some texts."""
    node = shutil.which("node")
    if node is None or not (WIDGETS / "node_modules/mermaid").exists():
        pytest.skip("needs node and `npm ci` in widgets/")
    done = subprocess.run(
        [node, "tests/parse_mermaid.mjs"],
        cwd=WIDGETS,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[dict[str, object]] = json.loads(done.stdout)
    return answers


def test_crash_is_drawn_as_lost_holder_fence_and_takeover() -> None:
    story = stories.killed_in_the_unsafe_tool()
    drawn = graph(story, agent="billing", live=Live(story.holder, 3, "model"))
    assert shown(drawn) == [
        "order-42 · billing",
        "◆ model",
        "search_orders",
        "◆ model",
        "get_invoice",
        "refund (unsafe) ? started, no result",
        "† holder 1 died here",
        "holder 2 took over ↺ replayed 0–1",
        "refund (unsafe) ⚡ may have happened: not run again",
        "◆ model ⋯ running",
    ]
    assert [(edge.source, edge.target) for edge in drawn.edges if edge.kind == "lost"] == [("n5", "n6")]
    assert [(edge.source, edge.target, edge.label) for edge in drawn.edges if edge.kind == "fence"] == [
        ("n6", "n7", "fence")
    ]
    assert [cluster.label for cluster in drawn.clusters] == ["turn 0", "turn 1"]


def test_two_attempts_show_the_failure_and_the_reuse() -> None:
    assert shown(graph(stories.two_attempts()))[4:] == [
        "✗ this attempt failed",
        "refund (unsafe) ⚡ may have happened: not run again",
        "◆ model",
        "charge (unsafe) ↺ reused from attempt 1",
        "◆ model",
        "completed",
    ]


def test_three_holders_are_three_and_a_pause_is_no_loss() -> None:
    assert [text for text in shown(graph(stories.three_holders())) if "holder" in text] == [
        "† holder 1 died here", "holder 2 took over", "† holder 2 died here", "holder 3 took over ↺ replayed 0",
    ]  # fmt: skip
    assert shown(graph(stories.halted()))[-1] == "‖ halted: refund may or may not have happened"


def test_calls_that_ran_beside_each_other_stand_beside_each_other() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    first, second = story.intent(1, "a"), story.intent(2, "b")
    story.result(first)
    story.result(second)
    story.tool(3, "c")
    edges = {(edge.source, edge.target) for edge in graph(story).edges}
    assert edges == {("n0", "n1"), ("n1", "n2"), ("n1", "n3"), ("n2", "n4"), ("n3", "n4")}


def test_same_story_told_by_other_processes_is_the_same_text() -> None:
    def told(offset: int) -> str:
        story = Story(first=offset)
        story.claim(f"kernel {offset}", f"{offset:04x}")
        refund = story.intent(0, "refund", "unsafe")
        story.claim(f"kernel {offset + 1}", f"{offset + 1:04x}")
        story.interrupted(refund)
        story.model(1, ms=offset)
        story.commit("complete")
        return graph(story).to_mermaid()

    assert told(1) == told(4711)


@pytest.mark.parametrize("incident", [None, 300])
def test_six_hundred_turns_fold_with_a_count(incident: int | None) -> None:
    drawn = graph(stories.many_turns(600, incident))
    assert len(drawn.edges) < 500
    assert len(drawn.to_mermaid()) < 50_000
    assert any("×" in cluster.label for cluster in drawn.clusters)


def test_turns_that_made_the_same_calls_fold_before_others_do() -> None:
    story = stories.many_turns(40)
    for iteration in range(40, 60):
        story.turn(iteration).claim("kernel 2", f"b{iteration:03x}")
        story.tool(0, "archive")
        story.commit()
    assert [cluster.label for cluster in graph(story).clusters] == ["turns 0–39 · ×40", "turns 40–59 · ×20"]


def different(count: int, incidents: bool = False) -> Story:
    """Turns of which no two neighbours are alike."""
    story = Story()
    for iteration in range(count):
        story.turn(iteration).claim("kernel 1", f"a{iteration:03x}")
        if incidents:
            story.model(0)
            story.claim("kernel 2", f"b{iteration:03x}")
        story.tool(1, f"tool_{iteration}_" + "n" * 200, "unsafe")
        story.commit()
    return story


@pytest.mark.parametrize("incidents", [False, True])
def test_no_run_is_too_large_to_draw(incidents: bool) -> None:
    drawn = graph(different(600, incidents))
    assert len(drawn.edges) < 500
    assert len(drawn.to_mermaid()) < 50_000
    assert any("turns " in text and "×" in text for text in shown(drawn))


def test_a_turn_of_many_calls_is_shortened() -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    for position in range(256):
        story.tool(position, "same" if position < 100 else f"other_{position}")
    drawn = graph(story)
    assert "same ×100" in shown(drawn)
    assert any("more calls" in text for text in shown(drawn))
    assert len(drawn.nodes) < 60


def test_mermaid_labels_are_shown_as_they_are() -> None:
    drawn = hostile()
    (answer,) = parsed(drawn.to_mermaid())
    assert "error" not in answer
    nodes = answer["nodes"]
    assert isinstance(nodes, dict)
    # Mermaid keeps entity codes as marks until it draws.
    read = {key: re.sub(r"ﬂ°°(\d+)¶ß", lambda code: chr(int(code[1])), text) for key, text in nodes.items()}
    assert read == {node.id: "<br>".join(node.lines) for node in drawn.nodes}
    assert answer["edges"] == len(drawn.edges)


def test_mermaid_reads_every_story() -> None:
    told = [graph(story()) for story in (stories.halted, stories.two_attempts, stories.three_holders)]
    told.append(graph(stories.many_turns(600, 300)))
    for drawn, answer in zip(told, parsed(*[drawn.to_mermaid() for drawn in told]), strict=True):
        assert answer["edges"] == len(drawn.edges)


@pytest.mark.parametrize("name", ["1. list", "- item", "__init__", "a`b", "#quot;", '"]', "x;y", "a#35;b"])
def test_mermaid_labels_hold_no_syntax(name: str) -> None:
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.tool(0, name)
    line = next(line for line in graph(story).to_mermaid().splitlines() if line.strip().startswith("n1["))
    label = line.strip().removeprefix('n1["').removesuffix('"]')
    assert not re.search(r'["`;#\[\]<>\\]|^[-+]|^\d+[.)]|__', re.sub(r"#\d+;", "", label))
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) == name


def test_mermaid_labels_stay_readable() -> None:
    assert escaped("lib.get_invoice (unsafe), 0–2: don't") == "lib.get_invoice (unsafe), 0–2: don't"


def test_svg_shows_every_name_as_it_is_and_nothing_else() -> None:
    drawn = hostile()
    svg = drawn.to_svg()
    assert svg is not None
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for node in drawn.nodes:
        assert set(node.lines) <= set(texts)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "g", "title", "polygon", "path", "text", "ellipse", "polyline"}


def test_graphviz_source_runs_from_top_to_bottom_with_turns_as_clusters() -> None:
    source = graph(stories.killed_after_the_result()).to_dot()
    assert "rankdir=TB" in source
    assert "subgraph cluster_c0" in source


def test_dot_on_path_is_preferred_and_graphviz_pure_serves_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pure = dot.renderer()
    assert pure is not None
    assert Path(pure).name.startswith("graphviz-pure")
    ours = tmp_path / "dot"
    ours.write_text("#!/bin/sh\n")
    ours.chmod(0o755)
    assert dot.renderer() == str(ours)


def test_without_any_renderer_there_is_no_svg_but_still_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    drawn = graph(stories.halted()).shown_as("svg")
    assert drawn.to_svg() is None
    assert set(drawn._repr_mimebundle_()) == {"text/plain"}


def test_without_the_graphviz_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    drawn = graph(stories.halted())
    with pytest.raises(MissingExtra, match=r"agentbook\[notebook\]"):
        drawn.to_dot()
    assert set(drawn.shown_as("svg")._repr_mimebundle_()) == {"text/plain"}


def test_bundle_holds_one_picture_never_two() -> None:
    small = graph(stories.killed_after_the_result())
    large = graph(different(70))
    assert len(large.nodes) > 60
    assert set(small._repr_mimebundle_()) == {"text/plain", "text/vnd.mermaid"}
    assert set(large._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    assert set(small.shown_as("svg")._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    assert set(large.shown_as("mermaid")._repr_mimebundle_()) == {"text/plain", "text/vnd.mermaid"}


def test_text_of_a_graph_is_a_line_for_each_turn() -> None:
    assert str(graph(stories.killed_after_the_result())).splitlines() == [
        "order-42",
        "  turn 0: ◆ model → charge (unsafe) → † holder 1 died here → holder 2 took over ↺ replayed 0–1 → ◆ model",
        "completed",
    ]


def test_views_load_neither_graphviz_nor_a_notebook() -> None:
    code = (
        "import sys, agentbook.views.draw, agentbook.views.html, agentbook.views.text\n"
        "print([name for name in ('graphviz', 'IPython', 'nats', 'pandas', 'anywidget') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
