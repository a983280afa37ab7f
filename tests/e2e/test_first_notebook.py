"""Notebook 01 in JupyterLab: run, restarted in the middle of a turn, run again; nothing is repeated."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from jupyter_lab import ROOT
from playwright.sync_api import expect
from processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NAME = "01_first_agent.ipynb"
FIRST, SECOND = "--run order-41", "--run order-42"


@pytest.fixture
def notebook(lab):
    """Notebook 01, but its last tool waits for a gate, so that a restart surely falls inside a turn."""
    text = (ROOT / "notebooks" / NAME).read_text("utf-8")
    line = r'"    note(\"notify\")\n",'
    assert text.count(line) == 1
    waits = r'"    import asyncio, os\n",' + r'"    while not Path(os.environ[\"GATES\"], \"open\").exists():\n",'
    waits += r'"        await asyncio.sleep(0.01)\n",'
    (lab.notebooks / NAME).write_text(text.replace(line, line + waits), "utf-8")
    return NAME


class Ledger:
    """What really started, as the notebook's tools wrote it down outside of the journal."""

    def __init__(self, lab):
        self.path = lab.store / "what-really-started.txt"
        self.gate = Path(lab.environment["GATES"], "open")

    def count(self, name):
        return self.path.read_text().split().count(name) if self.path.exists() else 0

    def counts(self):
        return {name: self.count(name) for name in ("search_orders", "refund", "notify", "model")}


def kernels(widget):
    """The holders that a timeline names, in order."""
    return re.findall(r"kernel \d+", "\n".join(widget.locator(".ab-who b").all_inner_texts()))


def test_before_anything_runs_it_shows_what_it_showed_its_authors(lab, open_notebook, shoot):
    shutil.copy(ROOT / "notebooks" / NAME, lab.notebooks / f"shipped-{NAME}")
    page = open_notebook(f"shipped-{NAME}")
    saved = page.saved(SECOND)
    saved.scroll_into_view_if_needed()
    shoot(page.page, "04-shipped-light")
    expect(saved.locator(".ab-interrupted")).to_be_visible()
    expect(page.page.get_by_text("Loading widget").first).not_to_be_visible()


def test_run_all_restart_mid_turn_run_all_again_repeats_nothing(lab, notebook, open_notebook, shoot):
    ledger = Ledger(lab)
    page = open_notebook(notebook)
    page.run_all()
    wait_until(lambda: ledger.count("notify") == 1, 60)
    widget = page.widget(FIRST)
    widget.locator(".ab-running", has_text="notify").wait_for()
    before = ledger.counts()
    assert before == {"search_orders": 1, "refund": 1, "notify": 1, "model": 3}
    widget.scroll_into_view_if_needed()
    shoot(page.page, "01-running")

    # The tool waits for the gate: whatever the restart hits, the turn is not over.
    page.restart()
    assert not ledger.gate.exists()
    assert ledger.counts() == before
    ledger.gate.touch()
    page.run_all()
    page.await_all()

    # Two runs in all. The finished calls of the first one were not repeated; the tool that was cut is safe.
    assert ledger.counts() == {"search_orders": 2, "refund": 2, "notify": 3, "model": 8}
    assert page.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']").count() == 0

    widget = page.widget(FIRST)
    widget.locator(".ab-state", has_text="completed").wait_for()
    expect(widget.locator(".ab-replayed", has_text="model")).to_have_count(1)
    expect(widget.locator(".ab-reran", has_text="notify")).to_have_count(1)
    widget.locator(".ab-toggle", has_text="turn 1").click()
    expect(widget.locator(".ab-ran", has_text="refund")).to_have_count(1)
    first, *_, last = kernels(widget)
    assert first != last
    assert widget.locator(".ab-who small", has_text="claim").count() >= 4
    expect(widget.locator(".ab-fence")).to_contain_text(f"{first} can write nothing more to this run")

    widget = page.widget(SECOND)
    expect(widget.locator(".ab-interrupted", has_text="refund")).to_have_count(1)
    expect(widget.locator(".ab-replayed", has_text="model")).to_have_count(1)
    expect(widget.locator(".ab-fence")).to_have_count(1)
    for theme in ("Light", "Dark"):
        page.theme(theme)
        for name, begins in (("first", FIRST), ("second", SECOND)):
            page.widget(begins).scroll_into_view_if_needed()
            shoot(page.widget(begins), f"01-{name}-{theme.lower()}")
        shoot(page.page, f"01-page-{theme.lower()}")
