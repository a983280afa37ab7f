"""The notebooks as they are committed: executed, small, and of no machine."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 100_000
"""Bytes of a notebook with its outputs."""

WIDGET = "application/vnd.jupyter.widget-view+json"
ABSOLUTE = re.compile(r"(?<![\w.~:/<>-])/(?:tmp|var|opt|usr|mnt|home|root|Users|work|private)/|[A-Z]:\\\\")


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def test_it_is_valid(notebook):
    nbformat.validate(notebook)


def test_it_was_executed_from_top_to_bottom(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks-update`"


def test_no_cell_ended_with_an_error(notebook):
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert [output for output in outputs(notebook) if output.get("name") == "stderr"] == []


def test_it_asks_for_the_kernel_that_everybody_has(notebook):
    assert notebook.metadata.kernelspec.name == "python3"


def test_it_holds_nothing_but_its_kernel_as_metadata(notebook):
    """A widget's state makes nbconvert pick the widget, load scripts, and drop the static timeline."""
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert {key for cell in notebook.cells for key in cell.metadata} <= {"tags"}


def test_each_widget_is_followed_by_what_shows_without_it(notebook):
    for cell in code_cells(notebook):
        for widget, saved in pairwise(cell.outputs):
            if WIDGET in widget.get("data", {}):
                assert "agentbook-saved" in saved.data["text/html"]
                assert "completed" in saved.data["text/plain"]


def test_it_is_small(path):
    assert path.stat().st_size < LARGEST


def test_it_names_no_path_of_one_machine(path):
    assert ABSOLUTE.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"), [('"/tmp/x"', True), ("C:\\\\\\\\x", True), ("https://a.org/var/x", False), ("</tmp/", False)]
)
def test_a_path_of_one_machine_is_told_from_an_address(text, found):
    assert bool(ABSOLUTE.search(text)) is found
