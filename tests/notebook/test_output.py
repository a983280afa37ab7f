"""What tools, models and reconnects say never lands in the cell that happened to run last."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.live

TALKERS = '''
import sys, warnings


def say(where):
    print("printed in", where)
    print("printed to stderr in", where, file=sys.stderr)
    sys.stdout.writelines(["written in ", where, "\\n"])
    logging.getLogger("mine").warning("logged in %s", where)
    logging.getLogger("mine.own").warning("logged by a handler of ones own in %s", where)
    warnings.warn(f"warned in {where}")


@tool(replay="safe")
async def talk(gate: str) -> str:
    """Talks while another cell is the newest."""
    while not (gates / gate).exists():
        await asyncio.sleep(0.01)
    say("an async tool")
    return "talked"


@tool(replay="safe")
def talk_in_a_thread(gate: str) -> str:
    """The same, as a plain function."""
    import time
    while not (gates / gate).exists():
        time.sleep(0.01)
    say("a plain tool")
    return "talked"


async def talking_model(request):
    if request.replies:
        say("a model")
        return "done"
    return ToolCall("talk", {"gate": said(request)})


async_talker = Agent("async-talker", model=ScriptedModel([asks("talk", "gate"), "done"]), tools=[talk])
plain_talker = Agent(
    "plain-talker", model=ScriptedModel([asks("talk_in_a_thread", "gate"), "done"]), tools=[talk_in_a_thread]
)
model_talker = Agent("model-talker", model=talking_model, tools=[talk])
'''


@pytest.fixture(scope="module")
def talkers(kernel):
    """Agents that talk. A handler that was made before the extension was loaded keeps the stream it was given."""
    kernel.execute("%unload_ext agentbook")
    kernel.execute('import logging\nlogging.getLogger("mine.own").addHandler(logging.StreamHandler())')
    kernel.execute("%load_ext agentbook")
    assert not kernel.execute(TALKERS).errors
    return kernel


def said_since(kernel, mark):
    return [each for each in kernel.heard[mark:] if each.kind in ("stream", "error")]


@pytest.mark.parametrize("agent", ["async-talker", "plain-talker", "model-talker"])
def test_what_a_run_says_is_in_no_cell(talkers, agent):
    kernel = talkers
    mark = len(kernel.heard)
    kernel.execute(f"%%turn {agent} --run {agent}\n{agent}")
    kernel.execute("1 + 1")
    kernel.open_gate(agent)
    kernel.until(lambda: [each for each in kernel.heard[mark:] if each.kind == "update_display_data"])
    assert kernel.value(f"book.get('{agent}').wait()") == "'done'"
    assert said_since(kernel, mark) == []


def test_what_a_tool_printed_is_kept_with_its_run(talkers):
    kernel = talkers
    kernel.open_gate("kept")
    kernel.execute("%%turn async-talker --run kept --wait\nkept")
    text = kernel.execute("from agentbook.notebook.printing import printed\nprint(printed('kept'))").text
    for how in ("printed", "printed to stderr", "written", "logged", "logged by a handler of ones own", "warned"):
        assert f"{how} in an async tool" in text


def test_what_a_model_printed_is_told_by_status(talkers):
    kernel = talkers
    kernel.open_gate("told")
    kernel.execute("%%turn model-talker --run told --wait\ntold")
    assert "printed in a model" in kernel.execute("%agentbook status").text


def test_a_cell_still_prints_while_a_run_is_under_way(talkers):
    kernel = talkers
    kernel.execute("%%turn async-talker --run silent\nsilent")
    assert kernel.execute("print('mine')").text == "mine\n"
    kernel.open_gate("silent")


def test_a_server_that_dies_and_comes_back_is_in_no_cell(kernel):
    kernel.execute("%%turn holder --run outage\noutage")
    pid = int(kernel.value("book._lease.server_pid()"))
    mark = len(kernel.heard)
    os.kill(pid, signal.SIGKILL)
    kernel.execute("import time\nwhile book.connection.connected: time.sleep(0.01)")
    kernel.execute("while not book.connection.connected: await asyncio.sleep(0.01)")
    kernel.open_gate("outage")
    assert kernel.value("await book.get('outage')") == "'done'"
    assert said_since(kernel, mark) == []
