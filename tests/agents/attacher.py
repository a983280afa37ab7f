"""A process that attaches to a run when it is told to: one line in, one line of JSON out.

Its arguments are the run's id and the settings; it knows the agent of `agents.billing`.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic import TypeAdapter

import agentbook
from agentbook.settings import Settings
from agents.billing import agent


def main() -> None:
    run, given = sys.argv[1:]
    with agentbook.open(settings=TypeAdapter(Settings).validate_json(given)) as book:
        book.register(agent)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({"pid": os.getpid(), "answer": book.attach(run).wait(40)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
