"""The child of `crashlab.holder`: a worker that lives until it is killed or its parent is gone."""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import sys

from pydantic import TypeAdapter

from agentbook.authoring import Agent
from agentbook.book import open as open_book
from agentbook.crashlab.faults import Fault, install
from agentbook.errors import ConfigError
from agentbook.settings import Settings


def main() -> None:
    """Read one order from standard input, then work until standard input ends."""
    order = json.loads(sys.stdin.readline())
    sys.path[:] = order["path"]
    agent = _agent(order["agent"])
    settings = TypeAdapter(Settings).validate_python(order["settings"])
    if order["fault"] is not None:
        install(Fault(**order["fault"]))
    with open_book(order["url"], settings=settings) as book:
        if order["start"] is not None:
            book.start(agent, order["input"], run_id=order["start"])
        else:
            book.register(agent)
        # Ends when the parent closes the pipe, also by dying.
        sys.stdin.read()


def _agent(given: dict[str, str]) -> Agent:
    if "place" in given:
        module, _, name = given["place"].partition(":")
        found = getattr(importlib.import_module(module), name)
    else:
        # From our parent's own pipe, nobody else can write to it.
        found = pickle.loads(base64.b64decode(given["value"]))  # noqa: S301
    if not isinstance(found, Agent):
        raise ConfigError(f"{given.get('place', 'the given value')} is a {type(found).__name__}, not an Agent")
    return found


if __name__ == "__main__":
    main()
