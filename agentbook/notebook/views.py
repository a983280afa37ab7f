"""The live view of a run: one follower for each run, however many widgets show it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from agentbook.book import Book, Run
from agentbook.book.display import Bundle
from agentbook.notebook.live import LiveTimeline
from agentbook.notebook.widgets import TimelineWidget

_followers: WeakKeyDictionary[Book, dict[str, LiveTimeline]] = WeakKeyDictionary()


def follower(run: Run) -> LiveTimeline:
    """What feeds the views of a run."""
    return _followers.setdefault(run.book, {}).setdefault(run.id, LiveTimeline(run.book, run.id))


def live_timeline(run: Run) -> TimelineWidget:
    """A new live timeline of a run."""
    return TimelineWidget(run, follower(run))


def live_bundle(run: Run) -> Bundle:
    """What a notebook with the extension shows of a run."""
    return live_timeline(run).bundle()
