"""The process that holds a folder's nats-server for as long as someone has a lease on it.

``python -m agentbook.broker.keeper FOLDER BINARY DURABILITY GRACE`` detaches itself and
prints one line of JSON when the server listens, or why it does not. It restarts a server that
dies, on the same port. A lease is an open connection to its local socket: a holder that is
killed gives its lease back by dying. When the last one has been gone for the grace, server and
keeper end. Only the standard library is imported here: a keeper starts in a tenth of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from agentbook.broker.folder import Folder, private_parent
from agentbook.broker.server import Login, Server, users_of
from agentbook.errors import ServerError, StoreUnavailable

LOST_RACE = "another keeper has the folder"

_CHECK = 2.0
_MOST_PAUSE = 5.0
_TRIES_ON_PORT = 8


@dataclass(slots=True)
class _Client:
    """One connection to the socket: it holds a lease once it has asked for one."""

    socket: socket.socket
    pid: int | None = None
    buffer: bytes = b""


class Keeper:
    """Holds one server, and serves leases on it, until the last lease is gone."""

    def __init__(self, folder: Folder, lock: int, binary: str, durability: str, grace: float) -> None:
        self._folder = folder
        self._lock = lock
        self._durability = durability
        self._grace = grace
        self._began = time.time()
        self._restarts = 0
        self._clients: dict[int, _Client] = {}
        self._unused_since = time.monotonic()
        self._retry_at: float | None = None
        self._pause = 0.0
        self._failures = 0
        self._trouble = ""
        self._starved = False
        self._stopping = False
        self._server = Server(binary, folder, durability, Login.recall(folder.read_state()))
        self._selector = selectors.DefaultSelector()
        self._listener, self.socket_path = _listen(folder)
        self._woken, wake = socket.socketpair()
        for end in (self._woken, wake):
            end.setblocking(False)
        # Each signal writes a byte here, so that waiting for clients notices it.
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, _noticed)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def start(self) -> None:
        """Start the server. Raises as `Server.start`."""
        others = self._others()
        if others:
            raise StoreUnavailable(
                f"{self._folder.path} is in use by another server (process {others[0]}): "
                "stop it, or choose another folder with dir=…"
            )
        self._server.start()
        self._save()

    def _others(self) -> list[int]:
        """Foreign users of the store. The server of a killed keeper is given time to end."""
        orphan = self._folder.read_state().get("server")
        for attempt in range(100):
            others = users_of(self._folder)
            if orphan not in others:
                return others
            if attempt == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(cast("int", orphan), signal.SIGTERM)
            time.sleep(0.02)
        return users_of(self._folder)

    def run(self) -> None:
        """Serve until the last lease has been gone for the grace, or SIGTERM, or the folder vanishes."""
        while not self._stopping:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                else:
                    self._hear(self._clients[key.fd])
            self._tend()
            self._make_room()
            if not self._folder.owns(self._lock):
                return
            if not self._leases() and time.monotonic() - self._unused_since >= self._grace:
                return

    def close(self) -> None:
        """End the server, tell the leases not to look for another, and leave nothing behind."""
        # Closed first: who comes now finds no socket and waits for the lock.
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.socket_path)  # noqa: PTH108 - a plain string, on purpose: its length is checked in bytes
        self._server.stop()
        for client in list(self._clients.values()):
            self._send(client, {"bye": True})
            client.socket.close()

    def _end(self, *_: object) -> None:
        self._stopping = True

    def _leases(self) -> list[int]:
        return [client.pid for client in self._clients.values() if client.pid is not None]

    def _patience(self) -> float:
        now = time.monotonic()
        patience = _CHECK
        if self._retry_at is not None:
            patience = min(patience, self._retry_at - now)
        if not self._leases():
            patience = min(patience, self._unused_since + self._grace - now)
        return max(0.0, patience)

    def _tend(self) -> None:
        """Bring a dead server back: at once the first time, with back-off if it does not stay."""
        if self._server.pid is not None:
            return
        now = time.monotonic()
        if self._retry_at is None:
            self._retry_at = now + self._pause
            self._pause = min(_MOST_PAUSE, self._pause * 2 + 0.1)
        if now < self._retry_at:
            return
        self._retry_at = None
        self._restarts += 1
        try:
            self._server.start()
        except (ServerError, OSError) as error:
            self._trouble = str(error)
            self._failures += 1
            if self._failures % _TRIES_ON_PORT == 0:
                # Someone else has the port: better found by new books than by nobody.
                self._server.move()
        else:
            self._pause, self._failures, self._trouble = 0.0, 0, ""
            self._save()

    def _make_room(self) -> None:
        """Restart a server whose disk was full, once there is room.

        A stream that met a full disk refuses every later write, without an answer, until it is loaded anew.
        """
        if self._server.ran_out_of_space():
            self._starved = True
            self._trouble = f"the disk of {self._folder.path} is full: free some space"
        if self._starved and not self._folder.full():
            self._starved = False
            self._trouble = ""
            self._server.stop()
            self._tend()

    def _save(self) -> None:
        self._folder.write_state(
            {
                "keeper": os.getpid(),
                "server": self._server.pid,
                "socket": self.socket_path,
                "port": self._server.login.port,
                "password": self._server.login.password,
                "durability": self._durability,
            }
        )

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connected, _ = self._listener.accept()
            connected.setblocking(False)
            self._clients[connected.fileno()] = _Client(connected)
            self._selector.register(connected, selectors.EVENT_READ)

    def _hear(self, client: _Client) -> None:
        try:
            data = client.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        client.buffer += data
        try:
            while b"\n" in client.buffer:
                line, client.buffer = client.buffer.split(b"\n", 1)
                self._answer(client, cast("dict[str, object]", json.loads(line)))
        except (ValueError, LookupError, TypeError):
            # Not a client of ours, or of another version.
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        had = client.pid is not None
        self._selector.unregister(client.socket)
        del self._clients[client.socket.fileno()]
        client.socket.close()
        if had and not self._leases():
            self._unused_since = time.monotonic()

    def _answer(self, client: _Client, asked: dict[str, object]) -> None:
        if asked["op"] == "lease":
            wanted = asked["durability"]
            if wanted != self._durability:
                self._send(client, {"durability": self._durability})
                return
            client.pid = cast("int", asked["pid"])
            self._grace = cast("float", asked["grace"])
        elif asked["op"] == "down":
            if self._leases() and not asked.get("force"):
                self._send(client, {"in_use": self._leases()})
                return
            self._stopping = True
        self._send(client, self._status())

    def _status(self) -> dict[str, object]:
        login = self._server.login
        return {
            "keeper": os.getpid(),
            "server": self._server.pid,
            "host": "127.0.0.1",
            "port": login.port,
            "user": login.user,
            "password": login.password,
            "durability": self._durability,
            "leases": self._leases(),
            "restarts": self._restarts,
            "since": self._began,
            "grace": self._grace,
            "trouble": self._trouble,
        }

    def _send(self, client: _Client, answer: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            client.socket.sendall(json.dumps(answer).encode() + b"\n")


def _noticed(*_: object) -> None:
    """A handler, so that the signal reaches the wake-up socket."""


def _listen(folder: Folder) -> tuple[socket.socket, str]:
    trouble: OSError | None = None
    for path in folder.socket_paths():
        listener = socket.socket(socket.AF_UNIX)
        try:
            if Path(path).parent != folder.path:
                private_parent(path)
            # The lock is ours, so a socket that is there was left by a keeper that was killed.
            Path(path).unlink(missing_ok=True)
            listener.bind(path)
            Path(path).chmod(0o600)
            listener.listen(64)
            listener.setblocking(False)
            return listener, path
        except OSError as error:
            # Some network and shared folders hold no sockets.
            trouble = error
            listener.close()
    raise StoreUnavailable(f"no local socket can be made for {folder.path}: {trouble}")


def _detach() -> None:
    """Become nobody's child, so that whoever started us leaves no zombie and waits for nothing."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")


def main() -> None:
    """Keep the folder given on the command line."""
    path, binary, durability, grace = sys.argv[1:]
    _detach()
    folder = Folder(Path(path))
    lock = folder.lock()
    if lock is None:
        _report({"error": LOST_RACE, "text": ""})
        return
    try:
        keeper = Keeper(folder, lock, binary, durability, float(grace))
    except (ServerError, OSError) as error:
        _report({"error": type(error).__name__, "text": str(error)})
        return
    try:
        keeper.start()
        _report({"socket": keeper.socket_path})
        keeper.run()
    except (ServerError, OSError) as error:
        _report({"error": type(error).__name__, "text": str(error)})
    finally:
        keeper.close()


def _report(outcome: dict[str, object]) -> None:
    """Tell the starter, then let go of its pipe."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(outcome).encode() + b"\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


if __name__ == "__main__":
    main()
