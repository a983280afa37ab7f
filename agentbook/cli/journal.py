"""Commands about a journal: ``journal show`` and ``journal check``."""

from __future__ import annotations

from typing import Annotated

import typer

from agentbook.cli.output import AsJson, Folder, RunId, Url, as_json, opened, say
from agentbook.journal.check import CheckReport
from agentbook.journal.records import Record

_ENVELOPE = {"v", "kind", "run", "step", "n", "at", "seq", "claim", "iteration", "attempt"}


def add_to(app: typer.Typer) -> None:
    """Add ``agentbook journal``."""
    group = typer.Typer(no_args_is_help=True, help="Read and audit the journal of a run.")
    group.command()(show)
    group.command()(check)
    app.add_typer(group, name="journal")


def show(
    run: RunId,
    folder: Folder = None,
    url: Url = None,
    start: Annotated[int, typer.Option("--from", help="The first sequence wanted.")] = 1,
    json: AsJson = False,
) -> None:
    """Print the records of a run, one a line."""
    with opened(folder, url) as book:
        records = book.get(run).journal(start)
    if json:
        as_json([_as_json(record) for record in records])
        return
    for record in records:
        where = f"{record.iteration}.{record.attempt}"
        say(f"{record.seq:>6}  turn {where:<5} claim {record.claim[:6]}  {record.kind:<13} {_fields(record)}")


def check(run: RunId, folder: Folder = None, url: Url = None, json: AsJson = False) -> None:
    """Audit a run's journal: every rule that a correct history keeps. Exit 1 on a violation."""
    with opened(folder, url) as book:
        report = book.get(run).check()
    if json:
        as_json(_report(report))
    else:
        say(report)
        for violation in report.violations:
            for record in violation.records:
                say(f"    {record.encode().decode()}")
    if not report:
        raise typer.Exit(1)


def _report(report: CheckReport) -> dict[str, object]:
    return {
        "clean": bool(report),
        "records": report.records,
        "violations": [
            {
                "rule": violation.rule,
                "seq": violation.seq,
                "text": violation.text,
                "records": [_as_json(record) for record in violation.records],
            }
            for violation in report.violations
        ],
    }


def _as_json(record: Record) -> dict[str, object]:
    return {"seq": record.seq, **record.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude={"seq"})}


def _fields(record: Record) -> str:
    fields = record.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude=_ENVELOPE)
    text = " ".join(f"{name}={value!r}" for name, value in fields.items())
    return text if len(text) <= 160 else text[:157] + "…"
