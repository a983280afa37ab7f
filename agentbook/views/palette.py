"""The colours of a graph's nodes: fill, line and text together, readable on light and dark pages."""

from __future__ import annotations

from typing import NamedTuple

from agentbook.views.graph import Node


class Paint(NamedTuple):
    """How a node is drawn."""

    name: str
    fill: str
    line: str
    text: str
    dashed: bool = False


_RAN = Paint("ran", "#e3f4ec", "#0b6e4f", "#07402e")
_REPLAYED = Paint("replayed", "#ffffff", "#2557a7", "#1d4480", dashed=True)
_INTERRUPTED = Paint("interrupted", "#fff1dc", "#a15c00", "#6b3d00")
_UNKNOWN = Paint("unknown", "#fde8f0", "#9a1f4d", "#7a173c", dashed=True)
_ERROR = Paint("error", "#fde8f0", "#9a1f4d", "#7a173c")
_RUNNING = Paint("running", "#e7eefb", "#2557a7", "#1b1f24")
_OTHER = Paint("other", "#f3f5f7", "#68707a", "#1b1f24")

_STATES = {
    "ran": _RAN, "reran": _RAN, "recorded": _RAN, "replayed": _REPLAYED, "interrupted": _INTERRUPTED,
    "unknown": _UNKNOWN, "error": _ERROR, "running": _RUNNING,
}  # fmt: skip


def paint(node: Node) -> Paint:
    """How a node is drawn: by its state, and a lost holder like an unknown outcome."""
    if node.kind == "lost":
        return _ERROR
    return _STATES.get(node.state or "", _OTHER)
