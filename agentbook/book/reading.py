"""What can be read of a run, wherever its records come from: a server or a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from agentbook.book.frame import frame
from agentbook.journal.records import Record
from agentbook.views.draw import draw
from agentbook.views.facts import RunFacts
from agentbook.views.graph import RunGraph
from agentbook.views.timeline import Timeline, build

if TYPE_CHECKING:
    import pandas as pd


class Readable(ABC):
    """The views of a run.

    Attributes:
        id: the run's id.
    """

    id: str

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return dict(self.timeline._repr_mimebundle_())  # pyright: ignore[reportPrivateUsage] - IPython's name for it

    @property
    def timeline(self) -> Timeline:
        """Who did what at which position, and what was replayed."""
        return build(self._all(), self._facts())

    def graph(self) -> RunGraph:
        """The graph of what really happened."""
        return draw(self.timeline)

    def frame(self) -> pd.DataFrame:
        """The records as a table, one row a record; see `agentbook.book.frame.frame` for its columns.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return frame(self._all())

    @abstractmethod
    def _all(self) -> list[Record]:
        """Every record, in order."""

    @abstractmethod
    def _facts(self) -> RunFacts:
        """What is known beside the records."""
