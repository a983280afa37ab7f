"""``agentbook lab``: JupyterLab on the example notebooks."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import agentbook
from agentbook.cli.output import say
from agentbook.errors import ConfigError, MissingExtra

_PACKAGE = Path(agentbook.__file__).parent


def add_to(app: typer.Typer) -> None:
    """Add the command. Everything after ``--`` goes to JupyterLab as it is."""
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(lab)


def lab(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Option("--notebooks", help="Folder of the notebooks.")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    port: Annotated[int | None, typer.Option(help="Port; JupyterLab's own choice if left out.")] = None,
) -> None:
    """Open JupyterLab on the example notebooks.

    From an installed package they are first copied to ./agentbook-notebooks; what is there already stays as it is.
    """
    if find_spec("jupyterlab") is None:
        raise MissingExtra("agentbook lab", "notebook")
    place = prepared(folder)
    say(f"JupyterLab on {place}; end it with Ctrl-C")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={place}", "--ServerApp.ip=127.0.0.1"]
    command += [] if browser else ["--no-browser"]
    command += [] if port is None else [f"--ServerApp.port={port}"]
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    sys.stdout.flush()
    os.execv(sys.executable, [*command, *context.args])  # noqa: S606 - JupyterLab takes this process over


def prepared(folder: Path | None) -> Path:
    """The folder to open, with the notebooks in it.

    Raises:
        ConfigError: the installation has no notebooks, or the folder does not exist.
    """
    checkout = _PACKAGE.parent / "notebooks"
    shipped = _PACKAGE / "_notebooks"
    if folder is None and not shipped.is_dir() and checkout.is_dir():
        return checkout
    if not shipped.is_dir():
        if folder is not None and folder.is_dir():
            return folder.absolute()
        raise ConfigError("this installation has no example notebooks: name a folder with --notebooks")
    place = (folder or Path("agentbook-notebooks")).absolute()
    place.mkdir(parents=True, exist_ok=True)
    for source in sorted(shipped.glob("*.ipynb")):
        if not (place / source.name).exists():
            shutil.copyfile(source, place / source.name)
            _trust(place / source.name)
    return place


def _trust(notebook: Path) -> None:
    """Let JupyterLab show a notebook of ours in style before anything has run: from others it strips all style."""
    import nbformat
    from nbformat.sign import NotebookNotary

    NotebookNotary().sign(nbformat.read(notebook, as_version=4))  # pyright: ignore[reportUnknownMemberType] - untyped
