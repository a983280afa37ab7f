"""The timeline of a run: `build` turns a journal into blocks, `delta` says which of them changed.

Pure: a view is a function of records and facts, so it can be built again at any time, by
anybody who can read the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from agentbook.journal.records import Record
from agentbook.views.blocks import Block, to_json
from agentbook.views.facts import RunFacts
from agentbook.views.index import Index, index
from agentbook.views.turns import block
from agentbook.views.words import plural, spans, visible


@dataclass(frozen=True, slots=True)
class Head:
    """What is said of the run as a whole.

    Attributes:
        status: the run's status, as far as it is known.
        headline: the status in words, with where the replay stands.
        detail: how much there is, and whether it was checked.
        alarm: True if something needs a person.
    """

    run: str
    agent: str | None
    status: str
    headline: str
    detail: str
    alarm: bool


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """A run's journal as people see it."""

    head: Head
    blocks: tuple[Block, ...]

    def to_json(self) -> dict[str, JsonValue]:
        """The whole timeline as JSON: what a widget gets when it opens."""
        return cast("dict[str, JsonValue]", to_json(self))

    def __str__(self) -> str:
        from agentbook.views.text import render

        return render(self)

    def __repr__(self) -> str:
        return f"<timeline of {self.head.run}: {plural(len(self.blocks), 'turn')}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from agentbook.views.html import render

        return {"text/html": render(self), "text/plain": str(self)}


def build(records: Sequence[Record], facts: RunFacts | None = None) -> Timeline:
    """The timeline of one (run, step) journal.

    Args:
        records: its records in order, from the first one on.
        facts: what is known beside the journal.

    Example:
        >>> from agentbook.views.text import render
        >>> print(render(build(run.journal())))
    """
    facts = facts or RunFacts()
    found = index(records)
    turns: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        if record.kind != "purged":
            turns.setdefault((record.iteration, record.attempt), []).append(record)
    attempts: dict[int, int] = {}
    for iteration, attempt in turns:
        attempts[iteration] = max(attempt, attempts.get(iteration, 1))
    blocks = tuple(block(turns[turn], found, facts, attempts[turn[0]]) for turn in sorted(turns))
    return Timeline(_head(records, blocks, found, facts), blocks)


def delta(old: Timeline, new: Timeline) -> tuple[Block, ...]:
    """The blocks of a newer timeline that an older one does not have like this, in order."""
    known = {block.id: block for block in old.blocks}
    return tuple(block for block in new.blocks if known.get(block.id) != block)


def _head(records: Sequence[Record], blocks: Sequence[Block], found: Index, facts: RunFacts) -> Head:
    status = facts.status or ("purged" if found.purged is not None else _status(blocks))
    run = facts.run or (records[0].run if records else "")
    details = [f"turn {blocks[-1].iteration}"] if blocks else []
    details.append(plural(len(records), "record"))
    if facts.violations is not None:
        found_wrong = f"check ✗ {plural(facts.violations, 'violation')}"
        details.append(found_wrong if facts.violations else "journal checked ✓")
    return Head(
        run=visible(run, 600),
        agent=None if facts.agent is None else visible(facts.agent),
        status=status,
        headline=_headline(status, blocks, facts),
        detail=" · ".join(details),
        alarm=status in ("halted", "failed") or bool(facts.violations),
    )


def _status(blocks: Sequence[Block]) -> str:
    """The status as far as the journal alone tells it."""
    reached = blocks[-1].outcome if blocks else "lost"
    if reached in ("waiting", "halted", "failed", "completed", "aborted"):
        return reached
    return "running"


def _headline(status: str, blocks: Sequence[Block], facts: RunFacts) -> str:
    words = status.replace("_", " ")
    if not blocks:
        return words
    block = blocks[-1]
    row = block.rows[-1]
    if facts.live is not None and row.state == "live" and row.claim == facts.live.claim:
        return f"{words} · {_replay(block, facts.live.position)}"
    if block.outcome == "lost":
        return f"{words} · nobody works on it now"
    if block.outcome == status and row.mark is not None and row.mark.kind == "paused":
        return f"{words} · {block.headline.rpartition(' · ')[2].removeprefix('halted: ')}"
    return words


def _replay(block: Block, cursor: int) -> str:
    """Where a live holder stands, in the words of NOTEBOOK.md."""
    chips = block.rows[-1].chips
    if any(chip.state == "next" for chip in chips):
        return f"replaying, now at position {cursor}"
    answered = ("replayed", "interrupted")
    positions = [block.columns[chip.column].position for chip in chips if chip.state in answered]
    replayed = spans(position for position in positions if position is not None)
    return f"replayed {replayed}, now live at position {cursor}" if replayed else f"live at position {cursor}"
