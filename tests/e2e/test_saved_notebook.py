"""Notebook 01 as nbconvert's HTML, in a browser without a network."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jupyter_lab import ROOT
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_static_timeline_shows_without_a_network(tmp_path, browser, shoot, scheme):
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path)]
    command += ["--theme", scheme, str(ROOT / "notebooks/01_first_agent.ipynb")]
    subprocess.run(command, check=True, capture_output=True)
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto((tmp_path / "01_first_agent.html").as_uri(), wait_until="domcontentloaded")
    saved = page.locator(".agentbook-saved .agentbook-run")
    expect(saved).to_have_count(2)
    expect(saved.nth(1).locator(".ab-interrupted")).to_be_visible()
    expect(saved.nth(1).locator(".ab-fence")).to_be_visible()
    expect(page.get_by_text("<Run order-42>")).not_to_be_visible()
    saved.nth(1).scroll_into_view_if_needed()
    shoot(page, f"03-html-{scheme}")
    context.close()
