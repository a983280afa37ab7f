"""The public names. This list leads: a name is public when it stands here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import agentbook
from agentbook import errors

EXPORTED = {
    "opening a book": ["Book", "Run", "Settings", "current", "load", "open"],
    "authoring": ["Agent", "ModelReply", "ModelRequest", "ScriptedModel", "Tool", "ToolCall", "tool"],
    "errors": [
        "AgentbookError", "AlreadyResolved", "BudgetExceeded", "CallLimit", "ConcurrentUse", "ConfigError",
        "FormatVersion", "HaltInFlight", "HaltTooYoung", "HeldElsewhere", "InputsQueued", "JetStreamDisabled",
        "JournalError", "JournalFull", "JournalTruncated", "JournalUnavailable", "LoopBound", "MissingExtra",
        "NotHalted", "NotStarted", "OutcomeUnknown", "PayloadTooLarge", "ReplayMismatch", "RunCancelledError",
        "RunConflict", "RunEnded", "RunFailed", "RunHalted", "RunNotFound", "RunWaiting", "SagaAborted",
        "ServerError", "ServerNotFound", "ServerTooOld", "StoreUnavailable", "ToolError", "UsageError",
        "ValueNotJournalable",
    ],
    "signals": [
        "Committed", "Fenced", "Paused", "QuestionPending", "RestartLimit", "ResumeHalt", "RunCancelled",
        "Settled", "Signal", "Sleeping", "Stale",
    ],
    "about itself": ["__version__"],
}  # fmt: skip
NAMES = sorted(name for group in EXPORTED.values() for name in group)

HEAVY = {"nats", "pydantic", "pandas", "numpy", "IPython", "ipywidgets", "anywidget", "graphviz", "rich", "typer"}


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_exported_names_are_these_and_no_others() -> None:
    assert sorted([*agentbook.__all__, "open"]) == NAMES


def test_a_star_import_does_not_hide_the_builtin_open() -> None:
    assert python("from agentbook import *; print(open is __builtins__.open)") == "True\n"


def test_every_exception_is_exported() -> None:
    assert sorted(EXPORTED["errors"] + EXPORTED["signals"]) == sorted(errors.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(agentbook, name)
    assert value.__doc__
    if name != "__version__":
        assert value.__module__.split(".")[0] == "agentbook"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        _ = agentbook.opne  # type: ignore[attr-defined]


def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    assert set(NAMES) <= set(dir(agentbook))


def test_import_loads_nothing_heavy() -> None:
    loaded = set(python("import sys, agentbook; agentbook.Settings, agentbook.RunFailed; print(*sys.modules)").split())
    assert not loaded & HEAVY
    assert not any(name.startswith("agentbook.journal") for name in loaded)


def test_import_takes_less_than_a_quarter_of_a_second() -> None:
    code = "from time import perf_counter as now; t = now(); import agentbook; print(now() - t)"
    assert min(float(python(code)) for _ in range(5)) < 0.25
