# pyright: basic
"""The widgets: the one place that meets anywidget and traitlets, which are untyped."""

from __future__ import annotations

from itertools import count

import anywidget
import traitlets
from IPython.display import display

from agentbook.book import Run
from agentbook.notebook.assets import module
from agentbook.notebook.live import LiveTimeline
from agentbook.views import messages
from agentbook.views.style import stylesheet

_keys = count()


class TimelineWidget(anywidget.AnyWidget):
    """The live timeline of a run. Its view asks for a snapshot when it renders; deltas follow."""

    run = traitlets.Unicode().tag(sync=True)
    # Declared here: anywidget drops a `_css` that is only passed to it.
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self, handle: Run, live: LiveTimeline) -> None:
        super().__init__(_esm=module("timeline.js"), _css=stylesheet() + module("timeline.css"), run=handle.id)
        self._handle = handle
        self._live = live
        self._key = next(_keys)
        self.on_msg(self._heard)

    def __repr__(self) -> str:
        return f"<timeline of {self._handle.id}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        shown = super()._repr_mimebundle_()
        widget = dict(shown[0] if isinstance(shown, tuple) else shown or {})
        return {**widget, "text/plain": repr(self._handle)}

    def _heard(self, _: object, message: dict[str, object], __: object) -> None:
        # The kernel calls this on whichever thread it likes: only hand the message over.
        future = self._handle.book.service.submit(self._answer(message))
        future.add_done_callback(lambda done: self._failed(message, done))

    async def _answer(self, asked: dict[str, object]) -> None:
        request = str(asked.get("id"))
        if asked.get("type") == "snapshot":
            timeline = await self._live.snapshot()
            self._live.listen(self._key, self._tell)
            self.send(messages.snapshot(timeline, request))
        elif asked.get("type") == "record":
            seq = asked.get("seq")
            record = self._live.records.get(seq) if isinstance(seq, int) else None
            found = messages.record(record, request) if record else messages.error(request, f"no record {seq} here")
            self.send(found)

    def _tell(self, changes: list[messages.Message]) -> None:
        for change in changes:
            self.send(change)

    def _failed(self, asked: dict[str, object], done) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.send(messages.error(str(asked.get("id")), f"{type(error).__name__}: {error}"))


def display_bundle(bundle: dict[str, object], place: str, *, update: bool = False) -> None:
    """Display a bundle, or replace the one displayed under that place. Callable from any thread."""
    display(bundle, raw=True, display_id=place, update=update)


def display_widget(widget: TimelineWidget) -> None:
    """Display a live view here."""
    display(widget)
