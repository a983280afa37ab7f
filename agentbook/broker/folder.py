"""The folder of an embedded server: what lies in it, who may use it, what can be wrong with it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import cast

from agentbook.errors import StoreUnavailable

LEAST_FREE = 16 * 1024 * 1024
"""Bytes below which a disk counts as full."""

_LONGEST_SOCKET = 100
"""Bytes of a socket's path; the kernels' limits are 104 and 108."""

State = dict[str, object]


class Folder:
    """Paths within a book's folder. Everything a keeper writes is readable by its user only."""

    def __init__(self, path: Path) -> None:
        # Resolved without following a last link that does not exist yet.
        self.path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() needs the parents to exist
        self.config = self.path / "server.conf"
        self.log = self.path / "server.log"
        self.lock_file = self.path / "keeper.lock"
        self.state_file = self.path / "keeper.json"
        self.store = self.path / "jetstream"

    def prepare(self) -> None:
        """Create the folder and prove that it can be written to.

        Raises:
            StoreUnavailable: it cannot; the text says why and what to do.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            ignored = self.path / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n")
            probe = self.path / f".probe-{os.getpid()}"
            try:
                probe.write_bytes(b"x" * 4096)
            finally:
                probe.unlink(missing_ok=True)
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise StoreUnavailable(explain(self.path, error)) from None
        if free < LEAST_FREE:
            raise StoreUnavailable(
                f"the disk of {self.path} is full: {free / 1e6:.1f} MB are free, "
                f"{LEAST_FREE / 1e6:.0f} MB are needed. Free some, or choose another folder with dir=…"
            )

    def full(self) -> bool:
        """True while its disk has no room for a store."""
        try:
            return shutil.disk_usage(self.path).free < LEAST_FREE
        except OSError:
            return False

    def lock(self) -> int | None:
        """Take the folder for this process until it ends; None if another has it."""
        handle = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return handle

    def locked(self) -> bool:
        """True while a keeper has the folder."""
        if not self.lock_file.exists():
            return False
        handle = self.lock()
        if handle is None:
            return True
        os.close(handle)
        return False

    def owns(self, handle: int) -> bool:
        """False once the lock file we hold was deleted, so that another keeper could start."""
        try:
            return os.path.samestat(self.lock_file.stat(), os.fstat(handle))
        except OSError:
            return False

    def read_state(self) -> State:
        """What the last keeper wrote, empty if nothing."""
        try:
            state: object = json.loads(self.state_file.read_text())
        except (OSError, ValueError):
            return {}
        return cast("State", state) if isinstance(state, dict) else {}

    def write_state(self, state: State) -> None:
        self.write_private(self.state_file, json.dumps(state))

    def write_private(self, path: Path, text: str) -> None:
        """Replace a file as a whole, readable by its user only from its first byte on."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        draft.replace(path)

    def socket_paths(self) -> list[str]:
        """Where a keeper may listen, best first: in the folder, else under a short path of this user's."""
        inside = str(self.path / "lease.sock")
        name = f"{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]}.sock"
        user = os.getuid()
        places = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")  # noqa: S108 - `private_parent`
        others = [f"{place}/agentbook-{user}/{name}" for place in places if place]
        return [path for path in dict.fromkeys([inside, *others]) if len(os.fsencode(path)) < _LONGEST_SOCKET]


def explain(path: Path, error: OSError) -> str:
    """One line: what is wrong with a folder, and what to do."""
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        at = next((str(part) for part in (path, *path.parents) if part.exists() and not part.is_dir()), str(path))
        return f"{at} is a file, not a folder: move it away, or choose another folder with dir=…"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path} is read-only for this user: make it writable, or choose another folder with dir=…"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full: free some space, or choose another folder with dir=…"
    return f"{path} cannot be used: {error.strerror or error}. Choose another folder with dir=…"


def private_parent(path: str) -> None:
    """Create the folder of a socket for this user alone.

    Raises:
        PermissionError: it belongs to someone else.
    """
    parent = Path(path).parent
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o700)
    status = parent.lstat()
    if status.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(parent))
