"""The streams a book needs, and their creation (DESIGN.md, JetStream layout)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from agentbook.broker import names
from agentbook.broker.api import STREAM_EXISTS, STREAM_NOT_FOUND, Json
from agentbook.broker.names import Names
from agentbook.broker.outcomes import ApiError
from agentbook.errors import ConfigError

if TYPE_CHECKING:
    from agentbook.broker.connection import Connection

_DAY = 86_400 * 10**9

_NEWEST: Json = {"max_msgs_per_subject": 1}
_LIVE: Json = {"max_age": 0, "discard": "new"}
"""Live state: nothing of it may vanish by age, nor be pushed out by what is newer."""


def layout(book: Names) -> dict[str, Json]:
    """Each stream's base name, and the properties that agentbook relies on."""
    payloads = book.stream(names.PAYLOADS)
    return {
        names.JOURNAL: {
            "subjects": [book.subject("journal", "*", "*")],
            **_LIVE,
            "allow_direct": True,
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "deny_delete": True,
        },
        names.HISTORY: {"subjects": [book.subject("history", "*")], **_LIVE, "allow_direct": True},
        # A cache: better the oldest fold is lost than a new one refused.
        names.MEMO: {
            "subjects": [book.subject("memo", "*", "*")],
            "max_age": 0,
            "discard": "old",
            **_NEWEST,
            "allow_direct": True,
        },
        names.TASKS: {
            "subjects": [book.subject("task", ">")],
            "retention": "workqueue",
            **_LIVE,
            **_NEWEST,
            "discard_new_per_subject": True,
        },
        # The server refuses schedules together with discard new. Without limits, nothing is discarded.
        names.TIMERS: {
            "subjects": [book.subject("timer", ">"), book.subject("wake", ">")],
            "retention": "workqueue",
            "max_age": 0,
            "discard": "old",
            "max_msgs": -1,
            "max_bytes": -1,
            "allow_msg_schedules": True,
            "allow_msg_ttl": True,
        },
        names.INPUTS: {
            "subjects": [book.subject("input", "*", "*", "*")],
            **_LIVE,
            **_NEWEST,
            "allow_direct": True,
            "allow_msg_ttl": True,
        },
        # A purged run's snapshot carries a TTL.
        names.RUNS: {
            "subjects": [book.subject("run", "*")],
            **_LIVE,
            **_NEWEST,
            "allow_direct": True,
            "allow_msg_ttl": True,
        },
        names.DEAD: {
            "subjects": [book.subject("dead", ">")],
            "max_age": 30 * _DAY,
            "discard": "old",
            "allow_direct": True,
        },
        # What nats.py and every other client find as the object store of this name.
        names.PAYLOADS: {
            "subjects": [f"$O.{payloads}.C.>", f"$O.{payloads}.M.>"],
            **_LIVE,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
        },
    }


def stream_name(book: Names, base: str) -> str:
    """The stream behind a base name: an object store's has a prefix of its own."""
    return f"OBJ_{book.stream(base)}" if base == names.PAYLOADS else book.stream(base)


async def provision(connection: Connection) -> None:
    """Create each stream that is missing. Several books may do so at once.

    A stream that exists keeps its limits and replicas, which are its operator's to choose.

    Raises:
        ConfigError: one exists with a property that agentbook cannot work with.
        JournalUnavailable: JetStream did not answer before the append deadline.
    """
    wanted = layout(connection.names)
    tasks = [_ensure(connection, stream_name(connection.names, base), config) for base, config in wanted.items()]
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _ensure(connection: Connection, stream: str, wanted: Json) -> None:
    existing = await _config(connection, stream)
    if existing is None:
        body: Json = {
            "name": stream,
            "retention": "limits",
            "storage": "file",
            "compression": "s2",
            "num_replicas": connection.settings.replicas,
            **wanted,
        }
        try:
            await connection.api.call(f"STREAM.CREATE.{stream}", body, timeout=30.0)
        except ApiError as error:
            if error.code != STREAM_EXISTS:
                raise ConfigError(f"stream {stream} cannot be created: {error}") from None
            existing = await _config(connection, stream)
    if existing is not None:
        differences = mismatches(existing, wanted)
        if differences:
            raise ConfigError(
                f"stream {stream} exists and does not fit: {'; '.join(differences)}. "
                "Change it with `nats stream edit`, or choose another namespace."
            )


async def _config(connection: Connection, stream: str) -> Json | None:
    try:
        answer = await connection.api.call(f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    return cast("Json", answer["config"])


def mismatches(existing: Json, wanted: Json) -> list[str]:
    """What differs between a stream and what agentbook relies on, one phrase each."""
    found: list[str] = []
    for name, value in wanted.items():
        # The server leaves out what is false, zero or empty.
        has = existing.get(name, type(value)())
        if has != value:
            found.append(f"{name} is {has!r}, not {value!r}")
    return found
