"""A run as one HTML page that needs nothing else: for mail, for a wiki, for `agentbook demo --html`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from agentbook.errors import MissingExtra
from agentbook.views import html
from agentbook.views.graph import RunGraph
from agentbook.views.timeline import Timeline

_STYLE = """
body{margin:0 auto;max-width:1120px;padding:24px;font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
background:#fff;color:#1b1f24}h1{font-size:20px;margin:0 0 4px}h2{font-size:15px;margin:28px 0 8px}
p{margin:4px 0}.graph{overflow:auto;border:1px solid #d7dce2;border-radius:8px;padding:12px;background:#fff}
.graph svg{max-width:100%;height:auto}pre{overflow:auto;border:1px solid #d7dce2;border-radius:8px;padding:12px}
li.yes::marker{content:"✓  "}li.no::marker{content:"✗  "}li.no{font-weight:600;color:#9a1f4d}
@media (prefers-color-scheme:dark){body{background:#15181c;color:#e8eaed}pre{border-color:#343a42}
li.no{color:#ff8fb5}}
"""


def page(
    title: str,
    timeline: Timeline,
    graph: RunGraph,
    *,
    paragraphs: Sequence[str] = (),
    claims: Sequence[tuple[bool, str]] = (),
    ledger: Sequence[str] = (),
) -> str:
    """A self-contained page: no script, nothing loaded.

    Args:
        title: the heading.
        paragraphs: what happened, in words.
        claims: what must hold, and whether it did.
        ledger: lines counted outside the journal.
    """
    return "".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
            f"<h1>{escape(title)}</h1>",
            *(f"<p>{escape(text)}</p>" for text in paragraphs),
            _list(claims),
            f"<h2>Timeline</h2>{html.render(timeline, fold=False)}",
            f"<h2>What happened, as a graph</h2>{_picture(graph)}",
            f"<h2>Counted outside the journal</h2><pre>{escape(chr(10).join(ledger))}</pre>" if ledger else "",
            "</body></html>",
        ]
    )


def _list(claims: Sequence[tuple[bool, str]]) -> str:
    items = "".join(f'<li class="{"yes" if held else "no"}">{escape(text)}</li>' for held, text in claims)
    return f"<h2>Guarantees</h2><ul>{items}</ul>" if claims else ""


def _picture(graph: RunGraph) -> str:
    """The graph as SVG; where nothing can draw it, as text."""
    try:
        svg = graph.to_svg()
    except MissingExtra:
        svg = None
    if svg is None:
        return f"<pre>{escape(str(graph))}</pre>"
    return f'<div class="graph">{svg[svg.index("<svg") :]}</div>'
