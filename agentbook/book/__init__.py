"""The book: the composition root, and the only place where the parts are wired."""

from __future__ import annotations

from agentbook.book.book import Book, current, open  # noqa: A004 - said as `agentbook.open`, like `gzip.open`
from agentbook.book.files import LoadedRun, load
from agentbook.book.info import RunInfo, RunResult
from agentbook.book.run import Run

__all__ = ["Book", "LoadedRun", "Run", "RunInfo", "RunResult", "current", "load", "open"]
