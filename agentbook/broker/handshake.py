"""Whether a server can serve a book: TLS, credentials, version, JetStream; each refusal is one line."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from agentbook.broker.api import NOT_ENABLED, Api
from agentbook.broker.outcomes import ApiError, Denied, NoResponders, Undecided
from agentbook.broker.target import Target
from agentbook.errors import JetStreamDisabled, ServerError, ServerNotFound, ServerTooOld

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


async def check_tls(target: Target, timeout: float) -> None:
    """Refuse a ``tls://`` server that does not insist on TLS: nats-py would send the password in clear.

    Raises:
        ServerError: it says that it does not, or nothing that a NATS server says.
    """
    for address in target.servers:
        parts = urlsplit(address)
        if parts.scheme != "tls":
            continue
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                try:
                    greeting = await reader.readline()
                finally:
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError):
            # Connecting will say it in full.
            continue
        verb, _, told = greeting.partition(b" ")
        info = cast("dict[str, object]", json.loads(told)) if verb == b"INFO" else {}
        if info and not info.get("tls_required"):
            raise ServerError(f"the server at {address} does not require TLS: require it there, or write nats://…")


def refusal(target: Target, causes: list[Exception], timeout: float) -> ServerError:
    """Why no server of a target took us, in one line."""
    # Each was tried once, in order.
    lines = [_why(target, address, cause, timeout) for address, cause in zip(target.servers, causes, strict=False)]
    found = any(kind is ServerError for kind, _ in lines)
    return (ServerError if found else ServerNotFound)("; ".join(text for _, text in lines))


def _why(target: Target, address: str, cause: Exception, timeout: float) -> tuple[type[ServerError], str]:
    text = str(cause)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ServerError, (
            f"the certificate of {address} is not trusted ({cause.verify_message}): "
            "point SSL_CERT_FILE at its authority's certificate"
        )
    if isinstance(cause, ssl.SSLError):
        return ServerError, f"TLS with {address} failed: {getattr(cause, 'reason', None) or text}"
    if "authorization" in text.lower() or "authentication" in text.lower():
        who = f"user {target.user!r}" if target.user else "this token" if target.token else "us without credentials"
        return ServerError, f"the server at {address} refuses {who}: check nats://user:password@host:port"
    if isinstance(cause, socket.gaierror):
        return ServerNotFound, f"the host of {address} is unknown: check its name"
    if isinstance(cause, TimeoutError):
        return (
            ServerNotFound,
            f"nothing at {address} answers like a NATS server within {timeout:g} s: check host and port",
        )
    if isinstance(cause, OSError):
        if target.embedded:
            return ServerNotFound, f"the embedded server at {address} does not answer: see `agentbook status`"
        return ServerNotFound, (
            f"no server at {address} ({_short(cause)}): start one there, or leave the URL out to use the embedded one"
        )
    if "INFO" in text:
        return ServerError, f"what listens at {address} is not a NATS server: check the port"
    return ServerError, f"the server at {address} refuses us: {text or type(cause).__name__}"


def _short(cause: OSError) -> str:
    # asyncio lists every address of a host; the first says enough.
    return "connection refused" if "onnect call failed" in str(cause) else cause.strerror or str(cause)
