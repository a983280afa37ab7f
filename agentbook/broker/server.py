"""One nats-server process on loopback: its configuration, start, readiness and end.

Imported by the keeper, which must start quickly: the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from agentbook.broker.folder import Folder, State
from agentbook.errors import ServerError, StoreUnavailable

_USER = "agentbook"
_READY = 60.0
_GRACEFUL = 10.0


@dataclass(frozen=True, slots=True)
class Login:
    """Where the server listens and how one gets in."""

    port: int
    password: str
    user: str = _USER

    @classmethod
    def recall(cls, state: State) -> Login:
        """The last keeper's port and password, so that its clients find the server again."""
        port, password = state.get("port"), state.get("password")
        if isinstance(port, int) and isinstance(password, str) and _free(port):
            return cls(port, password)
        return cls(-1, secrets.token_urlsafe(24))


class Server:
    """A nats-server in a folder. After its first start it keeps its port."""

    def __init__(self, binary: str, folder: Folder, durability: str, login: Login) -> None:
        self._binary = binary
        self._folder = folder
        self._durability = durability
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0
        self.login = login

    def move(self) -> None:
        """Listen on any free port from the next start on."""
        self.login = Login(-1, self.login.password)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            StoreUnavailable: its store cannot be used.
            ServerError: it does not start for another reason.
        """
        self._folder.write_private(self._folder.config, self._configuration())
        # A server that was killed leaves its own.
        for left in self._folder.path.glob("*.ports"):
            left.unlink(missing_ok=True)
        began = self._heard = self._folder.log.stat().st_size if self._folder.log.exists() else 0
        self._process = subprocess.Popen(  # noqa: S603 - the binary the user installed
            [self._binary, "-c", str(self._folder.config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # Safe here: the keeper has a single thread.
            preexec_fn=_end_with_parent,
        )
        ports = self._folder.path / f"{Path(self._binary).name}_{self._process.pid}.ports"
        end = time.monotonic() + _READY
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
                url = cast("dict[str, list[str]]", json.loads(ports.read_text()))["nats"][0]
                self.login = Login(int(url.rsplit(":", 1)[1]), self.login.password)
                return
            if self._process.poll() is not None:
                raise self._why(began)
            time.sleep(0.005)
        self.stop()
        raise ServerError(f"nats-server did not listen within {_READY:g} s; see {self._folder.log}")

    def ran_out_of_space(self) -> bool:
        """True if its log says so since the last call."""
        try:
            with self._folder.log.open("rb") as log:
                if log.seek(0, os.SEEK_END) < self._heard:
                    self._heard = 0  # It was rotated.
                log.seek(self._heard)
                said = log.read()
        except OSError:
            return False
        self._heard += len(said)
        return b"no space left on device" in said

    def stop(self) -> None:
        """End it in order, or by force if that takes too long."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACEFUL)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process = None

    def _configuration(self) -> str:
        def quoted(path: Path) -> str:
            return json.dumps(str(path), ensure_ascii=False)

        # `process`: the server's own default, a flush every two minutes.
        sync = "sync_interval: always" if self._durability == "disk" else ""
        return f"""# Written by agentbook at each start.
listen: "127.0.0.1:{self.login.port}"
authorization {{ user: "{self.login.user}", password: "{self.login.password}" }}
jetstream {{ store_dir: {quoted(self._folder.path)}, {sync} }}
ports_file_dir: {quoted(self._folder.path)}
log_file: {quoted(self._folder.log)}
logfile_size_limit: 4MB
logfile_max_num: 2
"""

    def _why(self, began: int) -> ServerError:
        with contextlib.suppress(OSError):
            with self._folder.log.open("rb") as log:
                log.seek(began)
                lines = log.read().decode("utf-8", "replace").splitlines()
            fatal = next((line for line in reversed(lines) if "[FTL]" in line), "")
            reason = fatal.partition("[FTL] ")[2]
            if "no space" in reason:
                return StoreUnavailable(f"the disk of {self._folder.path} is full: free some space ({reason})")
            if "ermission denied" in reason or "read-only" in reason:
                return StoreUnavailable(f"{self._folder.path} is read-only for nats-server: {reason}")
            if "JetStream" in reason or "storage" in reason:
                return StoreUnavailable(f"the store in {self._folder.path} cannot be used: {reason}")
            if reason:
                return ServerError(f"nats-server did not start: {reason}")
        code = self._process.returncode if self._process else None
        return ServerError(f"nats-server ended at once (exit code {code}); see {self._folder.log}")


def users_of(folder: Folder) -> list[int]:
    """Processes that serve a folder's store. Empty where the system does not tell."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _has_open(entry, folder.store) or _configured_for(entry, folder.path):
                found.append(int(entry.name))
    return found


def _has_open(process: Path, store: Path) -> bool:
    within = str(store.resolve()) + os.sep
    return any(str(descriptor.readlink()).startswith(within) for descriptor in (process / "fd").iterdir())


def _configured_for(process: Path, folder: Path) -> bool:
    # A server without streams, or one that has been idle for minutes, has no file open.
    if (process / "comm").read_text().strip() != "nats-server":
        return False
    named = re.compile(re.escape(str(folder)) + r"(?![\w.-])")
    for argument in (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0"):
        config = (process / "cwd").readlink() / argument
        if named.search(argument) or (config.is_file() and config.suffix and named.search(config.read_text())):
            return True
    return False


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# Loaded before the fork: nothing may be loaded between fork and exec.
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """A keeper that is killed takes its server with it, where the system can do that."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
