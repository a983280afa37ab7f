"""The command line: ``agentbook``."""

from __future__ import annotations

from agentbook.cli.app import main

__all__ = ["main"]
