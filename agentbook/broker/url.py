"""Reading a connection string: what a person may write, and what is wrong with it."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import SplitResult, unquote, urlsplit

from agentbook.broker.target import Target
from agentbook.errors import ConfigError

_PORTS = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_SHAPE = "write nats://user:password@host:4222 (or tls, ws, wss), several with commas"


def parse(url: str) -> Target:
    """The target of a connection string.

    Accepted: one or more addresses with commas between them; ``host``, ``host:port``,
    ``scheme://host:port``; IPv6 addresses in brackets; ``user:password@`` or ``token@``, in which
    special characters are percent-encoded.

    Raises:
        ConfigError: it cannot be read, or needs what is not installed. Never shows a password.
    """
    shown = _without_login(url)
    parts = [_split(text.strip(), shown, shown != url) for text in url.split(",") if text.strip()]
    if not parts:
        raise ConfigError(f"the URL is empty: {_SHAPE}")
    schemes = {part.scheme for part in parts}
    web = schemes & {"ws", "wss"}
    if web and schemes - {"ws", "wss"}:
        raise ConfigError("a URL with several addresses may not mix ws:// or wss:// with nats:// or tls://")
    if web and find_spec("aiohttp") is None:
        raise ConfigError("ws:// and wss:// need aiohttp: `pip install aiohttp`, or use a nats:// URL")
    logins = {(part.username, part.password) for part in parts if part.username is not None}
    if len(logins) > 1:
        raise ConfigError("a URL with several addresses may hold only one user and password")
    user, password = next(iter(logins), (None, None))
    addresses = ",".join(_address(part) for part in parts)
    if user is not None and password is None:
        return Target(addresses, token=unquote(user))
    return Target(
        addresses,
        user=unquote(user) if user is not None else None,
        password=unquote(password) if password is not None else None,
    )


def _split(text: str, shown: str, hidden: bool) -> SplitResult:
    written = text if "://" in text else f"nats://{text}"
    problem = ""
    try:
        part = urlsplit(written)
        port = part.port
    except ValueError:
        # Its own text may quote a piece of a password.
        port, part = 0, urlsplit("nats://")
        problem = "has no readable port"
    if not problem and part.scheme not in _PORTS:
        problem = f"has the unknown scheme {part.scheme!r}"
    elif not problem and (not part.hostname or port == 0 or any(character.isspace() for character in written)):
        problem = "names no host and port"
    elif not problem and (part.query or part.fragment or (part.path not in ("", "/") and part.scheme[:2] != "ws")):
        problem = "has something after the port"
    if not problem:
        return part
    if hidden:
        problem += ". Percent-encode ',', '/', '?', '#', '@' and ':' in a password"
    elif written.count(":") > 2:
        problem += ". An IPv6 address needs brackets: nats://[::1]:4222"
    raise ConfigError(f"URL {shown!r} {problem}; {_SHAPE}")


def _address(part: SplitResult) -> str:
    host = part.hostname or ""
    host = f"[{host}]" if ":" in host else host
    path = part.path if part.path != "/" else ""
    return f"{part.scheme}://{host}:{part.port or _PORTS[part.scheme]}{path}"


def _without_login(url: str) -> str:
    """The URL as it may be shown: a password may hold any of the characters we split at."""
    scheme, mark, rest = url.partition("://")
    if "@" not in url:
        return url
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else url.rpartition("@")[2]
