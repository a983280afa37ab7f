"""What really started, counted in a file outside the journal, whatever the journal says.

`LEDGER` in the environment names the file; each process writes what agentbook logs beside it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One start of a model request or a tool."""

    kind: str
    name: str
    key: str
    pid: int


def note(kind: str, name: str, key: str = "") -> None:
    """Count one start: a single write, so that a kill leaves a whole line or none."""
    line = json.dumps({"kind": kind, "name": name, "key": key, "pid": os.getpid()}) + "\n"
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


class Ledger:
    """The file, from the test's side."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        return [Entry(**json.loads(line)) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def count(self, name: str) -> int:
        """How often a tool or model was started."""
        return sum(entry.name == name for entry in self.entries())

    def starts(self) -> Counter[tuple[str, str]]:
        """How often each call was started, by name and key."""
        return Counter((entry.name, entry.key) for entry in self.entries())

    def await_log(self, pid: int, text: str, seconds: float = 10.0) -> None:
        """Wait until a process has logged a text."""
        path = self.path.with_name(f"log-{pid}")
        end = time.monotonic() + seconds
        while not path.exists() or text not in path.read_text():
            assert time.monotonic() < end, f"process {pid} did not log {text!r}"
            time.sleep(0.01)


def write_log() -> None:
    """Keep what agentbook logs in this process, if it is a child of a test."""
    if "LEDGER" in os.environ:
        handler = logging.FileHandler(Path(os.environ["LEDGER"]).with_name(f"log-{os.getpid()}"))
        logging.getLogger("agentbook").addHandler(handler)
        logging.getLogger("agentbook").setLevel(logging.INFO)
