"""The notebook front: ``%load_ext agentbook`` brings the magics and the live views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and the live views. Doing so twice is fine, and nothing durable is touched."""
    from agentbook.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics and the live views away again; the book and its runs stay as they are."""
    from agentbook.notebook.extension import unload

    unload(shell)
