"""What a person says of a halted call, checked before anything is written."""

from __future__ import annotations

import getpass
import os

from agentbook import codec
from agentbook.errors import UsageError
from agentbook.journal.endings import error_info
from agentbook.journal.records import ErrorInfo
from agentbook.journal.resolve import Answer

NOT_GIVEN: object = object()
"""Stands for an argument that was left out, where None is a value."""


def answer_of(
    value: object, error: BaseException | str | None, did_not_happen: bool, by: str, evidence: str | None
) -> Answer:
    """One answer out of the three there are.

    Raises:
        UsageError: none of them, or several.
        ValueNotJournalable: the value has no stored form.
    """
    if [value is not NOT_GIVEN, error is not None, did_not_happen].count(True) != 1:
        raise UsageError(
            "say exactly one thing: value=… (it happened and returned this), error=… (it failed) or "
            "did_not_happen=True (it runs again)"
        )
    if did_not_happen:
        return Answer("did_not_happen", by, evidence=evidence)
    if error is not None:
        info = ErrorInfo(type="Failed", message=error) if isinstance(error, str) else error_info(error)
        return Answer("failed", by, error=info, evidence=evidence)
    return Answer("happened", by, value=codec.encode(value, "value"), evidence=evidence)


def person() -> str:
    """Who uses this process, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"process {os.getpid()}"
