"""What could keep a book from working, checked one by one (`agentbook doctor`)."""

from __future__ import annotations

import re
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from agentbook.broker import local
from agentbook.broker.api import STREAM_NOT_FOUND
from agentbook.broker.binary import find_server, server_version
from agentbook.broker.connection import Connection, connect
from agentbook.broker.folder import LEAST_FREE, Folder
from agentbook.broker.handshake import check_version
from agentbook.broker.outcomes import ApiError, Undecided
from agentbook.broker.streams import layout, mismatches, stream_name
from agentbook.broker.target import Target
from agentbook.broker.url import parse
from agentbook.errors import AgentbookError
from agentbook.settings import Settings

Verdict = Literal["ok", "warn", "fail"]

_LITTLE = 1_000_000_000
_SKEW = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at.
        verdict: ``ok``, ``warn`` (it works, but) or ``fail``.
        found: what was found.
        advice: what to do about it; empty if nothing.
    """

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


async def doctor(settings: Settings, url: str | None = None, *, start: bool = False) -> list[Check]:
    """Look at everything a book depends on. Nothing is changed, and nothing raised.

    Args:
        url: the server to look at; None for the embedded one.
        start: start the embedded server if it does not run, and give it back afterwards.
    """
    if url is not None:
        try:
            return await _server(parse(url), settings, embedded=False)
        except AgentbookError as error:
            return [_failed("url", error)]
    checks = [_binary(), _folder(settings), _disk(settings)]
    if any(check.verdict == "fail" for check in checks):
        return checks
    lease = None
    try:
        if start:
            lease = local.acquire(settings)
        checks += await _embedded(settings)
    except AgentbookError as error:
        checks.append(_failed("keeper", error))
    finally:
        if lease is not None:
            lease.release()
    return checks


def _binary() -> Check:
    try:
        binary = find_server()
        version = server_version(binary)
        check_version(version or "0")
    except AgentbookError as error:
        return _failed("binary", error)
    return Check("binary", "ok", f"nats-server {version} at {binary}")


def _folder(settings: Settings) -> Check:
    folder = Folder(settings.dir)
    if not folder.path.exists():
        return Check("folder", "ok", f"{folder.path} does not exist yet; the first open creates it")
    try:
        folder.prepare()
    except AgentbookError as error:
        return _failed("folder", error)
    return Check("folder", "ok", f"{folder.path} can be written to")


def _disk(settings: Settings) -> Check:
    place = Folder(settings.dir).path
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    verdict: Verdict = "fail" if free < LEAST_FREE else "warn" if free < _LITTLE else "ok"
    advice = "" if verdict == "ok" else "free some space; journals need it, and a full disk stops every run"
    return Check("disk", verdict, f"{free / 1e9:.1f} GB free", advice)


async def _embedded(settings: Settings) -> list[Check]:
    status = local.status(settings)
    if status is None:
        return [Check("keeper", "warn", "not running", "the next open starts it, or `agentbook up`")]
    used = len(status.leases)
    checks = [Check("keeper", "ok", f"process {status.keeper_pid}, {used} lease{'s' * (used != 1)}")]
    if status.server_pid is None:
        return [*checks, Check("server", "fail", status.trouble or "restarting", f"see {status.dir / 'server.log'}")]
    verdict: Verdict = "warn" if status.restarts else "ok"
    advice = f"see why in {status.dir / 'server.log'}" if status.restarts else ""
    found = f"process {status.server_pid} at {status.url}, restarted {status.restarts} times"
    checks += [Check("server", verdict, found, advice), _durability(settings)]
    lease = local.acquire(settings)
    try:
        return checks + await _server(lease.target, settings, embedded=True)
    finally:
        lease.release()


def _durability(settings: Settings) -> Check:
    # Read from what the server runs with, not from what was asked of it.
    config = Folder(settings.dir).config.read_text()
    flushes = "sync_interval: always" in config
    if flushes and sys.platform == "darwin":
        return Check("durability", "ok", "disk: fsync before each ack (the drive's own cache is not flushed)")
    if flushes:
        return Check("durability", "ok", "disk: an fsync before each ack")
    return Check(
        "durability",
        "warn",
        "process: survives any process, not a power cut (a flush every 2 minutes)",
        "durability='disk' for work that matters",
    )


async def _server(target: Target, settings: Settings, *, embedded: bool) -> list[Check]:
    try:
        connection = await connect(target, settings)
    except AgentbookError as error:
        return [_failed("connection", error)]
    try:
        version = str(connection.server_info.get("version", "unknown"))
        began = time.perf_counter()
        await connection.api.once("INFO")
        trip = (time.perf_counter() - began) * 1e3
        checks = [Check("connection", "ok", f"nats-server {version} with JetStream at {target.url}, {trip:.1f} ms")]
        if not embedded:
            checks.append(Check("durability", "warn", "set by the server's operator", "ask for sync_interval: always"))
        return [*checks, *await _streams(connection)]
    except (AgentbookError, ApiError, Undecided) as error:
        return [Check("connection", "fail", f"JetStream at {target.url} stopped answering ({error})", "try again")]
    finally:
        await connection.close()


async def _streams(connection: Connection) -> list[Check]:
    wanted = layout(connection.names)
    missing: list[str] = []
    bad: list[str] = []
    clock: Check | None = None
    for base, config in wanted.items():
        stream = stream_name(connection.names, base)
        try:
            answer = await connection.api.once(f"STREAM.INFO.{stream}")
        except ApiError as error:
            (missing if error.code == STREAM_NOT_FOUND else bad).append(stream)
            continue
        clock = clock or _clock(answer.get("ts"))
        if differences := mismatches(cast("dict[str, object]", answer["config"]), config):
            bad.append(f"{stream} ({'; '.join(differences)})")
    if bad:
        check = Check("streams", "fail", f"do not fit: {', '.join(bad)}", "`nats stream edit`, or another namespace")
    elif missing:
        check = Check("streams", "ok", f"{len(missing)} of {len(wanted)} not there yet; the next open creates them")
    else:
        check = Check("streams", "ok", f"all {len(wanted)} there, with the right properties")
    return [check, *([clock] if clock else [])]


def _clock(stamp: object) -> Check | None:
    if not isinstance(stamp, str):
        return None
    # Nanoseconds are more than `fromisoformat` reads.
    seconds, _, _ = stamp.removesuffix("Z").partition(".")
    skew = abs(datetime.fromisoformat(seconds + "+00:00").timestamp() + 0.5 - time.time())
    if skew > _SKEW + 0.5:
        return Check("clock", "warn", f"{skew:.0f} s apart from the server's", "set both by NTP: waits are timed there")
    return Check("clock", "ok", "agrees with the server's")


def _failed(name: str, error: AgentbookError) -> Check:
    # Our errors say what is wrong, then what to do.
    found, *advice = re.split(r"[:;.] ", str(error), maxsplit=1)
    return Check(name, "fail", found, *advice)
