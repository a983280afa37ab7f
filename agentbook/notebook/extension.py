# pyright: basic
"""Loading and unloading: magics, live views, tool output, the rewrite of ``--wait``. IPython's shell is untyped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbook.book import display
from agentbook.errors import MissingExtra

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register everything, once."""
    try:
        import anywidget  # pyright: ignore[reportUnusedImport]  # noqa: F401 - only asked whether it is there
    except ImportError:
        raise MissingExtra("%load_ext agentbook", "notebook") from None
    from agentbook.notebook.magics import AgentbookMagics
    from agentbook.notebook.printing import capture
    from agentbook.notebook.views import show
    from agentbook.notebook.waiting import await_magics

    unload(shell)
    shell.register_magics(AgentbookMagics)
    shell.input_transformers_post.append(await_magics)
    display.show_runs_with(show)
    capture()


def unload(shell: InteractiveShell) -> None:
    """Take away what `load` brought."""
    from agentbook.notebook.magics import AgentbookMagics
    from agentbook.notebook.printing import release
    from agentbook.notebook.waiting import await_magics

    shell.input_transformers_post[:] = [each for each in shell.input_transformers_post if each is not await_magics]
    for kind, names in AgentbookMagics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    display.show_runs_with(None)
    release()
