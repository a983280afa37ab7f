"""A run's graph as Mermaid text.

Labels are quoted, and whatever Mermaid or its Markdown could read as syntax is an entity
code; ids are synthetic, so that a tool called ``end`` is just a label.
"""

from __future__ import annotations

from agentbook.views.graph import Edge, Node, NodeKind, RunGraph
from agentbook.views.palette import paint

_SHAPES: dict[NodeKind, tuple[str, str]] = {
    "start": ("([", "])"), "end": ("([", "])"), "model": ("(", ")"), "step": ("[[", "]]"), "input": (">", "]"),
    "wait": ("{{", "}}"), "question": ("{{", "}}"), "pause": ("{{", "}}"), "fold": ("[/", "/]"),
}  # fmt: skip
_ARROWS = {"next": "-->", "lost": "--x", "fence": "-.->"}
_PLAIN = frozenset(" ,:·×–—…(/'’?!=◆■↺↻⚡⊘⋯◌✗✓‖†“”")


def to_mermaid(graph: RunGraph) -> str:
    """A Mermaid flowchart of a run, top to bottom."""
    by_id = {node.id: node for node in graph.nodes}
    inside = {node for cluster in graph.clusters for node in cluster.nodes}
    lines = ["flowchart TB", *(f"  {_node(node)}" for node in graph.nodes if node.id not in inside)]
    for cluster in graph.clusters:
        lines.append(f'  subgraph {cluster.id}["{escaped(cluster.label)}"]')
        lines += [f"    {_node(by_id[node])}" for node in cluster.nodes]
        lines.append("  end")
    lines += [f"  {_edge(edge)}" for edge in graph.edges]
    painted: dict[str, list[str]] = {}
    for node in graph.nodes:
        painted.setdefault(paint(node).name, []).append(node.id)
    colours = {paint(node).name: paint(node) for node in graph.nodes}
    for name, ids in sorted(painted.items()):
        colour = colours[name]
        dash = ",stroke-dasharray:4 3" if colour.dashed else ""
        lines.append(f"  classDef {name} fill:{colour.fill},stroke:{colour.line},color:{colour.text}{dash}")
        lines.append(f"  class {','.join(ids)} {name}")
    return "\n".join(lines) + "\n"


def _node(node: Node) -> str:
    left, right = _SHAPES.get(node.kind, ("[", "]"))
    return f'{node.id}{left}"{"<br/>".join(map(escaped, node.lines))}"{right}'


def _edge(edge: Edge) -> str:
    label = f'|"{escaped(edge.label)}"|' if edge.label else ""
    return f"{edge.source} {_ARROWS[edge.kind]}{label} {edge.target}"


def escaped(text: str) -> str:
    """A label in which nothing is syntax: letters and digits of any script stay, other signs become codes."""
    return "".join(
        character if _harmless(character, text, at) else f"#{ord(character)};" for at, character in enumerate(text)
    )


def _harmless(character: str, text: str, at: int) -> bool:
    if character in "_-":
        # Between two letters they are no Markdown.
        return 0 < at < len(text) - 1 and text[at - 1].isalnum() and text[at + 1].isalnum()
    if character in ".)":
        # "1. " and "1) " begin a list, which Mermaid refuses to draw.
        return not (at and text[at - 1].isdigit())
    return character.isalnum() or character in _PLAIN
