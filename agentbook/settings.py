"""The settings of a book: one frozen value, read from the environment where it is not given."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

from agentbook.errors import ConfigError

Durability = Literal["disk", "process"]

_PREFIX = "AGENTBOOK_"
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a book behaves. Each field can be set as ``AGENTBOOK_<NAME>`` in the environment.

    Attributes:
        dir: folder of the embedded server and its store.
        durability: ``disk`` survives a power cut (an fsync before each ack);
            ``process`` survives the death of any process, for speed and tests.
        namespace: prefix of every stream, bucket, subject and consumer name; None for none.
        ack_wait: seconds without a heartbeat after which a task is delivered to another worker.
        heartbeat: seconds between heartbeats; None means a third of `ack_wait`.
        append_deadline: seconds for which an undecided append is tried again.
        restart_limit: claims in a row without progress after which a step fails (1 to 1000).
        max_calls: calls within one iteration.
        loop_state_max_bytes: state of a handler without a journal, in bytes.
        max_queued_inputs: queued inputs of one step.
        max_depth: depth of a tree of sub-agents.
        max_children: children of one run.
        retention: seconds for which an ended run is kept.
        server_grace: seconds for which the embedded server outlives its last user.
        concurrency: tasks a book works on at once.
        replicas: replicas of every stream, on a cluster.
        unknown_errors: qualified names of exceptions that leave an outcome unknown.
        secrets: names of environment variables whose values are redacted in records.
        legacy_step_events: accept lifecycle events without identity.
    """

    dir: Path = Path(".agentbook")
    durability: Durability = "disk"
    namespace: str | None = None
    ack_wait: float = 30.0
    heartbeat: float | None = None
    append_deadline: float = 30.0
    restart_limit: int = 5
    max_calls: int = 256
    loop_state_max_bytes: int = 256 * 1024
    max_queued_inputs: int = 1000
    max_depth: int = 8
    max_children: int = 100
    retention: float = 30 * 86400.0
    server_grace: float = 60.0
    concurrency: int = 64
    replicas: int = 1
    unknown_errors: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    legacy_step_events: bool = False

    def __post_init__(self) -> None:
        if self.durability not in get_args(Durability):
            raise ConfigError(f"durability must be 'disk' or 'process', not {self.durability!r}")
        if not 1 <= self.restart_limit <= 1000:
            raise ConfigError(f"restart_limit must be from 1 to 1000, not {self.restart_limit}")
        if not 1 <= self.replicas <= 5:
            raise ConfigError(f"replicas must be from 1 to 5, not {self.replicas}")
        for name in ("ack_wait", "append_deadline", "retention", "server_grace"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is a positive number of seconds, not {getattr(self, name)}")
        if self.heartbeat is not None and not 0 < self.heartbeat < self.ack_wait:
            raise ConfigError(
                f"heartbeat is a number of seconds below ack_wait ({self.ack_wait:g}), not {self.heartbeat}"
            )
        for name in (
            "max_calls",
            "concurrency",
            "max_queued_inputs",
            "max_depth",
            "max_children",
            "loop_state_max_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError(f"a namespace is 1 to 32 letters, digits, '-' and '_', not {self.namespace!r}")

    @property
    def heartbeat_every(self) -> float:
        """Seconds between two heartbeats."""
        return self.heartbeat if self.heartbeat is not None else self.ack_wait / 3

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read ``AGENTBOOK_*`` variables over the defaults.

        Raises:
            ConfigError: a variable's text is not of its field's type, or a value is out of range.
        """
        environ = os.environ if environ is None else environ
        given: dict[str, object] = {}
        for field in fields(cls):
            variable = _PREFIX + field.name.upper()
            if variable in environ:
                given[field.name] = _parse(variable, environ[variable], field.default)
        return replace(cls(), **given)  # pyright: ignore[reportArgumentType] - parsed by each field's own type


def _parse(variable: str, text: str, default: object) -> object:
    kind = type(default).__name__
    try:
        match default:
            case bool():
                return _SWITCH[text.lower()]
            case int():
                return int(text)
            case float():
                return float(text)
            case None if variable == f"{_PREFIX}HEARTBEAT":
                kind = "float"
                return float(text)
            case tuple():
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case Path():
                return Path(text)
            case _:
                return text or None
    except (ValueError, KeyError):
        raise ConfigError(f"{variable}={text!r} is not a {kind}") from None
