"""A run's graph as Graphviz source, and drawn as SVG by whichever ``dot`` there is."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Protocol, cast

from agentbook.errors import MissingExtra
from agentbook.views.graph import NodeKind, RunGraph
from agentbook.views.palette import paint

_GREY = "#737b85"
_FONT = "Helvetica,Arial,sans-serif"
_NODE = {"fontname": _FONT, "fontsize": "11", "margin": "0.2,0.05", "height": "0.35"}
_EDGE = {"fontname": _FONT, "fontsize": "10", "color": _GREY, "fontcolor": _GREY, "arrowsize": "0.7"}
_SHAPES: dict[NodeKind, str] = {
    "start": "oval", "end": "oval", "wait": "hexagon", "question": "hexagon", "pause": "hexagon",
    "step": "component", "input": "cds", "fold": "folder",
}  # fmt: skip
_EDGES = {
    "next": {},
    "lost": {"arrowhead": "tee", "color": "#9a1f4d"},
    "fence": {"style": "dashed", "color": "#9a1f4d", "fontcolor": "#9a1f4d"},
}
_SECONDS = 20.0


class _Canvas(Protocol):
    """What we use of `graphviz.Digraph`, whose own types are partly unknown."""

    @property
    def source(self) -> str: ...
    def node(self, name: str, label: str, **attrs: str) -> None: ...
    def edge(self, tail_name: str, head_name: str, label: str | None, **attrs: str) -> None: ...
    def subgraph(self, graph: _Canvas) -> object: ...


def to_dot(graph: RunGraph) -> str:
    """Graphviz source of a run's graph, top to bottom.

    Raises:
        MissingExtra: the ``graphviz`` package is not installed.
    """
    try:
        import graphviz
    except ImportError:
        raise MissingExtra("A graph as Graphviz source", "notebook") from None

    def label(*lines: str) -> str:
        # Graphviz reads entities and backslashes in labels, and takes <…> for HTML unless told otherwise.
        return graphviz.nohtml("\\n".join(str(graphviz.escape(line.replace("&", "&amp;"))) for line in lines))

    def canvas(name: str, **attributes: str) -> _Canvas:
        return cast("_Canvas", graphviz.Digraph(name, graph_attr=attributes, node_attr=_NODE, edge_attr=_EDGE))

    by_id = {node.id: node for node in graph.nodes}

    def draw(into: _Canvas, name: str) -> None:
        node, colour = by_id[name], paint(by_id[name])
        shape = _SHAPES.get(node.kind, "box")
        style = "filled" + (",rounded" if shape == "box" else "") + (",dashed" if colour.dashed else "")
        into.node(
            node.id, label(*node.lines), shape=shape, style=style,
            fillcolor=colour.fill, color=colour.line, fontcolor=colour.text,
        )  # fmt: skip

    inside = {name for cluster in graph.clusters for name in cluster.nodes}
    whole = canvas("run", rankdir="TB", ranksep="0.35", bgcolor="transparent", fontname=_FONT, fontsize="11")
    for name in by_id:
        if name not in inside:
            draw(whole, name)
    for cluster in graph.clusters:
        turn = canvas(
            f"cluster_{cluster.id}",
            label=label(cluster.label),
            labeljust="l",
            color=_GREY,
            fontcolor=_GREY,
            style="rounded",
        )
        for name in cluster.nodes:
            draw(turn, name)
        whole.subgraph(turn)
    for edge in graph.edges:
        whole.edge(edge.source, edge.target, label(f"  {edge.label}") if edge.label else None, **_EDGES[edge.kind])
    return whole.source


def to_svg(graph: RunGraph) -> str | None:
    """A run's graph as an SVG element; None if neither ``dot`` nor graphviz-pure is installed.

    Raises:
        MissingExtra: the ``graphviz`` package is not installed.
    """
    program = renderer()
    if program is None:
        return None
    done = subprocess.run(  # noqa: S603 - a program found on PATH or in our own environment, given no user words
        [program, "-Tsvg"], input=to_dot(graph).encode(), capture_output=True, timeout=_SECONDS, check=True
    )
    svg = done.stdout.decode()
    return svg[svg.index("<svg") :]


def renderer() -> str | None:
    """The program that draws: ``dot`` on PATH, else the one that the graphviz-pure wheel installs."""
    beside = Path(sysconfig.get_path("scripts"))
    return shutil.which("dot") or shutil.which("graphviz-pure", path=str(beside)) or shutil.which("graphviz-pure")
