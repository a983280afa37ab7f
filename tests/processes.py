"""Child processes of tests, and whether a process is still there."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path


def alive(pid: int) -> bool:
    """False also for a process that has ended and only waits to be collected."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition, seconds: float = 10.0) -> None:
    """Wait on an effect that another process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.01)


@contextmanager
def python(code: str, *arguments: str, **more):
    """A child that runs `code`; killed at the end if it is still there."""
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, **more)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()
