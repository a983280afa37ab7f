"""What a server can say to a publish, without nats-py's types (JOURNAL.md, Append).

These stay inside agentbook: each caller turns them into an error that says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ack:
    """The server stored the message, or already had it.

    Attributes:
        seq: its sequence in the stream.
        duplicate: True if its id was seen before.
    """

    seq: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a stream holds it."""

    seq: int
    subject: str
    data: bytes
    headers: dict[str, str]


class PublishError(Exception):
    """The server did not store the message.

    Attributes:
        code: its JetStream error code, 0 if there was none.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class WrongLastSequence(PublishError):
    """Another message came first (10071), or one is being applied (10164)."""


class SubjectFull(PublishError):
    """The subject holds as many messages as it may: this one was published before."""


class StreamFull(PublishError):
    """The stream has no room."""


class TooLarge(PublishError):
    """The message is larger than the server accepts.

    Attributes:
        size: its size, in bytes.
        limit: what the server accepts, in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size:,} bytes, at most {limit:,}")
        self.size = size
        self.limit = limit


class Denied(PublishError):
    """The connection may not publish there."""


class Undecided(PublishError):
    """No answer, or "not now": the message may or may not be stored."""


class NotConnected(Undecided):
    """There is no connection: this try was certainly not sent, an earlier one may have been."""


class NoResponders(Undecided):
    """Nobody listens on the subject: the stream is missing, or the server is still starting."""


class ShortRead(Exception):
    """A read ended before the message it should have ended at, however often it was repeated.

    Attributes:
        reached: the sequence of the last message read, 0 if there was none.
        upto: the sequence that should have been reached.
    """

    def __init__(self, stream: str, subject: str, reached: int, upto: int) -> None:
        super().__init__(f"{subject} in {stream} ends at {reached}, expected {upto}")
        self.reached = reached
        self.upto = upto


class ApiError(Exception):
    """The JetStream API refused a request.

    Attributes:
        code: its JetStream error code.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


class ConsumerGone(ApiError):
    """The durable consumer does not exist any more: ensure it again."""
