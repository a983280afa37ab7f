"""The live view of a run: one follower for each run, however many widgets show it."""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from agentbook.book import Book, Run
from agentbook.notebook.live import LiveTimeline
from agentbook.notebook.widgets import TimelineWidget, display_bundle

log = logging.getLogger(__name__)

_followers: WeakKeyDictionary[Book, dict[str, LiveTimeline]] = WeakKeyDictionary()


def show(run: Run) -> Future[None]:
    """Display a live timeline of a run here.

    When the run ends, the display's static part is replaced, so that a saved notebook shows how it ended.

    Returns:
        A future that is done once that has happened.
    """
    live = _follower(run)
    widget = TimelineWidget(run, live)
    place = uuid.uuid4().hex
    display_bundle(widget.bundle(), place)
    ended = live.on_end(lambda: display_bundle(widget.bundle_of(live.timeline), place, update=True))
    replaced = run.book.service.submit(ended)
    replaced.add_done_callback(_report)
    return replaced


def _follower(run: Run) -> LiveTimeline:
    return _followers.setdefault(run.book, {}).setdefault(run.id, LiveTimeline(run.book, run.id))


def _report(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("a run's display was not brought up to date: %s", error)
