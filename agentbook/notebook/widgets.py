# pyright: basic
"""The widgets: the one place that meets anywidget and traitlets, which are untyped."""

from __future__ import annotations

import json
from itertools import count

import anywidget
import traitlets

from agentbook.book import Run
from agentbook.book.display import static_bundle
from agentbook.notebook.assets import module
from agentbook.notebook.live import LiveTimeline
from agentbook.views.blocks import Block, to_json
from agentbook.views.timeline import Head

_keys = count()


class TimelineWidget(anywidget.AnyWidget):
    """The live timeline of a run. Its view asks for a snapshot when it renders; deltas follow."""

    run = traitlets.Unicode().tag(sync=True)

    def __init__(self, handle: Run, live: LiveTimeline) -> None:
        super().__init__(_esm=module("timeline.js"), run=handle.id)
        self._handle = handle
        self._live = live
        self._key = next(_keys)
        self.on_msg(self._heard)

    def __repr__(self) -> str:
        return f"<timeline of {self._handle.id}>"

    def bundle(self) -> dict[str, object]:
        """What is displayed: the widget, and what shows where no kernel runs."""
        shown = super()._repr_mimebundle_()
        widget = dict(shown[0] if isinstance(shown, tuple) else shown or {})
        return {**widget, **static_bundle(self._handle), "text/plain": repr(self._handle)}

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return self.bundle()

    def _heard(self, _: object, message: dict[str, object], __: object) -> None:
        # The kernel calls this on whichever thread it likes: only hand the message over.
        future = self._handle.book.service.submit(self._answer(message))
        future.add_done_callback(lambda done: self._failed(message, done))

    async def _answer(self, message: dict[str, object]) -> None:
        kind = message.get("type")
        if kind == "snapshot":
            timeline = await self._live.snapshot()
            self._live.listen(self._key, self._changed)
            self.send({"type": "snapshot", "id": message.get("id"), "timeline": timeline.to_json()})
        elif kind == "record":
            seq = message["seq"]
            record = self._live.records.get(seq if isinstance(seq, int) else -1)
            text = "this record is not here" if record is None else pretty(record.encode())
            self.send({"type": "record", "id": message.get("id"), "seq": seq, "text": text})
        elif kind == "close":
            self._live.leave(self._key)

    def _changed(self, head: Head, blocks: tuple[Block, ...]) -> None:
        self.send({"type": "delta", "head": to_json(head), "blocks": [to_json(block) for block in blocks]})

    def _failed(self, message: dict[str, object], done) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.send({"type": "error", "id": message.get("id"), "text": f"{type(error).__name__}: {error}"})


def pretty(record: bytes) -> str:
    """A record for people."""
    return json.dumps(json.loads(record), indent=2, ensure_ascii=False)
