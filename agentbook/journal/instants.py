"""Instants as they are stored: RFC 3339 in UTC, for people; never used to put anything in order."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """This instant, in milliseconds, for example ``2026-03-01T09:30:00.125Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
