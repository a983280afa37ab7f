"""The embedded server, from the user's side: take a lease, look, take it down."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import agentbook
from agentbook import errors
from agentbook.broker.binary import find_server
from agentbook.broker.folder import Folder
from agentbook.broker.keeper import LOST_RACE
from agentbook.broker.target import Target
from agentbook.errors import ConfigError, ServerError, StoreUnavailable, UsageError
from agentbook.settings import Settings

Answer = dict[str, object]

_START = 75.0
_ANSWER = 10.0

# A keeper outlives the book that started it: it gets what a process needs to run, no keys.
_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "XDG_RUNTIME_DIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Status:
    """An embedded server as its keeper sees it.

    Attributes:
        server_pid: None while it is being restarted.
        leases: the process ids of its users.
        restarts: how often the keeper brought the server back.
        since: when the keeper started, in seconds since the epoch.
        grace: seconds for which it outlives its last user.
        trouble: why the server does not start, empty if it does.
    """

    dir: Path
    url: str
    durability: str
    keeper_pid: int
    server_pid: int | None
    leases: list[int]
    restarts: int
    since: float
    grace: float
    trouble: str


class Lease:
    """The right to an embedded server. It ends with `release`, or with this process.

    If the keeper itself is killed, the lease brings a new one up on the same port.

    Attributes:
        dir: its folder.
        target: where the server is.
        keeper_pid: the process that holds it.
    """

    def __init__(self, settings: Settings, folder: Folder, held: socket.socket, answer: Answer) -> None:
        self._settings = settings
        self._folder = folder
        self.dir = folder.path
        self._socket = held
        self._released = threading.Event()
        self._take(answer)
        _leases.add(self)
        threading.Thread(target=self._watch, name="agentbook-lease", daemon=True).start()

    def server_pid(self) -> int | None:
        """The server's process id, None while it is being restarted."""
        found = _status(self._folder)
        return found.server_pid if found else None

    def release(self) -> None:
        """Give the lease back. Doing so twice is fine."""
        self._released.set()
        _leases.discard(self)
        _close(self._socket)

    def _take(self, answer: Answer) -> None:
        self.target = _target(answer)
        self.keeper_pid = cast("int", answer["keeper"])

    def _watch(self) -> None:
        while True:
            bye = False
            with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
                bye = any("bye" in cast("Answer", json.loads(line)) for line in lines)
            if bye or self._released.is_set():
                return
            try:
                held, answer = _hold(self._settings, self._folder)
            except (ServerError, ConfigError, OSError):
                # Its book sees the connection stay down; the next open says why.
                return
            self._socket.close()
            self._socket = held
            self._take(answer)
            if self._released.is_set():
                _close(held)
                return

    def forget(self) -> None:
        """In a forked child: the lease is the parent's, not ours to keep alive."""
        # Not `close`: the watching thread, which no child has, still counts as a user of it.
        with contextlib.suppress(OSError):
            os.close(self._socket.detach())


_leases: weakref.WeakSet[Lease] = weakref.WeakSet()


def _after_fork() -> None:
    for lease in list(_leases):
        lease.forget()


os.register_at_fork(after_in_child=_after_fork)


def acquire(settings: Settings) -> Lease:
    """Start the folder's server, or join it. Callable from any thread.

    Raises:
        ConfigError: it runs with another durability.
        StoreUnavailable: the folder cannot be used; the text says why.
        ServerNotFound: no nats-server is installed.
        ServerError: it does not start for another reason.
    """
    folder = Folder(settings.dir)
    held, answer = _hold(settings, folder)
    return Lease(settings, folder, held, answer)


def status(settings: Settings) -> Status | None:
    """The server of this folder, or None if none runs."""
    return _status(Folder(settings.dir))


def down(settings: Settings, *, force: bool = False) -> bool:
    """Stop the folder's server, and wait until it is gone.

    Args:
        force: also while others use it.

    Returns:
        False if none ran.

    Raises:
        UsageError: others use it.
    """
    folder = Folder(settings.dir)
    end = time.monotonic() + _START
    ran = False
    # One that starts or ends does not answer, but has the folder.
    while (found := _ask(folder, {"op": "down", "force": force})) is None:
        if not folder.locked() or time.monotonic() > end:
            return ran
        ran = True
        time.sleep(0.02)
    held, answer = found
    with held:
        if users := cast("list[int] | None", answer.get("in_use")):
            names = ", ".join(str(pid) for pid in users)
            raise UsageError(f"the server in {folder.path} is in use by process {names}: close it there, or force it")
        held.settimeout(_START)
        while held.recv(4096):
            pass
    end = time.monotonic() + _ANSWER
    while folder.locked() and time.monotonic() < end:
        time.sleep(0.01)
    return True


def _hold(settings: Settings, folder: Folder) -> tuple[socket.socket, Answer]:
    """A socket that holds a lease, and what the keeper said."""
    asked: Answer = {
        "op": "lease",
        "pid": os.getpid(),
        "durability": settings.durability,
        "grace": settings.server_grace,
    }
    end = time.monotonic() + _START
    prepared = False
    while time.monotonic() < end:
        found = _ask(folder, asked)
        if found is not None:
            held, answer = found
            if "keeper" in answer:
                return held, answer
            held.close()
            raise ConfigError(
                f"the server in {folder.path} runs with durability {answer.get('durability')!r}, "
                f"not {settings.durability!r}: use the same, or another dir, or take it down first"
            )
        if not prepared:
            folder.prepare()
            prepared = True
        if folder.locked():
            # Another is starting it, or it is just ending.
            time.sleep(0.02)
        else:
            _spawn(settings, folder)
    pid = folder.read_state().get("keeper", "unknown")
    raise StoreUnavailable(
        f"{folder.path} is in use by another server (keeper {pid}) that does not answer: "
        "stop it there, or choose another folder with dir=…"
    )


def _spawn(settings: Settings, folder: Folder) -> None:
    """Start a keeper and wait until its server listens. Losing the race to another is fine."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment["PYTHONPATH"] = str(Path(agentbook.__file__).parent.parent)
    # -P: nothing in the user's current folder may stand in for a module of ours.
    command = [sys.executable, "-P", "-m", "agentbook.broker.keeper", str(folder.path), str(find_server())]
    try:
        started = subprocess.run(  # noqa: S603 - our own module
            [*command, settings.durability, str(settings.server_grace)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_START,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"the keeper did not start: {error}") from None
    try:
        outcome = cast("Answer", json.loads(started.stdout))
    except ValueError:
        said = started.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ServerError(f"the keeper did not start: {said[-1] if said else 'it said nothing'}") from None
    if "error" in outcome and outcome["error"] != LOST_RACE:
        kind = getattr(errors, str(outcome["error"]), ServerError)
        raise cast("type[ServerError]", kind)(str(outcome["text"]))


def _ask(folder: Folder, asked: Answer) -> tuple[socket.socket, Answer] | None:
    """Ask the folder's keeper. None: there is none that answers."""
    path = folder.read_state().get("socket")
    if not isinstance(path, str):
        return None
    asking = socket.socket(socket.AF_UNIX)
    try:
        asking.settimeout(_ANSWER)
        asking.connect(path)
        asking.sendall(json.dumps(asked).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            data = asking.recv(65536)
            if not data:
                break
            line += data
        answer = cast("Answer", json.loads(line))
    except (OSError, ValueError):
        asking.close()
        return None
    if "bye" in answer:
        asking.close()
        return None
    asking.settimeout(None)
    return asking, answer


def _status(folder: Folder) -> Status | None:
    found = _ask(folder, {"op": "status"})
    if found is None:
        return None
    asking, answer = found
    asking.close()
    return Status(
        dir=folder.path,
        url=_target(answer).url,
        durability=cast("str", answer["durability"]),
        keeper_pid=cast("int", answer["keeper"]),
        server_pid=cast("int | None", answer["server"]),
        leases=cast("list[int]", answer["leases"]),
        restarts=cast("int", answer["restarts"]),
        since=cast("float", answer["since"]),
        grace=cast("float", answer["grace"]),
        trouble=cast("str", answer["trouble"]),
    )


def _target(answer: Answer) -> Target:
    return Target(
        url=f"nats://{answer['host']}:{answer['port']}",
        user=cast("str", answer["user"]),
        password=cast("str", answer["password"]),
        embedded=True,
    )


def _close(held: socket.socket) -> None:
    with contextlib.suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)
    held.close()
