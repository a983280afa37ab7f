"""The timeline as static HTML: no script, nothing loaded, readable with its style stripped.

It is what a reopened notebook, GitHub and nbconvert show. Everything that a model or a tool
chose is escaped: they are hostile. Without styles it is still a table whose columns are
positions and whose rows are holders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from agentbook.views.blocks import Block, Chip, Fence, Row
from agentbook.views.style import SCOPE, stylesheet
from agentbook.views.timeline import Head, Timeline
from agentbook.views.words import MODEL_SIGN, STATES, TERMS, plural

_SHOWN_IN_FULL = 3
_MAX_GRIDS = 24
_MAX_COLUMNS = 32
_MAX_LINES = 60
_TERM = re.compile(r"\b(claim|record|commit|fence|position|check)\b|\b(check)(?=ed\b)")


def render(timeline: Timeline, *, fold: bool | None = None) -> str:
    """The timeline as one self-contained HTML fragment.

    Args:
        timeline: what `timeline.build` returned.
        fold: fold turns without incident; None folds them in a run of more than three turns.
    """
    fold = len(timeline.blocks) > _SHOWN_IN_FULL if fold is None else fold
    head = timeline.head
    return "".join(
        [
            f'<div class="{SCOPE}" role="figure" aria-label="Run {escape(head.run)}"><style>{stylesheet()}</style>',
            _head(head),
            _legend(timeline),
            *_turns(timeline.blocks, fold),
            _glossary(),
            "</div>",
        ]
    )


def _head(head: Head) -> str:
    agent = "" if head.agent is None else f'<span class="ab-dim"><bdi>{escape(head.agent)}</bdi></span> '
    alarm = " ab-alarm" if head.alarm else ""
    return (
        f'<div class="ab-head"><b><bdi>{escape(head.run)}</bdi></b> {agent}'
        f'<span class="ab-state{alarm}">● {_terms(head.headline)}</span><span class="ab-push"></span>'
        f' <span class="ab-dim">{_terms(head.detail)}</span></div>'
    )


def _legend(timeline: Timeline) -> str:
    used = {chip.state for block in timeline.blocks for row in block.rows for chip in row.chips}
    items = "".join(
        f'<span title="{escape(word.meaning)}"><i class="ab-of-{state}">{word.sign}</i> {word.word}</span> '
        for state, word in STATES.items()
        if state in used
    )
    return f'<div class="ab-legend">{items}</div>' if items else ""


def _glossary() -> str:
    words = "".join(f"<dt>{term}</dt><dd>{escape(meaning)}</dd>" for term, meaning in TERMS.items())
    return f'<details class="ab-words"><summary>what these words mean</summary><dl>{words}</dl></details>'


def _turns(blocks: Sequence[Block], fold: bool) -> Iterator[str]:
    grids = [block for block in blocks if not (fold and block.quiet)]
    kept = {block.id for block in [*grids[-_MAX_GRIDS:], *blocks[-1:]]}
    folded: list[Block] = []
    for block in blocks:
        if block.id not in kept:
            folded.append(block)
            continue
        yield from _folded(folded)
        folded.clear()
        title = f"{escape(block.title)} · <em>{_terms(block.headline)}</em>"
        yield f'<section class="ab-turn"><h4 class="ab-title">{title}</h4>{_grid(block)}</section>'
    yield from _folded(folded)


def _folded(blocks: Sequence[Block]) -> Iterator[str]:
    if not blocks:
        return
    first, last = blocks[0], blocks[-1]
    if len(blocks) == 1:
        summary = f"{escape(first.title)} · <em>{escape(first.headline)}</em> · {escape(first.line)}"
    else:
        quiet = all(block.quiet for block in blocks)
        how = "each committed without incident" if quiet else "folded; the newest incidents are shown"
        summary = (
            f"turns {first.iteration}–{last.iteration} · <em>{plural(len(blocks), 'turn')}</em> {how} · "
            f"record {first.first}–{last.last}"
        )
    if len(blocks) <= _SHOWN_IN_FULL:
        body = "".join(
            (f'<p class="ab-title">{escape(b.title)}</p>' if len(blocks) > 1 else "") + _grid(b) for b in blocks
        )
    else:
        body = f'<ol class="ab-lines">{_lines(blocks)}</ol>'
    yield f'<details class="ab-turn"><summary>{summary}</summary>{body}</details>'


def _lines(blocks: Sequence[Block]) -> str:
    half = _MAX_LINES // 2
    shown = blocks if len(blocks) <= _MAX_LINES else [*blocks[:half], None, *blocks[-half:]]
    more = f"<li>… {plural(len(blocks) - 2 * half, 'turn')} more …</li>"
    return "".join(
        more if block is None else f"<li>{escape(block.title)} · {escape(block.headline)} · {escape(block.line)}</li>"
        for block in shown
    )


def _grid(block: Block) -> str:
    columns = _shown_columns(len(block.columns))
    hidden = len(block.columns) - len(columns) + 1
    header = "".join(
        f'<th class="ab-pos">… {hidden} more …</th>'
        if column is None
        else f'<th class="ab-pos" scope="col">{_terms(block.columns[column].label)}</th>'
        for column in columns
    )
    rows = "".join(_row(row, columns) for row in block.rows)
    return (
        f'<div class="ab-scroll"><table class="ab-grid"><thead><tr><td></td>{header}<td></td></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _shown_columns(count: int) -> list[int | None]:
    """Column indexes, with None where the middle of a long turn is left out."""
    if count <= _MAX_COLUMNS:
        return list(range(count))
    half = _MAX_COLUMNS // 2
    return [*range(half), None, *range(count - half, count)]


def _row(row: Row, columns: Sequence[int | None]) -> str:
    fence = "" if row.fence is None else _fence(row.fence, len(columns) + 2)
    live = " ab-live" if row.state == "live" else ""
    who = f"<b><bdi>{escape(row.holder)}</bdi></b> <small>{_terms(row.note)}</small>"
    return f'{fence}<tr><th class="ab-who{live}" scope="row">{who}</th>{"".join(_cells(row, columns))}</tr>'


def _cells(row: Row, columns: Sequence[int | None]) -> Iterator[str]:
    chips = {chip.column: chip for chip in row.chips}
    end = max(chips, default=-1)
    for at, column in enumerate(columns):
        if column is None:
            hidden = (columns[at - 1] or 0, columns[at + 1] or 0)
            inside = sum(hidden[0] < chip.column < hidden[1] for chip in row.chips)
            yield f'<td class="ab-more">{f"… {inside} more …" if inside else ""}</td>'
        elif column > end:
            yield _mark(row, len(columns) + 1 - at)
            return
        else:
            yield _chip(chips[column]) if column in chips else "<td></td>"
    yield _mark(row, 1)


def _mark(row: Row, span: int) -> str:
    if row.mark is None:
        return f'<td colspan="{span}"></td>'
    kind = "fence-mark" if row.mark.kind == "fenced" else row.mark.kind
    return f'<td class="ab-mark ab-{kind}" colspan="{span}">{_terms(row.mark.text)}</td>'


def _chip(chip: Chip) -> str:
    word = STATES[chip.state]
    sign = f"{MODEL_SIGN} " if chip.kind == "model" else f"{chip.kind} " if chip.kind in ("step", "question") else ""
    declared = f" {chip.declared}" if chip.declared else ""
    cursor = " ab-cursor" if chip.cursor else ""
    record = "" if chip.seq is None else f"Record {chip.seq}. "
    key = "" if chip.key is None else f" Key: {chip.key}"
    return (
        f'<td class="ab-chip ab-{chip.state}{cursor}" title="{escape(record + word.meaning + key)}">'
        f"{sign}<b><bdi>{escape(chip.name)}</bdi></b>{declared} <small>{word.sign} {escape(chip.note)}</small></td>"
    )


def _fence(fence: Fence, span: int) -> str:
    closed = " ab-closed" if fence.closed else ""
    return f'<tr><td class="ab-fence{closed}" colspan="{span}"><span><span>{_terms(fence.text)}</span></span></td></tr>'


def _terms(text: str) -> str:
    """Escaped text in which the first use of each term says what it means."""
    said: set[str] = set()

    def explain(match: re.Match[str]) -> str:
        term = match[1] or match[2]
        if term in said:
            return term
        said.add(term)
        return f'<abbr title="{escape(TERMS[term])}">{term}</abbr>'

    return _TERM.sub(explain, escape(text))
