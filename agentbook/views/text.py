"""The timeline as plain text, for a terminal and for ``text/plain``."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from agentbook.views.blocks import Block, Chip, Row
from agentbook.views.timeline import Timeline
from agentbook.views.words import MODEL_SIGN, STATES, State, plural

WIDTH = 100
_NAME = 26
_WHERE = 6
_EDGE = 20


def render(timeline: Timeline, *, width: int = WIDTH, fold: bool | None = None) -> str:
    """The timeline as text of at most `width` columns.

    Args:
        timeline: what `timeline.build` returned.
        width: columns of the terminal.
        fold: show turns without incident as one line; None folds them in a run of more than three turns.

    Example:
        >>> print(render(build(records)))
    """
    head = timeline.head
    names = " · ".join(part for part in (head.run, head.agent, head.headline) if part)
    lines = [*_wrapped(names, "", width), head.detail]
    fold = len(timeline.blocks) > 3 if fold is None else fold
    for block in timeline.blocks:
        if fold and block.quiet and block is not timeline.blocks[-1]:
            lines += _wrapped(f"{block.title} · {block.line}", "", width)
        else:
            lines += ["", *_block(block, width)]
    return "\n".join(line.rstrip() for line in lines)


def legend(timeline: Timeline) -> str:
    """What the signs in this timeline mean, one a line."""
    used = {chip.state for block in timeline.blocks for row in block.rows for chip in row.chips}
    return "\n".join(f"{word.sign} {word.word}: {word.meaning}" for state, word in STATES.items() if state in used)


def _block(block: Block, width: int) -> Iterator[str]:
    yield from _wrapped(f"{block.title} · {block.headline}", "", width)
    for row in block.rows:
        if row.fence is not None:
            yield from _wrapped(f"── {row.fence.text}", "     ", width, first="  ")
        yield from _row(block, row, width)


def _row(block: Block, row: Row, width: int) -> Iterator[str]:
    yield from _wrapped(f"{row.holder} · {row.note}", "    ", width, first="  ")
    hidden = len(row.chips) - 2 * _EDGE
    for at, chip in enumerate(row.chips):
        if hidden > 0 and _EDGE <= at < _EDGE + hidden:
            if at == _EDGE:
                yield f"        … {plural(hidden, 'more call')} …"
            continue
        where = block.columns[chip.column].position
        left = f"    {'' if where is None else where:>{_WHERE - 4}}  {_padded(_named(chip), _NAME)} "
        left += f"{chip.declared or '':<7}"
        yield from _wrapped(f"{_sign(chip.state)} {chip.note}", " " * (_columns(left) + 2), width, first=left)
    if row.mark is not None:
        yield from _wrapped(row.mark.text, " " * (_WHERE + 4), width, first=" " * (_WHERE + 2))


def _sign(state: State) -> str:
    return STATES[state].sign


def _named(chip: Chip) -> str:
    match chip.kind:
        case "model":
            return f"{MODEL_SIGN} {chip.name}"
        case "tool" | "wait" | "saga":
            return chip.name
        case "step" | "question":
            return f"{chip.kind} {chip.name}"
        case "input":
            return chip.name


def _wrapped(text: str, indent: str, width: int, *, first: str | None = None) -> list[str]:
    """A text in lines of so many terminal columns; `textwrap` counts characters, which may be two columns wide."""
    line = indent if first is None else first
    room, empty, lines = max(width, _columns(line) + 24), True, list[str]()
    for word in text.split():
        while True:
            space = 0 if empty else 1
            if _columns(line) + space + _columns(word) <= room:
                line, empty = line + " " * space + word, False
                break
            if not empty:
                lines.append(line)
                line, empty = indent, True
                continue
            fits = _fitting(word, room - _columns(line))
            lines.append(line + word[:fits])
            line, word = indent, word[fits:]
    return [*lines, line]


def _fitting(word: str, columns: int) -> int:
    """How many characters of a word fit, at least one."""
    count = 1
    while count < len(word) and _columns(word[: count + 1]) <= columns:
        count += 1
    return count


def _padded(text: str, width: int) -> str:
    """A text cut or filled to a number of terminal columns."""
    if _columns(text) <= width:
        return text + " " * (width - _columns(text))
    while _columns(text) >= width:
        text = text[:-1]
    return text + "…" + " " * (width - 1 - _columns(text))


def _columns(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
