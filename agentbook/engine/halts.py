"""What halts a run now, read from its journals."""

from __future__ import annotations

from agentbook.broker.connection import Connection
from agentbook.errors import JournalError, ResumeHalt
from agentbook.journal.halts import open_halts, standing_halt
from agentbook.journal.load import FoldCache, load
from agentbook.protocol.snapshot import RunSnapshot


async def halts_of(connection: Connection, run: RunSnapshot) -> list[ResumeHalt] | None:
    """The calls of a halted run of which a person must say how they ended.

    Returns:
        An empty list if something else halts it; None if each of them is resolved, and it is about to go on.
    """
    found: list[ResumeHalt] = []
    resolved = True
    for name, step in run.steps.items():
        if step.status != "halted":
            continue
        try:
            fold = await load(connection, run.run, name, step.head, FoldCache())
        except JournalError:
            # The journal itself is what halts it.
            resolved = False
            continue
        halts = open_halts(fold)
        resolved = resolved and not halts and standing_halt(fold) is not None
        found += halts
    return None if resolved else found
