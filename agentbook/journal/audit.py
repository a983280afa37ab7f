"""The audit of a stored journal: `check`, and what only the store can tell (JOURNAL.md, Check)."""

from __future__ import annotations

from agentbook.broker.connection import Connection
from agentbook.broker.names import MEMO
from agentbook.errors import JournalError, JournalTruncated
from agentbook.journal.check import CheckReport, Violation, check
from agentbook.journal.fold import Fold
from agentbook.journal.load import read_journal, read_memo
from agentbook.journal.records import Record
from agentbook.journal.spill import filled


async def audit(
    connection: Connection, run: str, step: str, *, turns: int | None = None, settled: bool = True
) -> CheckReport:
    """Audit the journal of one step: its records, its large values and its memo.

    Args:
        turns: how many iterations the engine has counted, if known; read it before calling.
        settled: as for `check`.
    """
    remembered = await connection.last(MEMO, connection.names.memo(run, step))
    stored = await read_journal(connection, run, step)
    records: list[Record] = []
    missing: list[Violation] = []
    for record in stored:
        try:
            records.append(await filled(connection, record))
        except JournalTruncated as error:
            records.append(record)
            missing.append(Violation("large values present", record.seq, str(error), (record,)))
    report = check(records, turns=turns, settled=settled)
    if not report or missing:
        # What a memo says of a broken journal proves nothing.
        return CheckReport(report.records, tuple(sorted((*missing, *report.violations), key=lambda found: found.seq)))
    memo = await read_memo(connection, run, step, remembered)
    found = () if memo is None else _memo(records, memo.upto, memo.claim, memo.n, memo.fold)
    return CheckReport(report.records, found)


def _memo(records: list[Record], upto: int, claim: str, n: int, fold: Fold) -> tuple[Violation, ...]:
    """A memo of this journal must fold on to what the whole journal folds to."""
    last = next((record for record in records if record.seq == upto), None)
    if last is None or (last.claim, last.n) != (claim, n):
        return ()  # of another journal, or newer than what was read: never used
    whole = Fold()
    try:
        for record in records:
            whole.add(record, len(record.encode()))
            if record.seq > upto:
                fold.add(record, len(record.encode()))
    except JournalError as error:
        return (Violation("memo and rest fold to the whole", upto, str(error), (last,)),)
    # How many bytes lie since the last full state is a matter of cost, and counts spilled values differently.
    fold.bytes_since = whole.bytes_since
    if fold == whole:
        return ()
    names = [name for name in Fold.__slots__ if getattr(fold, name) != getattr(whole, name)]
    return (Violation("memo and rest fold to the whole", upto, f"it differs in {', '.join(names)}", (last,)),)
