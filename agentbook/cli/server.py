"""Commands about the server: ``up down status doctor``."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from agentbook.broker import doctor as examination
from agentbook.broker import local
from agentbook.cli.output import AsJson, Folder, Url, as_json, opened, say, settings_for

_SIGNS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}


def add_to(app: typer.Typer) -> None:
    """Add the commands about the server."""
    for command in (up, down, status, doctor):
        app.command()(command)


def up(folder: Folder = None) -> None:
    """Start the folder's nats-server, and make its streams. It ends when nobody has used it for a while."""
    with opened(folder, None) as book:
        grace = book.settings.server_grace
        say(f"up: {book.target.url}, durability {book.settings.durability}, in {book.settings.dir}")
    say(f"It stays while somebody uses it, and {grace:g} s longer (AGENTBOOK_SERVER_GRACE).")


def down(
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Also while others use it.")] = False,
) -> None:
    """Stop the folder's nats-server."""
    settings = settings_for(folder)
    say("down" if local.down(settings, force=force) else f"no server runs in {settings.dir}")


def status(folder: Folder = None, json: AsJson = False) -> None:
    """Tell whether the folder's server runs, and who uses it."""
    settings = settings_for(folder)
    found = local.status(settings)
    if json:
        as_json(None if found is None else asdict(found))
    elif found is None:
        say(f"no server runs in {settings.dir}; `agentbook up` starts it, and so does opening a book")
    else:
        say(f"{found.url}  durability {found.durability}  in {found.dir}")
        users = ", ".join(map(str, found.leases)) or "nobody"
        say(f"keeper {found.keeper_pid}  server {found.server_pid}  restarts {found.restarts}  used by {users}")
        if found.trouble:
            say(found.trouble, "bold red")


def doctor(folder: Folder = None, url: Url = None, json: AsJson = False) -> None:
    """Examine the machine, the folder, the server and its streams. Exit 1 if something is broken."""
    checks = asyncio.run(examination.doctor(settings_for(folder), url))
    if json:
        as_json([asdict(check) for check in checks])
    else:
        for check in checks:
            sign, style = _SIGNS[check.verdict]
            say(f"{sign} {check.name}: {check.found}" + (f" — {check.advice}" if check.advice else ""), style)
    if any(check.verdict == "fail" for check in checks):
        raise typer.Exit(1)
