"""State that grows without quadratic bytes: full, or what a list gained (JOURNAL.md, State).

A commit stores either the whole state (``snapshot`` is null), or
``{"base": sequence, "at": "" or "/key", "append": [...]}`` over the state of the commit at
``base``. A full one is written once the records since the last full one outweigh it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from agentbook.errors import JournalTruncated
from agentbook.journal.records import Commit


@dataclass(frozen=True, slots=True)
class StoredState:
    """The `state` and `snapshot` fields of a commit."""

    state: JsonValue
    snapshot: int | None


def store(old: JsonValue, new: JsonValue, *, base: int | None, snapshot: int | None, bytes_since: int) -> StoredState:
    """Choose how a commit stores `new`, given the state `old` of the commit at `base`.

    Args:
        old: the state before, as it is stored.
        new: the state to store.
        base: sequence of the last advancing commit, or None.
        snapshot: sequence of the last full state, or None.
        bytes_since: bytes of the records since then.
    """
    if base is None or snapshot is None or bytes_since > len(to_json(new)):
        return StoredState(new, None)
    grown = _grown(old, new)
    if grown is None:
        return StoredState(new, None)
    at, gained = grown
    return StoredState({"base": base, "at": at, "append": gained}, snapshot)


def restore(old: JsonValue, commit: Commit) -> JsonValue:
    """The state after a commit, given the state before it.

    Raises:
        JournalTruncated: the commit builds on a state that is not there.
    """
    if commit.snapshot is None:
        return commit.state
    delta = cast("dict[str, JsonValue]", commit.state)
    gained = cast("list[JsonValue]", delta["append"])
    at = str(delta["at"])
    if at == "" and isinstance(old, list):
        return [*old, *gained]
    if isinstance(old, dict) and isinstance(grown := old.get(at[1:]), list):
        return {**old, at[1:]: [*grown, *gained]}
    raise JournalTruncated(
        f"the state of run {commit.run} at record {commit.seq} builds on record {delta['base']}, which is not there"
    )


def copied(value: JsonValue) -> JsonValue:
    """A copy: what is handed out may be changed in place, what is folded may not."""
    return cast("JsonValue", from_json(to_json(value))) if isinstance(value, dict | list) else value


def _grown(old: JsonValue, new: JsonValue) -> tuple[str, list[JsonValue]] | None:
    """Where a list gained items at its end and nothing else changed, and which; None otherwise."""
    if isinstance(old, list) and isinstance(new, list):
        gained = _gained(old, new)
        return None if gained is None else ("", gained)
    if not isinstance(old, dict) or not isinstance(new, dict) or old.keys() != new.keys():
        return None
    changed = [key for key in new if to_json(old[key]) != to_json(new[key])]
    # An unchanged state is one whose list gained nothing.
    changed = changed or [key for key in new if isinstance(new[key], list)][:1]
    if len(changed) != 1:
        return None
    before, after = old[changed[0]], new[changed[0]]
    if not isinstance(before, list) or not isinstance(after, list):
        return None
    gained = _gained(before, after)
    return None if gained is None else (f"/{changed[0]}", gained)


def _gained(before: list[JsonValue], after: list[JsonValue]) -> list[JsonValue] | None:
    # Bytes are compared, not objects: a caller may have changed an item in place.
    if len(after) < len(before) or to_json(after[: len(before)]) != to_json(before):
        return None
    return after[len(before) :]
