"""How a run shows itself: as a live view where a front end has one, else as it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentbook.book.run import Run

Bundle = dict[str, object]
Show = Callable[["Run"], object]

_show: Show | None = None


def show_runs_with(show: Show | None) -> None:
    """Show runs as a front end's live views from now on; None for static ones."""
    global _show
    _show = show


def show_live(run: Run) -> None:
    """Show a run's live view.

    Raises:
        NotImplementedError: no front end has one; IPython then asks for the run's static view.
    """
    if _show is None:
        raise NotImplementedError
    _show(run)
