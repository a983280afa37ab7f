"""Storing a message until the server has decided, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Mapping

from agentbook.broker.connection import Connection
from agentbook.broker.outcomes import Ack, Denied, StreamFull, TooLarge, Undecided
from agentbook.errors import ConfigError, JournalFull, JournalUnavailable, PayloadTooLarge


async def store(
    connection: Connection,
    subject: str,
    data: bytes,
    *,
    what: str,
    expect: int | None = None,
    msg_id: str | None = None,
    ttl: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Ack:
    """Publish one message, again while the server has not decided.

    Args:
        what: what it is, for the text of an error: ``the snapshot of run order-42``.
        ttl: for how long it is kept; None for ever.

    Raises:
        WrongLastSequence: another message came first.
        SubjectFull: the subject already holds its message.
        JournalUnavailable: the server did not decide before the append deadline.
        JournalFull: the stream has no room.
        PayloadTooLarge: the server does not accept a message of that size.
        ConfigError: the connection may not publish there.
    """
    try:
        return await connection.publish_decided(subject, data, expect=expect, msg_id=msg_id, ttl=ttl, headers=headers)
    except Undecided as error:
        raise JournalUnavailable(
            f"the server did not decide {what} in time: {error}. Nothing is guessed; try again when it answers."
        ) from error
    except StreamFull as error:
        raise JournalFull(
            f"no room for {what} ({len(data):,} bytes): purge ended runs or raise the stream's limit. "
            f"The server said: {error}"
        ) from error
    except TooLarge as error:
        raise PayloadTooLarge(what, error.size, error.limit) from error
    except Denied as error:
        raise ConfigError(
            f"this connection may not publish to {subject}: give its user that permission. {error}"
        ) from error
