"""What the commands print, and how they open a book."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agentbook.book import Book
from agentbook.book import open as open_book
from agentbook.settings import Settings

Folder = Annotated[Path | None, typer.Option("--dir", help="Folder of the embedded server.", show_default=".agentbook")]
Url = Annotated[str | None, typer.Option("--url", help="A NATS server of yours, instead of the embedded one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]

console = Console(highlight=False, soft_wrap=True)
_errors = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: object = "", style: str = "") -> None:
    """Print a line. What a run or a model said is text, never markup."""
    console.print(Text(str(text), style=style))


def fail(text: str) -> None:
    """Print what went wrong, to standard error."""
    _errors.print(Text.assemble(("error: ", "bold red"), text))


def as_json(value: object) -> None:
    """Print one JSON value."""
    typer.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def settings_for(folder: Path | None) -> Settings:
    """The settings of a command: the environment, and the folder it names."""
    settings = Settings.from_environment()
    return settings if folder is None else replace(settings, dir=folder)


@contextmanager
def opened(folder: Path | None, url: str | None) -> Generator[Book]:
    """An open book for one command."""
    with open_book(url, settings=settings_for(folder)) as book:
        yield book
