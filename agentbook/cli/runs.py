"""Commands about runs: ``runs show attach resume cancel retry purge resolve graph``."""

from __future__ import annotations

from dataclasses import asdict
from json import loads
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from agentbook.book import RunInfo
from agentbook.cli.output import AsJson, Folder, RunId, Url, as_json, console, opened, say
from agentbook.errors import ConfigError, MissingExtra
from agentbook.views.text import legend, render

Force = Annotated[bool, typer.Option("--force", help="Take it over from a live holder, which is fenced.")]
GraphFormat = Literal["mermaid", "dot", "svg"]


def add_to(app: typer.Typer) -> None:
    """Add the commands about runs."""
    for command in (runs, show, attach, resume, retry, cancel, purge, resolve, graph):
        app.command()(command)


def runs(
    folder: Folder = None,
    url: Url = None,
    status: Annotated[str | None, typer.Option(help="Only runs with this status.")] = None,
    label: Annotated[str | None, typer.Option(help="Only runs with this label: NAME or NAME=VALUE.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    with opened(folder, url) as book:
        found = book.runs(status, label, limit)
    if json:
        as_json([asdict(info) for info in found])
    elif not found:
        say("No runs yet. Start one in a notebook or a script, or see `agentbook demo`.")
    else:
        console.print(_table(found))


def show(run: RunId, folder: Folder = None, url: Url = None, json: AsJson = False) -> None:
    """Show a run's timeline: who did what, what was replayed, who fenced whom."""
    with opened(folder, url) as book:
        handle = book.get(run)
        timeline = handle.timeline
        if json:
            as_json({"run": asdict(handle.info), "timeline": timeline.to_json()})
        else:
            say(render(timeline))
            say(legend(timeline), "dim")


def attach(run: RunId, folder: Folder = None, url: Url = None, force: Force = False) -> None:
    """Watch a run until it ends; have it go on if nobody works on it."""
    with opened(folder, url) as book:
        handle = book.attach(run, force=force)
        say(f"run {run} is {handle.status}; Ctrl-C leaves it, it goes on")
        if handle.status == "running":
            say(f"(a process that knows agent {handle.info.type} works on it: run its script or notebook if none does)")
        say(handle.wait())


def resume(run: RunId, folder: Folder = None, url: Url = None, force: Force = False) -> None:
    """Hand a run to the next free worker, unless a live holder has it."""
    with opened(folder, url) as book:
        outcome = book.get(run).resume(force=force)
    told = {
        "dispatched": "dispatched: the next process that knows its agent goes on (run its script or notebook)",
        "viewing": "left alone: a live holder has it, or it waits; --force takes it over",
        "ended": "it has ended: nothing is left to do",
    }
    say(f"run {run}: {told[outcome]}")


def retry(run: RunId, folder: Folder = None, url: Url = None) -> None:
    """Begin the halted turn of a run again, as a new attempt."""
    with opened(folder, url) as book:
        book.get(run).retry()
    say(f"run {run}: a new attempt is dispatched")


def cancel(
    run: RunId,
    folder: Folder = None,
    url: Url = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with the run.")] = None,
) -> None:
    """End a run now."""
    with opened(folder, url) as book:
        handle = book.get(run)
        handle.cancel(reason)
        say(f"run {run} is {handle.status}")


def purge(
    run: RunId,
    folder: Folder = None,
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove an ended run for good: its records, values and events."""
    if not yes:
        typer.confirm(f"Remove everything that is stored of run {run}?", abort=True)
    with opened(folder, url) as book:
        book.purge(run)
    say(f"run {run} is purged")


def resolve(
    run: RunId,
    subject: Annotated[
        str, typer.Argument(metavar="CALL", help="The key of the halted call, as `show` and the run's cause say it.")
    ],
    folder: Folder = None,
    url: Url = None,
    value: Annotated[str | None, typer.Option(help="It happened and returned this JSON.")] = None,
    error: Annotated[str | None, typer.Option(help="It failed, with this text.")] = None,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It runs again.")] = False,
    evidence: Annotated[str | None, typer.Option(help="How you know; it is kept with the run.")] = None,
    by: Annotated[str | None, typer.Option(help="Who says so; you, if left out.")] = None,
    min_age: Annotated[float | None, typer.Option(help="Refuse if it started less than so many seconds ago.")] = None,
) -> None:
    """Say how a halted call ended; once each one is resolved, the run goes on."""
    try:
        given = {} if value is None else {"value": loads(value)}
    except ValueError as wrong:
        raise ConfigError(f"--value is JSON, a text needs quotes of its own: {wrong}") from None
    with opened(folder, url) as book:
        book.get(run).resolve(
            subject, **given, error=error, did_not_happen=did_not_happen, evidence=evidence, by=by, min_age=min_age
        )
    say(f"run {run}: {subject} is resolved")


def graph(
    run: RunId,
    folder: Folder = None,
    url: Url = None,
    format: Annotated[GraphFormat, typer.Option(help="What to print.")] = "mermaid",  # noqa: A002 - the option's name
) -> None:
    """Print the graph of what really happened."""
    with opened(folder, url) as book:
        found = book.get(run).graph()
    if format == "mermaid":
        say(found.to_mermaid())
    elif format == "dot":
        say(found.to_dot())
    elif format == "svg":
        svg = found.to_svg()
        if svg is None:
            raise MissingExtra("drawing a graph", "notebook")
        say(svg)
    else:
        raise ConfigError(f"a graph has no format {format!r}")


def _table(found: list[RunInfo]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("RUN", "AGENT", "STATUS", "TURNS", "CREATED"):
        table.add_column(column, no_wrap=True)
    table.add_column("CAUSE", no_wrap=True, overflow="ellipsis")
    for info in found:
        cause = (info.cause or "").partition("\n")[0]
        cells = (info.id, info.type, info.status, str(info.turns), info.created[:16].replace("T", " "), cause)
        table.add_row(*map(Text, cells))
    return table
