"""The words that every view uses: states, signs, and one sentence for each term.

A reader who knows nothing of journals meets the same words in the terminal, in a
notebook and in the graph (NOTEBOOK.md, Widgets). Nothing is told by colour alone:
each state has a sign and a word.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import JsonValue

State = Literal[
    "ran", "replayed", "reran", "interrupted", "unknown", "fenced",
    "running", "next", "error", "recorded", "waiting",
]  # fmt: skip
"""How a value was obtained, or why there is none."""


class Word(NamedTuple):
    """A state as people see it.

    Attributes:
        sign: one character before the note.
        word: what the legend says.
        meaning: one sentence for who wants to know.
    """

    sign: str
    word: str
    meaning: str


STATES: dict[State, Word] = {
    "ran": Word("■", "ran", "The call ran here and its outcome is in the journal."),
    "replayed": Word("↺", "replayed from the journal", "Nothing ran: the recorded outcome was handed out again."),
    "reran": Word("↻", "ran again", "The call had no outcome and is declared safe, so it was started once more."),
    "interrupted": Word(
        "⚡",
        "may have happened: not run again",
        "The call was started and nobody saw it end. It is declared unsafe, so it was not started a second time.",
    ),
    "unknown": Word("?", "started, no result", "The call was started here; no result of it is in the journal."),
    "fenced": Word("⊘", "refused by the fence", "A holder that was taken over tried to write; the server refused it."),
    "running": Word("⋯", "running", "The call is running now, as far as anybody knows."),
    "next": Word("◌", "next", "Recorded, and not reached yet by the holder that replays."),
    "error": Word("✗", "failed", "The call ended with an error, which is recorded like any other outcome."),
    "recorded": Word("✓", "recorded", "A fact that the journal holds; it is the same for every holder."),
    "waiting": Word("‖", "waiting", "The run waits here, and no holder is kept while it does."),
}
"""Every state in the order of the legend."""

TERMS: dict[str, str] = {
    "turn": "A turn is one round of the agent: it ends with one commit.",
    "holder": "A holder is the process that works on the run; there is one at a time.",
    "claim": "A claim is the record with which a holder takes the run over: from then on only that holder can write.",
    "record": "A record is one numbered entry of the run's journal; once stored it never changes. "
    "All runs of a book share the numbers, so a run need not begin at 1.",
    "position": "A position is the number of a call within its turn: "
    "when the turn is replayed, the same call stands at the same position.",
    "fence": "A fence is what a new claim does to the older one: "
    "the server refuses everything its holder still tries to write.",
    "commit": "A commit is the one record that ends a turn: what it holds is final.",
    "check": "The check reads the whole journal again and reports every record that breaks a rule.",
}
"""One sentence for each term that nobody understands unexplained."""

MODEL_SIGN = "◆"


def vocabulary() -> dict[str, JsonValue]:
    """Every word and sentence as JSON, so that a front end has none of its own."""
    return {
        "model_sign": MODEL_SIGN,
        "states": {state: {**word._asdict()} for state, word in STATES.items()},
        "terms": {**TERMS},
    }


_LABEL = 80
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, limit: int = _LABEL) -> str:
    """A text that a model or tool chose, on one line, with nothing that a terminal or browser acts on.

    Control characters, direction marks and lone surrogates become escapes; a long text
    keeps its beginning and its end, where names tend to differ; an empty one is said to be.
    """
    if len(text) > limit:
        tail = limit // 3
        text = f"{text[: limit - tail - 1]}…{text[-tail:]}"
    shown = "".join(map(_visible, text)).strip()
    return shown or ("(empty)" if not text else "(blank)")


def _visible(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character in _BIDI or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character


def duration(ms: float) -> str:
    """A duration for people: ``41 ms``, ``1.2 s``, ``2 min 5 s``."""
    if ms < 999.5:
        return f"{ms:.0f} ms" if ms >= 1 else "under 1 ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def spans(numbers: Iterable[int]) -> str:
    """Numbers as people write them: ``0–2, 5``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def plural(count: int, noun: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
