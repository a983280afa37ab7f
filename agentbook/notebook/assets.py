"""Where the front end's modules are: in the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

import agentbook
from agentbook.errors import ConfigError


def module(name: str) -> str:
    """The text of a front-end module.

    Args:
        name: its file's name, for example ``timeline.js``.

    Raises:
        ConfigError: the installation lacks it.
    """
    package = Path(agentbook.__file__).parent
    for folder in (package / "_widgets", package.parent / "widgets"):
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8")
    raise ConfigError(f"this installation of agentbook lacks {name}: install it again")
