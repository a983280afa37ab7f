"""Whether a server can serve a book: its version, and JetStream for this user."""

from __future__ import annotations

from collections.abc import Mapping

from agentbook.broker.api import NOT_ENABLED, Api
from agentbook.broker.outcomes import ApiError, Denied, NoResponders, Undecided
from agentbook.errors import JetStreamDisabled, ServerError, ServerTooOld

NEEDED = (2, 12)
"""The first server version with message schedules."""

_HINT = "start it with `nats-server -js`, or leave the URL out to use the embedded server"


async def check_server(info: Mapping[str, object], api: Api, url: str) -> None:
    """Accept a server, or say in one line what it lacks.

    Raises:
        ServerTooOld: it lacks message schedules.
        JetStreamDisabled: it runs, or this user's account does, without JetStream.
        ServerError: the user may not use JetStream.
    """
    check_version(str(info.get("version", "0")))
    try:
        await api.once("INFO", timeout=5.0)
    except ApiError as error:
        if error.code in NOT_ENABLED:
            raise JetStreamDisabled(f"the server at {url} has no JetStream for this account: {_HINT}") from None
        raise ServerError(f"the server at {url} refuses JetStream: {error}") from None
    except NoResponders:
        raise JetStreamDisabled(f"the server at {url} runs without JetStream: {_HINT}") from None
    except Denied as denied:
        raise ServerError(f"the server at {url}: {denied}; grant it $JS.> and _INBOX.>") from None
    except Undecided as undecided:
        raise ServerError(f"JetStream at {url} does not answer: {undecided}") from None


def check_version(version: str) -> None:
    """Refuse a server without message schedules.

    Raises:
        ServerTooOld: it names both versions.
    """
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < NEEDED:
        raise ServerTooOld(version, ".".join(map(str, NEEDED)))
