"""Prints where a test run spent its time, above pytest's closing line.

Tests are counted by folder. What came before pytest is told by the environment:
`AGENTBOOK_MAKE_STARTED` (seconds since the epoch) and `AGENTBOOK_INSTALL_SECONDS`.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

_STAGES = {
    "tests/unit": "unit",
    "tests/live": "live",
    "tests/crash": "crash",
    "tests/e2e": "browser",
    "tests/packaging": "packaging",
    "notebooks": "notebooks",
}
_ORDER = ["install", "static", *_STAGES.values(), "other"]


def stage_of(nodeid: str) -> str:
    """The stage a test belongs to, by its folder."""
    return next((stage for folder, stage in _STAGES.items() if nodeid.startswith(folder + "/")), "other")


def share_line(seconds: dict[str, float]) -> str:
    """One line: each stage's seconds and its share of them all."""
    whole = sum(seconds.values()) or 1.0
    stages = sorted((stage for stage in seconds if seconds[stage] >= 0.05), key=_ORDER.index)
    return "time: " + " · ".join(f"{stage} {seconds[stage]:.1f} s ({seconds[stage] / whole:.0%})" for stage in stages)


def before_pytest(environ: dict[str, str], now: float) -> dict[str, float]:
    """Seconds spent before pytest began, by stage."""
    seconds: dict[str, float] = {}
    if "AGENTBOOK_INSTALL_SECONDS" in environ:
        seconds["install"] = float(environ["AGENTBOOK_INSTALL_SECONDS"])
    if "AGENTBOOK_MAKE_STARTED" in environ:
        seconds["static"] = max(0.0, now - float(environ["AGENTBOOK_MAKE_STARTED"]))
    return seconds


class Shares:
    """Sums the durations of set-up, call and tear-down of every test."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter(before_pytest(dict(os.environ), time.time()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[stage_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(share_line(self.seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Take part, except in the workers of xdist, whose reports reach the controller too."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Shares(), "shares")
