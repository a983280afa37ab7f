"""The commands of ``agentbook`` and how their errors look."""

from __future__ import annotations

import sys

import typer

import agentbook
from agentbook.cli import demo, journal, lab, runs, server
from agentbook.cli.output import fail
from agentbook.errors import AgentbookError

app = typer.Typer(
    name="agentbook",
    help="Durable agents on a local NATS JetStream: look at their runs, resume them, audit their journals.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
demo.add_to(app)
lab.add_to(app)
server.add_to(app)
runs.add_to(app)
journal.add_to(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(agentbook.__version__)
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction] - typer calls it
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line. An error of ours is one message, without a traceback."""
    try:
        app()
    except AgentbookError as error:
        fail(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
