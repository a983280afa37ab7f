"""nats-servers without a keeper, for tests that configure, kill or stop their own."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from agentbook.broker.binary import find_server
from agentbook.broker.target import Target


class NatsServer:
    """A server with a configuration of the test's choice; it keeps its port over restarts."""

    def __init__(self, folder: Path, extra: str = "", *, jetstream: str = "", enabled: bool = True) -> None:
        self.folder = folder
        self.extra = extra
        self.store = f'jetstream {{ store_dir: "{folder}", {jetstream} }}' if enabled else ""
        self.port = -1
        self._process: subprocess.Popen | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def target(self) -> Target:
        return Target(f"nats://127.0.0.1:{self.port}", embedded=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> NatsServer:
        listen = "" if "listen:" in self.extra and self.port == -1 else f'listen: "127.0.0.1:{self.port}"'
        config = self.folder / "server.conf"
        config.write_text(f'{listen}\nports_file_dir: "{self.folder}"\n{self.store}\n{self.extra}\n')
        log = self.folder / "server.log"
        self._process = subprocess.Popen([find_server(), "-c", config, "-l", log])
        ports = self.folder / f"nats-server_{self.pid}.ports"
        end = time.monotonic() + 10
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError, ValueError):
                self.listening = json.loads(ports.read_text())
                self.port = int(self.listening["nats"][0].rsplit(":", 1)[1])
                return self
            time.sleep(0.005)
        raise AssertionError(log.read_text())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
