"""Drawing the graph of a timeline, folded until it can be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from agentbook.views.blocks import Block, Chip, Row
from agentbook.views.graph import MERMAID_NODES, Cluster, Edge, EdgeKind, Node, NodeKind, RunGraph, Segment
from agentbook.views.timeline import Timeline
from agentbook.views.words import MODEL_SIGN, STATES, State, plural, spans

_MAX_NODES = 240
_KEPT_FIRST, _KEPT_LAST = 8, 16
_CALLS_IN_A_TURN = 32
_KINDS_IN_A_FOLD = 4


def draw(timeline: Timeline) -> RunGraph:
    """The graph of a run.

    A run too large to look at is folded: first turns that made the same calls are drawn
    once with ×N, then turns without incident become one node, at last all but the first
    and the newest turns do.
    """
    folds: tuple[tuple[Callable[[Sequence[Block]], list[Segment]], int], ...] = (
        (_each, MERMAID_NODES),
        (_alike, _MAX_NODES),
        (_quiet, _MAX_NODES),
    )
    for fold, limit in folds:
        graph = _Drawing(timeline).finish(fold(timeline.blocks))
        if len(graph.nodes) <= limit:
            return graph
    return _Drawing(timeline).finish(_ends(_quiet(timeline.blocks)))


def _each(blocks: Sequence[Block]) -> list[Segment]:
    return [Segment([block]) for block in blocks]


def _alike(blocks: Sequence[Block]) -> list[Segment]:
    return [Segment(group) for group in _grouped(blocks, lambda a, b: a.quiet and b.quiet and _shape(a) == _shape(b))]


def _quiet(blocks: Sequence[Block]) -> list[Segment]:
    groups = _grouped(blocks, lambda a, b: a.quiet and b.quiet)
    return [Segment(group, alike=len({_shape(block) for block in group}) == 1) for group in groups]


def _ends(segments: Sequence[Segment]) -> list[Segment]:
    middle = [block for segment in segments[_KEPT_FIRST:-_KEPT_LAST] for block in segment.blocks]
    return [*segments[:_KEPT_FIRST], Segment(middle, alike=False), *segments[-_KEPT_LAST:]]


def _grouped(blocks: Sequence[Block], together: Callable[[Block, Block], bool]) -> Iterator[list[Block]]:
    group: list[Block] = []
    for block in blocks:
        if group and not together(group[-1], block):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _shape(block: Block) -> tuple[object, ...]:
    return tuple((chip.kind, chip.name, chip.declared, chip.state) for chip in block.rows[-1].chips)


class _Drawing:
    """A graph while it grows. `tails` are the nodes that whatever comes next follows."""

    def __init__(self, timeline: Timeline) -> None:
        head = timeline.head
        self.status = head.status
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.clusters: list[Cluster] = []
        self.tails: list[str] = []
        self.turn: str | None = None
        self.add("start", " · ".join(part for part in (head.run, head.agent) if part) or "run")

    def finish(self, segments: Sequence[Segment]) -> RunGraph:
        for segment in segments:
            if segment.alike:
                self._turn(segment)
            else:
                self._folded(segment.blocks)
        self.turn = None
        if segments and segments[-1].blocks[-1].outcome in ("completed", "aborted", "failed", "cut"):
            self.add("end", self.status.replace("_", " "))
        return RunGraph(tuple(self.nodes), tuple(self.edges), tuple(self.clusters))

    def add(
        self, kind: NodeKind, *lines: str, state: State | None = None, seq: int | None = None,
        edge: EdgeKind = "next", label: str = "",
    ) -> str:  # fmt: skip
        """One node after all that came before it."""
        (node,) = self.fan([Node("", kind, tuple(line for line in lines if line), state, self.turn, seq)], edge, label)
        return node

    def fan(self, nodes: Sequence[Node], edge: EdgeKind = "next", label: str = "") -> list[str]:
        """Nodes that ran beside each other."""
        ids: list[str] = []
        for node in nodes:
            made = Node(f"n{len(self.nodes)}", node.kind, node.lines, node.state, node.turn, node.seq)
            self.nodes.append(made)
            self.edges += [Edge(tail, made.id, edge, label) for tail in self.tails]
            ids.append(made.id)
        self.tails = ids
        return ids

    def _turn(self, segment: Segment) -> None:
        block, last, count = segment.blocks[0], segment.blocks[-1], len(segment.blocks)
        before = len(self.nodes)
        self.turn = block.id
        for number, row in enumerate(block.rows):
            self._row(row, block, number)
        title = block.title if count == 1 else f"turns {block.iteration}–{last.iteration} · ×{count}"
        if before == len(self.nodes):
            self.add("fold", "no call yet" if block.outcome == "running" else "no call")
        inside = tuple(node.id for node in self.nodes[before:])
        self.clusters.append(Cluster(f"c{len(self.clusters)}", title, inside))

    def _row(self, row: Row, block: Block, number: int) -> None:
        if row.state == "said":
            self.add("holder", *(chip.note for chip in row.chips), seq=row.seq)
            return
        replayed = [chip for chip in row.chips if not _own(chip, row)]
        if number or row.fence is not None:
            self._takeover(row, block, number, replayed)
        for group in _concurrent([chip for chip in row.chips if _own(chip, row)], row):
            self.fan([self._call(chip, count) for chip, count in group])
        self._mark(row, number)

    def _takeover(self, row: Row, block: Block, number: int, replayed: Sequence[Chip]) -> None:
        positions = [block.columns[chip.column].position for chip in replayed if chip.state == "replayed"]
        numbers = spans(position for position in positions if position is not None)
        closed = row.fence is None or row.fence.closed
        self.add(
            "holder",
            f"holder {number + 1} {'goes on' if closed else 'took over'}",
            f"{STATES['replayed'].sign} replayed {numbers}" if numbers else "",
            seq=row.seq,
            edge="next" if closed else "fence",
            label="" if closed else "fence",
        )

    def _call(self, chip: Chip, count: int) -> Node:
        name = f"{MODEL_SIGN} model" if chip.kind == "model" else chip.name
        if chip.kind in ("step", "question"):
            name = f"{chip.kind}: {name}"
        declared = f" ({chip.declared})" if chip.declared == "unsafe" else ""
        times = f" ×{count}" if count > 1 else ""
        word = STATES[chip.state]
        became = "" if chip.state in ("ran", "recorded") else f"{word.sign} {word.word}"
        if chip.state == "replayed":
            became = f"{word.sign} {chip.note}"
        lines = tuple(line for line in (name + declared + times, became) if line)
        return Node("", chip.kind, lines, chip.state, self.turn, chip.seq)

    def _mark(self, row: Row, number: int) -> None:
        if row.mark is None:
            return
        match row.mark.kind:
            case "died":
                self.add("lost", f"† holder {number + 1} died here", edge="lost")
            case "fenced":
                self.add("lost", f"⊘ holder {number + 1} stalled", edge="lost")
            case "paused":
                why = row.mark.text.partition(" · record ")[0].partition(" until ")[0]
                self.add("pause", why, state="waiting", seq=row.mark.seq)
            case "failed":
                self.add("pause", "✗ this attempt failed", state="error", seq=row.mark.seq)
            case "commit" | "ended":
                pass

    def _folded(self, blocks: Sequence[Block]) -> None:
        calls = Counter(
            chip.name for block in blocks for row in block.rows for chip in row.chips if _own(chip, row)
        ).most_common(_KINDS_IN_A_FOLD)
        takeovers = sum(row.fence is not None and not row.fence.closed for block in blocks for row in block.rows)
        self.turn = blocks[0].id
        self.add(
            "fold",
            f"turns {blocks[0].iteration}–{blocks[-1].iteration} · ×{len(blocks)}",
            ", ".join(f"{name} ×{count}" for name, count in calls),
            plural(takeovers, "takeover") if takeovers else "",
        )


def _own(chip: Chip, row: Row) -> bool:
    """True for what happened on this row, false for what an earlier holder had recorded."""
    return chip.seq is None or chip.seq > row.seq or chip.state == "running"


def _concurrent(chips: Sequence[Chip], row: Row) -> Iterator[list[tuple[Chip, int]]]:
    """Calls in groups that ran beside each other; in a long turn equal neighbours count as one with ×N."""
    if len(chips) > _CALLS_IN_A_TURN:
        yield from ([pair] for pair in _shortened(chips))
        return
    group: list[Chip] = []
    end = 0
    for chip in chips:
        begun, done = _lasted(chip, row)
        if group and (chip.kind not in ("tool", "step") or begun > end):
            yield [(one, 1) for one in group]
            group, end = [], 0
        group.append(chip)
        end = max(end, done if chip.kind in ("tool", "step") else begun)
    if group:
        yield [(one, 1) for one in group]


def _lasted(chip: Chip, row: Row) -> tuple[int, int]:
    """The records between which a call ran on this row."""
    seq = chip.seq or 0
    if chip.state in ("unknown", "running"):
        return seq, 1 << 62
    return (chip.began if chip.began is not None and chip.began > row.seq else seq), seq


def _shortened(chips: Sequence[Chip]) -> list[tuple[Chip, int]]:
    merged: list[tuple[Chip, int]] = []
    for chip in chips:
        same = merged and (merged[-1][0].name, merged[-1][0].state) == (chip.name, chip.state)
        if same:
            merged[-1] = (merged[-1][0], merged[-1][1] + 1)
        else:
            merged.append((chip, 1))
    if len(merged) <= _CALLS_IN_A_TURN:
        return merged
    half = _CALLS_IN_A_TURN // 2
    left_out = sum(count for _, count in merged[half:-half])
    first = merged[half][0]
    gap = Chip(first.column, first.kind, f"… {left_out} more calls …", None, "ran", "", None)
    return [*merged[:half], (gap, 1), *merged[-half:]]
