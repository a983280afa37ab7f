"""The graph of a run, derived from what happened: neutral, and the same for the same journal.

Turns are clusters; calls are nodes in the order in which they happened; a holder that was
lost, the fence and the takeover that followed are nodes and edges too. Labels hold no
times, process numbers or record numbers, so that the Mermaid text of a scripted run is the
same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentbook.views.blocks import Block, ChipKind
from agentbook.views.words import State

NodeKind = ChipKind | Literal["start", "end", "lost", "holder", "pause", "fold"]
EdgeKind = Literal["next", "lost", "fence"]
Picture = Literal["auto", "mermaid", "svg"]

MERMAID_NODES = 60
"""Above this a front end that draws Mermaid takes seconds (NOTEBOOK.md, Graphs)."""


@dataclass(frozen=True, slots=True)
class Node:
    """One thing that happened.

    Attributes:
        id: synthetic; names that models chose never become ids.
        lines: what it is called, and what became of it; safe to show, not escaped.
        state: how it stands; None for what is no call.
        turn: the block of the timeline it belongs to; None outside of turns.
        seq: the record it stands for; None if it stands for several or none.
    """

    id: str
    kind: NodeKind
    lines: tuple[str, ...]
    state: State | None = None
    turn: str | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """What followed what: calls solid, losing a holder and fencing one not."""

    source: str
    target: str
    kind: EdgeKind = "next"
    label: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A turn, or several that look the same."""

    id: str
    label: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunGraph:
    """What a run did, as nodes and edges.

    In a notebook it shows itself: as Mermaid while that is quick to draw, else as SVG, and
    always as text.

    Example:
        >>> run.graph()                     # the picture, in a notebook
        >>> print(run.graph().to_mermaid())
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple[Cluster, ...]
    picture: Picture = "auto"

    def to_mermaid(self) -> str:
        """A Mermaid flowchart; the same text for the same journal."""
        from agentbook.views.mermaid import to_mermaid

        return to_mermaid(self)

    def to_dot(self) -> str:
        """Graphviz source.

        Raises:
            MissingExtra: the ``graphviz`` package is not installed.
        """
        from agentbook.views.dot import to_dot

        return to_dot(self)

    def to_svg(self) -> str | None:
        """The graph drawn by ``dot``, or by graphviz-pure where there is none; None without either.

        Raises:
            MissingExtra: the ``graphviz`` package is not installed.
        """
        from agentbook.views.dot import to_svg

        return to_svg(self)

    def shown_as(self, picture: Picture) -> RunGraph:
        """The same graph, which shows itself in a notebook as ``mermaid`` or ``svg``."""
        return replace(self, picture=picture)

    def __str__(self) -> str:
        """The graph as text: a line for each turn."""
        by_id = {node.id: " ".join(node.lines) for node in self.nodes}
        inside = {node for cluster in self.clusters for node in cluster.nodes}
        outside = [node for node in self.nodes if node.id not in inside]
        lines = [by_id[node.id] for node in outside if node.kind == "start"]
        lines += [f"  {c.label}: {' → '.join(by_id[node] for node in c.nodes)}" for c in self.clusters]
        return "\n".join([*lines, *(by_id[node.id] for node in outside if node.kind != "start")])

    def __repr__(self) -> str:
        return f"<RunGraph: {len(self.nodes)} nodes, {len(self.edges)} edges>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """One picture and text. Never two pictures: JupyterLab would pick Mermaid, which freezes on large ones."""
        from agentbook.errors import MissingExtra

        bundle = {"text/plain": str(self)}
        if self.picture == "mermaid" or (self.picture == "auto" and len(self.nodes) <= MERMAID_NODES):
            return bundle | {"text/vnd.mermaid": self.to_mermaid()}
        try:
            svg = self.to_svg()
        except MissingExtra:
            svg = None
        return bundle if svg is None else bundle | {"image/svg+xml": svg}


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive turns that are drawn once.

    Attributes:
        alike: they made the same calls, so the first one is drawn for all; else they become one node.
    """

    blocks: Sequence[Block]
    alike: bool = True
