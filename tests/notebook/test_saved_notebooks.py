"""The committed notebooks away from a kernel, and run again and again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def path_without_dot():
    """PATH without the folders that hold Graphviz's `dot`."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if shutil.which("dot", path=folder) is None)


def nbval():
    """Run every notebook and compare what it shows with what is committed."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env",
        "--nbval-cell-timeout", "60", "--nbval-sanitize-with", "notebooks/nbval.cfg", "notebooks",
    ]  # fmt: skip
    environment = {**os.environ, "PATH": path_without_dot(), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.live
@pytest.mark.timeout(300)
def test_the_notebooks_say_the_same_twice_in_a_row_without_dot():
    for _ in range(2):
        done = nbval()
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert "passed" in done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Notebook 01 as nbconvert shows it."""
    folder = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(folder)]
    subprocess.run([*command, str(ROOT / "notebooks/01_first_agent.ipynb")], check=True, capture_output=True)
    return (folder / "01_first_agent.html").read_text("utf-8")


def test_nbconvert_shows_the_static_timeline(page):
    for text in ("may have happened: not run again", "replayed · 0 requests", "even if it wakes up"):
        assert text in page
    assert page.count('class="agentbook-saved"') == 2


def test_nbconvert_does_not_try_to_load_a_widget(page):
    assert "application/vnd.jupyter.widget-state+json" not in page
    assert "embed-amd" not in page
