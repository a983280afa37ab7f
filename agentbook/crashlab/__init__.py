"""The crash laboratory: seams used on purpose, for tests, teaching and `agentbook demo`.

Nothing here happens unless it is asked for: a seam without a hook does nothing.

    >>> from agentbook import crashlab
    >>> "after_intent" in crashlab.seams()
    True
"""

from __future__ import annotations

from agentbook.crashlab.faults import Fault, crash, parse_fault, seams, stall
from agentbook.crashlab.processes import HolderProcess, holder

__all__ = ["Fault", "HolderProcess", "crash", "holder", "parse_fault", "seams", "stall"]
