"""A real JupyterLab in a real browser, with nothing of the user's: its own port, token, settings and profile."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page
from processes import wait_until

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

_KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True,
    },
    # Every cell is in the page, also those that are scrolled away.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}  # fmt: skip


class Lab:
    """``agentbook lab`` on a folder.

    Attributes:
        folder: everything it writes is below it.
        notebooks: the folder that it opens.
        store: the books' folder.
        environment: of the server and its kernels.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.notebooks = folder / "notebooks"
        self.store = folder / "store"
        self.notebooks.mkdir()
        configuration = folder / "conf" / "labconfig"
        configuration.mkdir(parents=True)
        (configuration / "default_setting_overrides.json").write_text(json.dumps(_SETTINGS))
        self._token = secrets.token_hex(16)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.environment = {
            **os.environ,
            "AGENTBOOK_DIR": str(self.store),
            "AGENTBOOK_SERVER_GRACE": "2",
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "JUPYTER_CONFIG_DIR": str(folder / "conf"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **environment,
        }

    def start(self) -> Lab:
        """Start it, and wait until it answers."""
        command = [
            sys.executable, "-c", "from agentbook.cli import main; main()", "lab", "--no-browser",
            "--notebooks", str(self.notebooks), "--port", str(self._port), "--",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={self._token}",
            "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
        ]  # fmt: skip
        with (self.folder / "lab.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, 60)
        return self

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "lab.log").read_text()
        try:
            urllib.request.urlopen(self.url("api/status"), timeout=1).close()
        except (urllib.error.URLError, TimeoutError):
            return False
        return True

    def url(self, path: str) -> str:
        """An address of it, with the token."""
        return f"http://127.0.0.1:{self._port}/{path}{'&' if '?' in path else '?'}token={self._token}"

    def stop(self) -> None:
        """End it; its kernels end with it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def write(self, name: str, cells: list[str]) -> None:
        """A notebook of code cells."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in cells]
        nbformat.write(notebook, self.notebooks / name)

    def left(self) -> list[int]:
        """Processes that name the folder, or stand in it."""
        found: list[int] = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                here = process.joinpath("cwd").readlink().as_posix()
                said = process.joinpath("cmdline").read_text()
            except OSError:
                continue
            if str(self.folder) in said or here.startswith(str(self.folder)):
                found.append(int(process.name))
        return found


class NotebookPage:
    """A notebook that is open in the browser."""

    def __init__(self, page: Page, lab: Lab, name: str) -> None:
        self.page = page
        self.name = name
        page.goto(lab.url(f"lab/workspaces/{name.partition('.')[0]}/tree/{name}?reset"))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        self.await_kernel()

    def await_kernel(self) -> None:
        """Wait until the kernel is idle."""
        self.page.wait_for_function(f"{_KERNEL}?.status === 'idle'", timeout=60_000)

    def command(self, name: str, **arguments: object) -> None:
        """What a menu or a button does, without waiting for its end."""
        self.page.evaluate(
            "([name, arguments]) => void window.jupyterapp.commands.execute(name, arguments)", [name, arguments]
        )

    def run_all(self) -> None:
        """Run All Cells."""
        self.command("notebook:run-all-cells")

    def await_all(self, seconds: float = 60) -> None:
        """Wait until every code cell has run to its end."""
        prompts = (
            "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')]"
            ".every((prompt) => /\\[\\d+\\]/.test(prompt.textContent))"
        )
        self.page.wait_for_function(prompts, timeout=seconds * 1000)

    def restart(self) -> None:
        """Restart Kernel, and say yes."""
        self.command("kernelmenu:restart")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.page.wait_for_function(f"{_KERNEL}?.status !== 'idle'", timeout=60_000)
        self.await_kernel()

    def interrupt(self) -> None:
        """The stop button."""
        self.command("notebook:interrupt-kernel")

    def seconds_to_interrupt(self, cell: Locator) -> float:
        """Press the stop button: how long the page shows the cell as waiting after that."""
        star = cell.locator(".jp-InputPrompt", has_text="*")
        star.wait_for()
        # Measured in the page, since each question from here takes its time on a busy machine.
        return self.page.evaluate(
            """async (prompt) => {
              const began = performance.now();
              void window.jupyterapp.commands.execute('notebook:interrupt-kernel');
              while (prompt.textContent.includes('*')) await new Promise((later) => setTimeout(later, 5));
              return (performance.now() - began) / 1000;
            }""",
            star.element_handle(),
        )

    def run_cell(self, begins: str) -> None:
        """Run one cell."""
        self.cell(begins).locator(".jp-InputArea-editor").click()
        self.command("notebook:run-cell")

    def save(self) -> None:
        """Save the notebook."""
        self.command("docmanager:save")
        self.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")

    def shut_down(self) -> None:
        """Shut Down Kernel."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def theme(self, name: str) -> None:
        """Change the theme: Light or Dark."""
        self.command("apputils:change-theme", theme=f"JupyterLab {name}")
        light = str(name == "Light").lower()
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")

    @property
    def cells(self) -> Locator:
        """Every cell."""
        return self.page.locator(".jp-Notebook .jp-Cell")

    def cell(self, begins: str) -> Locator:
        """The cell whose text holds this."""
        editor = self.page.locator(".jp-InputArea-editor", has_text=begins)
        return self.page.locator(".jp-Notebook .jp-CodeCell", has=editor)

    def widget(self, begins: str) -> Locator:
        """The live timeline in a cell's output."""
        return self.cell(begins).locator(".agentbook-run:not(.agentbook-saved *)")

    def saved(self, begins: str) -> Locator:
        """The static timeline in a cell's output, which is visible where no kernel runs."""
        return self.cell(begins).locator(".agentbook-saved .agentbook-run")
