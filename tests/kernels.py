"""A real IPython kernel in a process of its own, driven as a front end drives it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import zmq
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

TESTS = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"
OUTPUTS = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")


@dataclass(frozen=True)
class Heard:
    """A message of the kernel's to every front end, and when it came."""

    at: float
    kind: str
    parent: str
    content: dict

    def __repr__(self) -> str:
        # Short: an assertion shows a list of them.
        return f"{self.kind} {str(self.content)[:80]}"


class Kernel:
    """One kernel, with a folder of its own: the store, the ledger and the gates of its tools are in it.

    Attributes:
        folder: working directory of the kernel.
        heard: every message on IOPub so far.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.heard: list[Heard] = []
        self.gates = folder / "gates"
        self.gates.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **os.environ,
            "AGENTBOOK_DIR": str(folder / "store"),
            "AGENTBOOK_DURABILITY": "process",
            "AGENTBOOK_SERVER_GRACE": "2",
            "GATES": str(self.gates),
            "IPYTHONDIR": str(folder / "ipython"),
            "LEDGER": str(folder / "ledger"),
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]),
            **environment,
        }
        self._replies: dict[str, dict] = {}
        self._news = threading.Condition()
        self._process: subprocess.Popen | None = None

    def start(self) -> Kernel:
        """Start the kernel's process and connect to it."""
        key = secrets.token_hex(16).encode()
        file = str(self.folder / f"kernel-{time.monotonic_ns()}.json")
        _, ports = write_connection_file(file, ip="127.0.0.1", key=key)
        # A session of its own, as Jupyter starts it: an interrupt goes to the whole group.
        with (self.folder / "kernel.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ipykernel_launcher", "-f", file, "--colors=nocolor"],
                cwd=self.folder, env=self._environment, start_new_session=True, stdout=log, stderr=log,
            )  # fmt: skip
        self._session = Session(key=key)
        self._context = zmq.Context()
        self._shell = self._context.socket(zmq.DEALER)
        self._shell.connect(f"tcp://127.0.0.1:{ports['shell_port']}")
        self._open = True
        self._listening = threading.Thread(target=self._listen, args=(ports["iopub_port"],), daemon=True)
        self._listening.start()
        self.until(self._answers, 60)
        return self

    def _answers(self) -> bool:
        """True once both ways are open: what is published before we are subscribed is lost."""
        assert self._process is not None
        assert self._process.poll() is None, "the kernel's process has ended"
        self._session.send(self._shell, "kernel_info_request", {})
        return bool(self._shell.poll(500)) and bool(self._take()) and any(each.kind == "status" for each in self.heard)

    @property
    def pid(self) -> int:
        """The kernel's process."""
        assert self._process is not None
        return self._process.pid

    def begin(self, code: str) -> Cell:
        """Hand a cell to the kernel, and do not wait for it."""
        request = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": False, "stop_on_error": False,
        }  # fmt: skip
        return Cell(self, self._session.send(self._shell, "execute_request", request)["header"]["msg_id"])

    def execute(self, code: str, seconds: float = 30.0) -> Cell:
        """Execute a cell to its end."""
        return self.begin(code).wait(seconds)

    def value(self, expression: str) -> str:
        """What an expression's value is shown as."""
        cell = self.execute(expression)
        assert not cell.errors, cell.errors
        return cell.result["text/plain"]

    def interrupt(self) -> None:
        """The stop button."""
        os.killpg(self.pid, signal.SIGINT)

    def stop(self) -> None:
        """SIGKILL, with nothing told to the kernel before; `start` begins another one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        self._open = False
        self._listening.join()
        self._context.destroy(linger=0)

    def open_gate(self, name: str) -> None:
        """Let the tool go on that waits for it."""
        (self.gates / name).touch()

    def send(self, comm: str, content: dict) -> None:
        """What a view of a widget sends."""
        data = {"method": "custom", "content": content}
        self._session.send(self._shell, "comm_msg", {"comm_id": comm, "data": data})

    def told(self, comm: str) -> list[dict]:
        """What the views of a widget were sent so far."""
        mine = [each.content for each in list(self.heard) if each.kind == "comm_msg"]
        return [
            each["data"]["content"]
            for each in mine
            if each["comm_id"] == comm and each["data"].get("method") == "custom"
        ]

    def outputs(self, cell: str) -> list[Heard]:
        """What came out in a cell so far."""
        return [each for each in list(self.heard) if each.parent == cell and each.kind in OUTPUTS]

    def until(self, condition, seconds: float = 20.0):
        """Wait until a condition on what was heard is true, and return its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            # In slices: the effect may also be a file, which nobody tells us about.
            with self._news:
                self._news.wait(0.02)
            assert time.monotonic() < end, f"not within {seconds:g} s; the last messages: {self.heard[-6:]}"
        return value

    def reply(self, cell: str, seconds: float) -> dict:
        """The kernel's reply to a cell."""
        end = time.monotonic() + seconds
        while cell not in self._replies:
            if self._shell.poll(200):
                self._take()
            assert time.monotonic() < end, f"no reply within {seconds:g} s; heard: {self.heard[-6:]}"
        return self._replies[cell]

    def _take(self) -> dict:
        _, message = self._session.recv(self._shell)
        self._replies[message["parent_header"]["msg_id"]] = message["content"]
        return message

    def _listen(self, port: int) -> None:
        socket = self._context.socket(zmq.SUB)
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{port}")
        while self._open:
            if socket.poll(100):
                _, message = self._session.recv(socket)
                parent = message["parent_header"].get("msg_id", "")
                with self._news:
                    self.heard.append(Heard(time.monotonic(), message["msg_type"], parent, message["content"]))
                    self._news.notify_all()
        socket.close(linger=0)


class Cell:
    """A cell that was handed to a kernel."""

    def __init__(self, kernel: Kernel, message: str) -> None:
        self.kernel = kernel
        self.message = message

    def wait(self, seconds: float = 30.0) -> Cell:
        """Wait for its end."""
        self.kernel.reply(self.message, seconds)
        self.kernel.until(lambda: self._idle, seconds)
        return self

    def finished_within(self, seconds: float) -> float | None:
        """Seconds until the cell ended, or None if it has not."""
        began = time.monotonic()
        try:
            self.wait(seconds)
        except AssertionError:
            return None
        return time.monotonic() - began

    @property
    def _idle(self) -> bool:
        mine = [each for each in list(self.kernel.heard) if each.parent == self.message and each.kind == "status"]
        return any(each.content["execution_state"] == "idle" for each in mine)

    @property
    def outputs(self) -> list[Heard]:
        """What came out in it so far, and nowhere else."""
        return self.kernel.outputs(self.message)

    @property
    def text(self) -> str:
        """What was printed in it."""
        return "".join(each.content["text"] for each in self.outputs if each.kind == "stream")

    @property
    def errors(self) -> list[str]:
        """The text of each error in it, as it is shown."""
        return ["\n".join(each.content["traceback"]) for each in self.outputs if each.kind == "error"]

    @property
    def result(self) -> dict[str, str]:
        """Its value, by MIME type."""
        return next(each.content["data"] for each in self.outputs if each.kind == "execute_result")

    @property
    def displays(self) -> list[dict]:
        """What was displayed in it."""
        return [each.content for each in self.outputs if each.kind == "display_data"]

    @property
    def widget(self) -> str:
        """The comm of the widget that it shows."""
        (shown,) = (each["data"][WIDGET] for each in self.displays if WIDGET in each["data"])
        return shown["model_id"]


