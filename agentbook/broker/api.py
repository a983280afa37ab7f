"""The JetStream API over a wire: one request, its answer or an error of ours."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from typing import cast

from agentbook.broker.folder import Folder
from agentbook.broker.outcomes import (
    Ack,
    ApiError,
    PublishError,
    StreamFull,
    SubjectFull,
    TooLarge,
    Undecided,
    WrongLastSequence,
)
from agentbook.broker.requests import Requests
from agentbook.broker.wire import Wire
from agentbook.errors import JournalUnavailable

Json = dict[str, object]

NO_MESSAGE = 10037
STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
CONSUMER_EXISTS = (10148, 10105)
STREAM_EXISTS = 10058
NOT_ENABLED = (10076, 10039)

_SEQUENCE = (10071, 10164)
_SIZE = (10054, 10097)
_NO_ROOM = (10047, 10023, 10002, 10122)
_STORE_FAILED = 10077
_DUPLICATE_IN_PROCESS = 10158


class Api:
    """JetStream requests, each tried until it is decided or its deadline has passed."""

    def __init__(self, wire: Wire, requests: Requests, deadline: float, folder: Folder | None = None) -> None:
        self._wire = wire
        self._folder = folder
        self._requests = requests
        self._deadline = deadline

    async def once(self, operation: str, body: Json | None = None, timeout: float = 5.0) -> Json:
        """One request.

        Raises:
            ApiError: the server refused it.
            Undecided: no answer, or "not now".
        """
        data = b"" if body is None else json.dumps(body).encode()
        reply = await self._requests.call(f"$JS.API.{operation}", data, timeout)
        answer = json_object(reply.data)
        if "error" in answer:
            code, error, text = _error(answer)
            if code == 503 and error not in NOT_ENABLED:
                raise Undecided(text, error)
            raise ApiError(text, error)
        return answer

    async def call(self, operation: str, body: Json | None = None, timeout: float = 5.0) -> Json:
        """The same request again, with back-off, until it is decided.

        Raises:
            ApiError: the server refused it.
            JournalUnavailable: it was not decided before the deadline.
        """
        last: Undecided | None = None
        async for left in self.tries(self._deadline):
            try:
                return await self.once(operation, body, min(timeout, left))
            except Undecided as undecided:
                last = undecided
        raise JournalUnavailable(f"JetStream did not answer {operation} in {self._deadline:g} s: {last}{self.hint()}")

    async def publish(self, subject: str, data: bytes, headers: Mapping[str, str] | None, timeout: float) -> Ack:
        """One try to store a message. Raises as `Connection.publish` does."""
        reply = await self._requests.call(subject, data, timeout, headers)
        answer = json_object(reply.data)
        if "error" in answer:
            code, error, text = _error(answer)
            raise refusal(code, error, text, len(data), self._wire.max_payload)
        return Ack(seq=cast("int", answer["seq"]), duplicate=bool(answer.get("duplicate")))

    def hint(self) -> str:
        """Why an embedded server may not answer: with its disk full, it says nothing at all."""
        if self._folder is not None and self._folder.full():
            return f"; the disk of {self._folder.path} is full: free some space"
        return ""

    async def tries(self, deadline: float) -> AsyncIterator[float]:
        """Yield the seconds left before each try: at once, then with back-off.

        While there is no connection it waits for one, and tries again as soon as it is back.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        pause = 0.02
        yield deadline
        while (left := end - loop.time()) > 0 and not self._wire.closed:
            if self._wire.up.is_set():
                await asyncio.sleep(min(pause * random.uniform(0.7, 1.3), left))  # noqa: S311 - jitter, not a secret
                pause = min(pause * 2, 1.0)
            else:
                try:
                    async with asyncio.timeout(left):
                        await self._wire.up.wait()
                except TimeoutError:
                    return
            left = end - loop.time()
            if left > 0:
                yield left


def refusal(code: int, error: int, text: str, size: int, limit: int) -> PublishError:
    """The meaning of a refused publish (JOURNAL.md, Append)."""
    if error in _SEQUENCE:
        return WrongLastSequence(text, error)
    if error == _STORE_FAILED:
        # One code for each failure of the store: only the text tells them apart.
        if "per subject" in text:
            return SubjectFull(text, error)
        if "maximum" in text or "no space" in text:
            return StreamFull(text, error)
        return Undecided(text, error)
    if error in _NO_ROOM:
        return StreamFull(text, error)
    if error in _SIZE:
        return TooLarge(size, limit)
    if code in (503, 429) or error == _DUPLICATE_IN_PROCESS:
        return Undecided(text, error)
    return PublishError(text, error)


def json_object(data: bytes) -> Json:
    value: object = json.loads(data)
    assert isinstance(value, dict)
    return cast("Json", value)


def _error(answer: Json) -> tuple[int, int, str]:
    error = cast("Json", answer["error"])
    return (
        cast("int", error.get("code", 0)),
        cast("int", error.get("err_code", 0)),
        str(error.get("description", "no reason given")),
    )
