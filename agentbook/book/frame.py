"""A run's records as a table: one row a record, tidy columns (API.md, run.frame)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentbook.errors import MissingExtra
from agentbook.journal.records import RECORD_KINDS, Record

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "seq", "at", "iteration", "attempt", "position", "kind", "name", "declared", "ms", "claim", "worker", "key",
    "value",
)  # fmt: skip


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """The records as a pandas DataFrame.

    Columns: `seq` (index); `at` (UTC instant); `iteration`, `attempt`, `position` (nullable integers); `kind`,
    `declared` (categories); `name`; `ms` (float, milliseconds); `claim`, `worker`; `key`; `value` (what the
    record carries: a response, an input, an output, an error, an action).

    Raises:
        MissingExtra: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("run.frame()", "notebook") from None
    workers: dict[str, str] = {}
    rows: list[dict[str, object]] = []
    for record in records:
        if record.kind == "claim":
            workers[record.claim] = record.worker
        rows.append(_row(record, workers.get(record.claim)))
    table = pd.DataFrame(rows, columns=list(COLUMNS)).set_index("seq")
    table["at"] = pd.to_datetime(table["at"], utc=True)
    for column in ("iteration", "attempt", "position"):
        table[column] = table[column].astype("Int64")
    table["ms"] = table["ms"].astype("float64")
    table["kind"] = pd.Categorical(table["kind"], categories=list(RECORD_KINDS))
    table["declared"] = pd.Categorical(table["declared"], categories=["safe", "unsafe"])
    return table


def _row(record: Record, worker: str | None) -> dict[str, object]:
    return {
        "seq": record.seq,
        "at": record.at,
        "iteration": record.iteration,
        "attempt": record.attempt,
        "position": getattr(record, "position", None),
        "kind": record.kind,
        "name": getattr(record, "name", None) or getattr(record, "model", None),
        "declared": getattr(record, "replay", None),
        "ms": getattr(record, "ms", None),
        "claim": record.claim,
        "worker": worker,
        "key": getattr(record, "key", None),
        "value": _value(record),
    }


def _value(record: Record) -> object:
    for field in (
        "response",
        "input",
        "output",
        "error",
        "interrupted",
        "reused",
        "content",
        "value",
        "action",
        "reason",
    ):
        if field in record.model_fields_set:
            return getattr(record, field)
    return None
