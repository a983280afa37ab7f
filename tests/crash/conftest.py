"""Books that are opened once the holder is dead, and audited at the end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from agentbook.book import open as open_book
from agentbook.testing import audit


@pytest.fixture
def book_later(agentbook_settings):
    """Opens a book on the test's server; at the end every run in it is audited."""
    with ExitStack() as books:
        yield lambda: books.enter_context(open_book(settings=agentbook_settings))
    audit(agentbook_settings)
