"""JupyterLab for the session, a browser for each module, a fresh profile for each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jupyter_lab import ARGUMENTS, CHROMIUM, Lab, NotebookPage
from playwright.sync_api import sync_playwright
from processes import wait_until

from agentbook.broker import local
from agentbook.settings import Settings


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """``agentbook lab`` on an empty folder; at the end nothing of it is left."""
    if CHROMIUM is None:
        pytest.skip("no browser: install chromium")
    lab = Lab(tmp_path_factory.mktemp("lab"), GATES=str(tmp_path_factory.mktemp("gates")))
    lab.start()
    yield lab
    lab.stop()
    local.down(Settings(dir=lab.store), force=True)
    wait_until(lambda: not lab.left(), 15)


@pytest.fixture(scope="module")
def browser(lab):
    """Chromium. For a module: its loop must be gone before tests that bring their own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_notebook(lab, browser):
    """Opens a notebook in a profile of its own; at the end the page has had no error."""
    context = browser.new_context(viewport={"width": 1300, "height": 950})
    context.set_default_timeout(30_000)
    errors: list[str] = []

    def open_page(name):
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        return NotebookPage(page, lab, name)

    yield open_page
    context.close()
    assert errors == []


@pytest.fixture
def shoot():
    """Keeps a picture for people to look at, if `AGENTBOOK_SHOTS` names a folder for it."""

    def shot(target, name):
        if folder := os.environ.get("AGENTBOOK_SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            target.screenshot(path=f"{folder}/{name}.png")

    return shot
