"""The live view of a run: one follower for each run, however many widgets show it.

A display is two outputs: the widget, and the timeline as it stands, which a saved notebook shows
where no kernel runs. In one output they would compete: JupyterLab prefers the widget, also when
there is none any more, and says "Loading widget…" for ever; and to replace the static part
would make the widget anew under its reader's hands.
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from agentbook.book import Book, Run
from agentbook.notebook.live import LiveTimeline
from agentbook.notebook.widgets import TimelineWidget, display_bundle, display_widget
from agentbook.views.timeline import Timeline

log = logging.getLogger(__name__)

_SAVED = "agentbook-saved"
_OUTPUT = ".jp-OutputArea-child"
_ONE_OF_THE_TWO = (
    f"{_OUTPUT}:has(.agentbook-run):not(:has(.{_SAVED})) + {_OUTPUT}:has(.{_SAVED}),"
    f"{_OUTPUT}:not(:has(.agentbook-run)):has(+ {_OUTPUT} .{_SAVED}){{display:none}}"
)

_followers: WeakKeyDictionary[Book, dict[str, LiveTimeline]] = WeakKeyDictionary()


def show(run: Run) -> Future[None]:
    """Display a live timeline of a run here.

    When the run ends, the display's static part is replaced, so that a saved notebook shows how it ended.

    Returns:
        A future that is done once that has happened.
    """
    live = _follower(run)
    display_widget(TimelineWidget(run, live))
    place = uuid.uuid4().hex
    display_bundle(_saved(run.timeline), place)
    ended = live.on_end(lambda: display_bundle(_saved(live.timeline), place, update=True))
    replaced = run.book.service.submit(ended)
    replaced.add_done_callback(_report)
    return replaced


def _saved(timeline: Timeline) -> dict[str, object]:
    """A timeline as it stands, which hides while the widget before it is there, and hides that where it is not."""
    bundle = timeline._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage] - IPython's name for it
    html = f'<div class="{_SAVED}"><style>{_ONE_OF_THE_TWO}</style>{bundle["text/html"]}</div>'
    return {**bundle, "text/html": html}


def _follower(run: Run) -> LiveTimeline:
    return _followers.setdefault(run.book, {}).setdefault(run.id, LiveTimeline(run.book, run.id))


def _report(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("a run's display was not brought up to date: %s", error)
