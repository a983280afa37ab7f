"""Holders as child processes: they can really be killed."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from agentbook.authoring import Agent
from agentbook.crashlab.faults import Fault
from agentbook.errors import ConfigError, MissingExtra
from agentbook.settings import Settings


@dataclass(frozen=True, slots=True)
class HolderProcess:
    """A child process with a book and a worker of its own.

    Attributes:
        process: the process; `kill`, `stall` and `wake` send it real signals.
    """

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self, timeout: float = 30.0) -> int:
        """Wait until it ends.

        Args:
            timeout: seconds.

        Returns:
            Its return code; -9 if it was killed.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        return self.process.wait(timeout)

    def wait_stalled(self, timeout: float = 30.0) -> None:
        """Wait until it is stopped by a ``stall`` fault.

        Raises:
            TimeoutError: it is not stopped within `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            # The kernel's own word: field 3 of /proc/PID/stat, after the name in brackets.
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise TimeoutError(f"process {self.pid} did not stop at its seam (return code {self.process.poll()})")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)

    def stall(self) -> None:
        """SIGSTOP: it keeps its connections and its claim, and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def holder(
    agent: Agent | str,
    *,
    settings: Settings | None = None,
    url: str | None = None,
    fault: Fault | None = None,
    start: str | None = None,
    input: object = None,  # noqa: A002 - the field's word for it
    environment: dict[str, str] | None = None,
) -> HolderProcess:
    """Start a child process that works on the runs of an agent until it is killed.

    Args:
        agent: the agent, as a notebook defines it, or where it is: ``module:name``.
        settings: as for `agentbook.open`; the child uses the same folder.
        url: a server, instead of the folder's.
        fault: what happens to the child, and at which seam; None for nothing.
        start: the id of a run that the child starts itself.
        input: that run's input; JSON.
        environment: more variables for the child.

    Raises:
        ConfigError: the agent cannot travel to another process.

    Example:
        >>> from agentbook import crashlab
        >>> child = crashlab.holder(agent, fault=crashlab.Fault("inside_tool"), start="order-42")  # doctest: +SKIP
        >>> child.wait()  # doctest: +SKIP
        -9
    """
    settings = settings or Settings.from_environment()
    order = {
        "agent": _portable(agent),
        "path": [entry for entry in sys.path if entry],
        "settings": {**asdict(settings), "dir": str(settings.dir.absolute())},
        "url": url,
        "fault": None if fault is None else asdict(fault),
        "start": start,
        "input": input,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "agentbook.crashlab.child"],
        stdin=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return HolderProcess(process)


def _portable(agent: Agent | str) -> dict[str, str]:
    """How the child finds the agent: by its place, or by value with what its cells defined."""
    if isinstance(agent, str):
        if ":" not in agent:
            raise ConfigError(f"{agent!r} does not say where the agent is: write module:name, or give the agent itself")
        return {"place": agent}
    try:
        import cloudpickle
    except ImportError:
        raise MissingExtra("an agent of a notebook in a child process", "notebook") from None
    _ = agent.code  # read here, where the cells' sources are known, so that the child claims with the same digest
    try:
        return {"value": base64.b64encode(cloudpickle.dumps(agent)).decode()}  # pyright: ignore[reportUnknownMemberType] - untyped
    except (TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            f"agent {agent.name} cannot travel to another process: {error}. Its tools or model hold something of "
            "this process, such as an open connection or a lock: make it inside the tool."
        ) from error
