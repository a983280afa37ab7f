"""Write a durable agent in a notebook cell: kill the kernel mid-turn, run the cell again, nothing repeats.

    import agentbook
    from agentbook import Agent, ScriptedModel, ToolCall, tool

    @tool(replay="safe")
    async def search(query: str) -> list[str]: ...

    model = ScriptedModel([ToolCall("search", {"query": "42"}), "Found it."])
    agent = Agent("clerk", model=model, tools=[search])

    with agentbook.open() as book:
        print(book.start(agent, "where is order 42?", run_id="order-42").wait())

Each name below is loaded when it is first used, so that ``import agentbook`` costs a few
milliseconds: it loads neither nats nor the record models, nor anything of a notebook.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agentbook.errors import *

if TYPE_CHECKING:
    from agentbook.authoring import Agent, Tool, tool
    from agentbook.book import Book, Run, current, load
    from agentbook.book import open as open  # noqa: A004 - said as `agentbook.open`, like `gzip.open`
    from agentbook.journal.calls import ToolCall
    from agentbook.models import ModelReply, ModelRequest, ScriptedModel
    from agentbook.settings import Settings

    __version__: str

__all__ = [
    "Agent", "AgentbookError", "AlreadyResolved", "Book", "BudgetExceeded", "CallLimit", "Committed",
    "ConcurrentUse", "ConfigError", "Fenced", "FormatVersion", "HaltInFlight", "HaltTooYoung",
    "HeldElsewhere", "InputsQueued", "JetStreamDisabled", "JournalError", "JournalFull",
    "JournalTruncated", "JournalUnavailable", "LoopBound", "MissingExtra", "ModelReply", "ModelRequest",
    "NotHalted", "NotStarted", "OutcomeUnknown", "Paused", "PayloadTooLarge", "QuestionPending",
    "ReplayMismatch", "RestartLimit", "ResumeHalt", "Run", "RunCancelled", "RunCancelledError",
    "RunConflict", "RunEnded", "RunFailed", "RunHalted", "RunNotFound", "RunWaiting", "SagaAborted",
    "ScriptedModel", "ServerError", "ServerNotFound", "ServerTooOld", "Settings", "Settled", "Signal",
    "Sleeping", "Stale", "StoreUnavailable", "Tool", "ToolCall", "ToolError", "UsageError",
    "ValueNotJournalable", "__version__", "current", "load", "tool",
]  # fmt: skip
# `open` is not among them: ``from agentbook import *`` must not hide the builtin.

_HOME = {
    "Agent": "agentbook.authoring",
    "Book": "agentbook.book",
    "ModelReply": "agentbook.models",
    "ModelRequest": "agentbook.models",
    "Run": "agentbook.book",
    "ScriptedModel": "agentbook.models",
    "Settings": "agentbook.settings",
    "Tool": "agentbook.authoring",
    "ToolCall": "agentbook.journal.calls",
    "current": "agentbook.book",
    "load": "agentbook.book",
    "load_ipython_extension": "agentbook.notebook",
    "open": "agentbook.book",
    "tool": "agentbook.authoring",
    "unload_ipython_extension": "agentbook.notebook",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("agentbook")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'agentbook' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
