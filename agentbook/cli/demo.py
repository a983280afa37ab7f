"""``agentbook demo``: a crash in the middle of a turn, and what the journal makes of it."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentbook.broker.local import down
from agentbook.cli.output import say
from agentbook.crashlab import parse_fault, seams
from agentbook.demo.billing import Effect
from agentbook.demo.story import Outcome, play
from agentbook.errors import ConfigError, UsageError
from agentbook.settings import Settings
from agentbook.views.report import page
from agentbook.views.text import legend, render

_DEFAULT_FAULT = "inside_tool:refund"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    crash: Annotated[
        str | None,
        typer.Option(
            metavar="SEAM[@TURN][:TOOL]",
            help=f"Where the first process is killed: {', '.join(seams())}.",
            show_default=_DEFAULT_FAULT,
        ),
    ] = None,
    no_crash: Annotated[bool, typer.Option("--no-crash", help="Run it without a crash.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the store in FOLDER/store, to look around in with `--dir FOLDER/store`.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a report to this file: timeline, graph, guarantees; one page.")
    ] = None,
) -> None:
    """Kill an agent's process right after it refunded money, resume it, and count what ran.

    Exit 1 if any guarantee failed.
    """
    if no_crash and crash is not None:
        raise ConfigError("--crash and --no-crash contradict each other: leave one out")
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"{html} cannot be written: there is no folder {html.absolute().parent}")
    fault = None if no_crash else parse_fault(crash or _DEFAULT_FAULT)
    if keep is not None and (keep / "store").exists():
        raise ConfigError(f"{keep} holds the store of an earlier demo: name another folder")
    place = tempfile.TemporaryDirectory(prefix="agentbook-demo-") if keep is None else nullcontext(str(keep))
    with place as folder:
        settings = replace(Settings.from_environment(), server_grace=2.0, ack_wait=3.0)
        try:
            outcome = play(Path(folder), fault, settings, say)
        finally:
            if keep is None:
                _take_down(replace(settings, dir=Path(folder) / "store"))
    _tell(outcome)
    if html is not None:
        html.write_text(_report(outcome), "utf-8")
        say(f"\nThe report is in {html}")
    if keep is not None:
        say(f"\nLook around: agentbook show order-42 --dir {keep / 'store'}")
    if not outcome.held:
        raise typer.Exit(1)


def _report(outcome: Outcome) -> str:
    return page(
        "agentbook demo: a process dies in the middle of a turn",
        outcome.timeline,
        outcome.graph,
        paragraphs=outcome.story,
        claims=[(guarantee.held, f"{guarantee.text}: {guarantee.figures}") for guarantee in outcome.guarantees],
        ledger=[_line(effect) for effect in outcome.effects],
    )


def _line(effect: Effect) -> str:
    return f"process {effect.pid}  {effect.kind:<5}  {effect.name:<13}  {effect.key}"


def _take_down(settings: Settings) -> None:
    try:
        down(settings, force=True)
    except UsageError:
        # Its own book has just let go of it; the grace ends the server.
        return


def _tell(outcome: Outcome) -> None:
    say("\nThe timeline", "bold")
    say(render(outcome.timeline))
    say(legend(outcome.timeline), "dim")
    say("\nWhat really started, counted in a file outside the journal", "bold")
    for effect in outcome.effects:
        say(f"  {_line(effect)}")
    say("\nThe graph of what happened (Mermaid)", "bold")
    say(outcome.graph.to_mermaid())
    say("\nGuarantees", "bold")
    for guarantee in outcome.guarantees:
        sign, style = ("✓", "green") if guarantee.held else ("✗", "bold red")
        say(f"  {sign} {guarantee.text}: {guarantee.figures}", style)
