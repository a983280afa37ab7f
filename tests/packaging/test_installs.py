"""The front end and the notebooks are found however the package was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import nbformat
import pytest
from distributions import ROOT, build
from nbformat.sign import NotebookNotary

LOOK = """
import json, sys
from pathlib import Path
import agentbook
from agentbook.cli.lab import prepared
from agentbook.notebook.assets import module
print(json.dumps({
    "package": str(Path(agentbook.__file__).parent),
    "version": agentbook.__version__,
    "module": module("timeline.js"),
    "style": module("timeline.css"),
    "notebooks": str(prepared(None)),
}))
"""


def python_of(folder: Path) -> Path:
    """A virtual environment that sees this one's packages, but not this one's agentbook."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # A path file, not PYTHONPATH: what is installed here comes first.
    Path(site, "around.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def install(python: Path, *what: str | Path) -> None:
    """Install with pip, without the network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--ignore-installed", "--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, *map(str, what)], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def environment(**more: str) -> dict[str, str]:
    """This environment without what would show it this checkout's package."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **more}


def look(python: Path, here: Path) -> dict[str, str]:
    """What the installed package says, started in another folder."""
    here.mkdir()
    done = subprocess.run(
        [python, "-c", LOOK], cwd=here, capture_output=True, text=True, env=environment(JUPYTER_DATA_DIR=str(here))
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=["wheel", "sdist", "editable"])
def installed(request, tmp_path):
    """How it was installed, what it says, and the folder it was started in."""
    python = python_of(tmp_path / "venv")
    match request.param:
        case "wheel":
            install(python, build(ROOT, "wheel", tmp_path / "dist"))
        case "sdist":
            install(python, build(ROOT, "sdist", tmp_path / "dist"))
        case "editable":
            with tarfile.open(build(ROOT, "sdist", tmp_path / "dist")) as archive:
                archive.extractall(tmp_path / "tree", filter="data")
            (tree,) = (tmp_path / "tree").iterdir()
            install(python, "--editable", tree)
    return request.param, look(python, tmp_path / "here"), tmp_path / "here"


def test_the_widgets_and_the_notebooks_are_found(installed, tmp_path):
    how, said, here = installed
    assert said["package"].startswith(str(tmp_path / ("tree" if how == "editable" else "venv")))
    assert said["module"] == (ROOT / "widgets/timeline.js").read_text("utf-8")
    assert said["style"] == (ROOT / "widgets/timeline.css").read_text("utf-8")
    notebooks = Path(said["notebooks"])
    checkout = Path(said["package"]).parent / "notebooks"
    assert notebooks == (checkout if how == "editable" else here / "agentbook-notebooks")
    assert names(notebooks) == names(ROOT / "notebooks")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.ipynb")}


def test_copied_notebooks_are_trusted_and_a_persons_own_stay_as_they_are(tmp_path):
    python = python_of(tmp_path / "venv")
    install(python, build(ROOT, "wheel", tmp_path / "dist"))
    here = tmp_path / "here"
    notebook = Path(look(python, here)["notebooks"], "01_first_agent.ipynb")
    assert NotebookNotary(data_dir=str(here)).check_signature(nbformat.read(notebook, as_version=4))
    notebook.write_text("mine")
    subprocess.run([python, "-c", LOOK], cwd=here, check=True, capture_output=True, env=environment())
    assert notebook.read_text() == "mine"
