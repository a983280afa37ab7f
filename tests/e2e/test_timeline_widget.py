"""The timeline as a person meets it: the stop button, a chip's record, hostile text, keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from processes import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PROMPT = 0.5
"""Seconds within which the stop button frees a cell."""

HOSTILE = "<img src=x onerror=\"window.hacked='image'\"><script>window.hacked='script'</script>"

AGENTS = f'''
import asyncio, os
from pathlib import Path
from agentbook import Agent, ScriptedModel, ToolCall, tool
%load_ext agentbook
book = %agentbook up --durability process
gates = Path(os.environ["GATES"])
HOSTILE = {HOSTILE!r}


@tool(replay="safe")
async def hold(gate: str) -> str:
    """Wait until the test opens the gate."""
    (gates / f"{{gate}}-began").touch()
    while not (gates / gate).exists():
        await asyncio.sleep(0.01)
    return "held"


@tool(replay="unsafe")
async def repeat(text: str) -> str:
    """Say it back, as an error."""
    raise ValueError(text)


def said(request):
    return request.messages[0].content


holder = Agent("holder", model=ScriptedModel([lambda r: ToolCall("hold", {{"gate": said(r)}}), "done"]), tools=[hold])
echo = Agent("echo", model=ScriptedModel([ToolCall("repeat", {{"text": HOSTILE}}), HOSTILE]), tools=[repeat])
'''


class Gates:
    def __init__(self, folder):
        self.folder = Path(folder)

    def open(self, name):
        (self.folder / name).touch()

    def await_tool(self, name):
        """Wait until the tool has begun that waits for this gate."""
        wait_until(lambda: (self.folder / f"{name}-began").exists(), 30)


@pytest.fixture
def gates(lab):
    return Gates(lab.environment["GATES"])


@pytest.fixture
def open_cells(lab, open_notebook, request):
    """Opens a notebook of these cells, after the one that defines the agents."""

    def opened(*cells):
        name = f"{re.sub('[^a-z]+', '-', request.node.name)[-60:]}.ipynb"
        lab.write(name, [AGENTS, *cells])
        return open_notebook(name)

    return opened


@pytest.mark.parametrize(
    ("gate", "cell"),
    [
        ("button-turn", "%%turn holder --run {0} --wait\n{0}"),
        ("button-call", "book.start(holder, '{0}', run_id='{0}').wait()"),
    ],
)
def test_the_stop_button_frees_a_waiting_cell_and_the_run_goes_on(open_cells, gates, gate, cell):
    page = open_cells(cell.format(gate), f"answer = await book.get('{gate}')\nprint('the answer is', answer)")
    page.run_all()
    gates.await_tool(gate)
    waiting = page.cells.nth(1)
    seconds = page.seconds_to_interrupt(waiting)
    assert seconds < PROMPT, seconds
    waiting.get_by_text(f"KeyboardInterrupt: this cell no longer waits for run {gate}, which goes on.").wait_for()
    gates.open(gate)
    page.run_cell("answer =")
    page.page.get_by_text("the answer is done").wait_for()


def test_a_run_ends_in_its_widget_with_no_further_cell_executed(open_cells, gates, shoot):
    page = open_cells("%%turn holder --run alone\nalone")
    page.run_all()
    page.await_all()
    widget = page.widget("alone")
    widget.locator(".ab-running", has_text="hold").wait_for()
    expect(page.saved("alone")).not_to_be_visible()
    shoot(widget, "02-running-light")
    gates.open("alone")
    widget.locator(".ab-state", has_text="completed").wait_for()
    expect(widget.locator(".ab-ran", has_text="hold")).to_have_count(1)
    expect(widget.locator(".ab-running")).to_have_count(0)


def test_a_chip_shows_its_record_which_stays_open_when_the_run_ends(open_cells, gates, shoot):
    page = open_cells("%%turn holder --run chosen\nchosen")
    page.run_all()
    widget = page.widget("chosen")
    widget.locator(".ab-running", has_text="hold").wait_for()
    widget.locator(".ab-chip button", has_text="model").click()
    record = widget.locator(".ab-record")
    record.get_by_text('"kind": "model"').wait_for()
    shoot(widget, "02-record-light")
    gates.open("chosen")
    widget.locator(".ab-state", has_text="completed").wait_for()
    expect(page.saved("chosen").locator(".ab-state")).to_contain_text("completed")
    assert '"kind": "model"' in record.inner_text()
    record.get_by_role("button", name="close").click()
    record.wait_for(state="detached")


def test_hostile_text_of_a_model_and_a_tool_is_text(open_cells, shoot):
    page = open_cells(
        "%%turn echo --run hostile --wait\nhi", "book.get('hostile').timeline", "%graph hostile", "%journal hostile"
    )
    page.run_all()
    page.await_all()
    widget = page.widget("--run hostile")
    widget.locator(".ab-chip button", has_text="repeat").click()
    widget.locator(".ab-record pre", has_text="onerror").wait_for()
    page.page.locator(".jp-RenderedMermaid svg, .jp-RenderedMermaid img").first.wait_for()
    shoot(widget, "02-hostile-light")
    assert page.page.evaluate("window.hacked") is None
    assert page.page.locator(".agentbook-run img, .agentbook-run script").count() == 0


def test_keys_typed_in_the_widget_do_not_reach_the_notebook(open_cells, gates):
    gates.open("keys")
    page = open_cells("%%turn holder --run keys --wait\nkeys", "'the last one'")
    page.run_all()
    page.await_all()
    before = page.cells.count()
    texts = page.page.locator(".jp-InputArea-editor").all_inner_texts()
    chip = page.widget("--run keys").locator(".ab-chip button").first
    chip.focus()
    for key in ("a", "b", "m", "d", "d", "x", "y", "ArrowRight", "Escape"):
        page.page.keyboard.press(key)
    assert page.cells.count() == before
    assert page.page.locator(".jp-InputArea-editor").all_inner_texts() == texts
    assert page.page.locator(".jp-MarkdownCell, .jp-RawCell").count() == 0
    # The arrow has walked to the next chip.
    assert page.page.evaluate("document.activeElement.dataset.column") == "1"


def test_a_notebook_that_is_opened_again_without_its_kernel_shows_the_run(open_cells, gates, open_notebook, shoot):
    gates.open("again")
    page = open_cells("%%turn holder --run again --wait\nagain")
    page.run_all()
    page.await_all()
    page.save()
    page.shut_down()
    page.page.close()
    page = open_notebook(page.name)
    shown = page.saved("--run again")
    shown.locator(".ab-state", has_text="completed").wait_for()
    expect(shown.locator(".ab-ran", has_text="hold")).to_be_visible()
    expect(page.page.get_by_text("Loading widget")).not_to_be_visible()
    shoot(page.page, "02-reopened-light")
