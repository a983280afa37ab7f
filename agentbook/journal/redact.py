"""Secrets never reach a record: they are replaced, visibly, where records are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from agentbook.codec.tags import TAG
from agentbook.errors import ConfigError

SHORTEST = 6
"""Characters of the shortest secret: a shorter one would cut ordinary text to pieces."""

_OWN = frozenset(
    {
        "kind", "run", "step", "claim", "at", "name", "replay", "key", "action", "reason", "outcome", "mode",
        "code", "request", "subjects", "id", "request_id", "inputs", "args", "wake_at", "wait",
    }
)  # fmt: skip
"""Fields by which a record is read and its calls are told apart: no values of a tool, a model or a person."""


class Redactor:
    """Knows the secrets of a book. Callable from any thread.

    Example:
        >>> secrets = Redactor()
        >>> secrets.add("sk-12345678", "KEY")
        >>> secrets.value({"header": "Bearer sk-12345678"})
        {'header': 'Bearer «redacted: KEY»'}
    """

    def __init__(self, variables: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> None:
        self._marks: dict[str, str] = {}
        environ = os.environ if environ is None else environ
        for name in variables:
            if environ.get(name):
                self.add(environ[name], name)

    def add(self, secret: str, name: str = "secret") -> None:
        """Replace a text from now on; what is written already stays as it is.

        Args:
            secret: the text.
            name: what stands in the mark that takes its place.

        Raises:
            ConfigError: it is too short.
        """
        if len(secret) < SHORTEST:
            raise ConfigError(
                f"{name} has {len(secret)} characters; a secret has at least {SHORTEST}, "
                "or redacting it would cut ordinary text to pieces"
            )
        marks = {**self._marks, secret: f"«redacted: {name}»"}
        # The longest first: a secret may hold another one.
        self._marks = dict(sorted(marks.items(), key=lambda pair: -len(pair[0])))

    def encoded(self, data: bytes) -> bytes:
        """A record without the secrets. Costs one search for each secret where there are none.

        Its own words stay, whatever is secret: a record without its kind, run or key could not be read.
        """
        if not any(to_json(secret)[1:-1] in data for secret in self._marks):
            return data
        fields = cast("dict[str, JsonValue]", from_json(data))
        return to_json({name: value if name in _OWN else self._walk(value) for name, value in fields.items()})

    def value(self, value: JsonValue) -> JsonValue:
        """A JSON value without the secrets."""
        return self._walk(value) if self._marks else value

    def text(self, text: str) -> str:
        """A text without the secrets."""
        for secret, mark in self._marks.items():
            text = text.replace(secret, mark)
        return text

    def _walk(self, value: JsonValue) -> JsonValue:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self._walk(item) for item in value]
            case dict():
                # What the codec says of a value's type is no text of anybody's.
                return {
                    key if key.startswith("$") else self.text(key): item if key == TAG else self._walk(item)
                    for key, item in value.items()
                }
            case _:
                return value
