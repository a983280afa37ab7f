"""How a run shows itself: as a live view where a front end has one, else as it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentbook.book.run import Run

Bundle = dict[str, object]

_live: Callable[[Run], Bundle] | None = None


def show_runs_with(live: Callable[[Run], Bundle] | None) -> None:
    """Show runs as a front end's live views from now on; None for static ones."""
    global _live
    _live = live


def bundle_of(run: Run) -> Bundle:
    """What a notebook shows of a run."""
    return static_bundle(run) if _live is None else _live(run)


def static_bundle(run: Run) -> Bundle:
    """The timeline as it stands: what shows where no kernel runs."""
    return dict(run.timeline._repr_mimebundle_())  # pyright: ignore[reportPrivateUsage] - IPython's name for it
