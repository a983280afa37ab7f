"""Identifiers: what a run or step may be called, and the keys derived from them."""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid

from agentbook.errors import ConfigError

_ROOT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_ANY_RUN = re.compile(r"[A-Za-z0-9_~-]{1,512}\Z")
_TYPE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def check_run_id(run: str) -> str:
    """Accept the id of a root run, or say what is allowed.

    Raises:
        ConfigError: the id is empty, too long or holds another character.
    """
    if not _ROOT.match(run):
        raise ConfigError(
            f"run id {run!r} is not usable: 1 to 64 letters, digits, '-' and '_' "
            "('~' is reserved for sub-agents). Put free text in title=… or labels=…"
        )
    return run


def check_any_run_id(run: str) -> str:
    """Accept the id of a root or child run.

    Raises:
        ConfigError: the id cannot be one.
    """
    if not _ANY_RUN.match(run):
        raise ConfigError(f"run id {run!r} is not usable: letters, digits, '-', '_' and, in child runs, '~'")
    return run


def check_name(what: str, name: str) -> str:
    """Accept the name of an agent, workflow, handler or step as one subject token.

    Raises:
        ConfigError: it holds a character that is not allowed.
    """
    if not _TYPE.match(name):
        raise ConfigError(f"{what} name {name!r} is not usable: 1 to 64 letters, digits, '-' and '_'")
    return name


def text_token(text: str) -> str:
    """The subject token of a text that a person or a model chose: 32 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def new_run_id() -> str:
    """A UUIDv7: unique, and in order of creation (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def new_claim_id() -> str:
    """A claim's identity: 128 random bits in hexadecimal."""
    return os.urandom(16).hex()


def call_key(run: str, step: str, iteration: int, call: int) -> str:
    """The idempotency key of a positional call (JOURNAL.md, Envelope)."""
    return f"{run}.{step}.{iteration}.{call}"


def step_key(run: str, step: str, name: str) -> str:
    """The idempotency key of a named step (COMPOSE.md, step)."""
    return f"{run}.{step}.@{name}"
