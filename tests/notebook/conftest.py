"""One kernel for each module, with agents whose tools wait until the test says so."""

from __future__ import annotations

import pytest
from agents.ledger import Ledger
from kernels import Kernel

from agentbook.broker import local
from agentbook.settings import Settings

SETUP = '''
%load_ext agentbook
import asyncio, logging, os, threading
from pathlib import Path
from agentbook import Agent, ScriptedModel, ToolCall, tool
from agents.ledger import note

book = %agentbook up
gates = Path(os.environ["GATES"])


@tool(replay="unsafe")
async def pay(what: str) -> str:
    """Is never started twice."""
    note("tool", "pay", what)
    return "paid"


@tool(replay="safe")
async def hold(gate: str) -> str:
    """Wait until the test opens the gate."""
    note("tool", "hold", gate)
    while not (gates / gate).exists():
        await asyncio.sleep(0.01)
    return "held"


def said(request):
    return request.messages[0].content


def asks(name, argument):
    def reply(request):
        note("model", "model", said(request))
        return ToolCall(name, {argument: said(request)})

    return reply


greeter = Agent("greeter", model=ScriptedModel([lambda request: f"You said: {said(request)}"]))
# The message is the name of the gate.
holder = Agent("holder", model=ScriptedModel([asks("pay", "what"), asks("hold", "gate"), "done"]), tools=[pay, hold])
'''


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel with `greeter`, whose answer is the message, and `holder`, which waits for a gate."""
    kernel = Kernel(tmp_path_factory.mktemp("kernel")).start()
    try:
        cell = kernel.execute(SETUP, 60)
        assert not cell.errors, cell.errors[0]
        yield kernel
    finally:
        kernel.stop()
        local.down(Settings(dir=kernel.folder / "store"), force=True)


@pytest.fixture
def ledger(kernel):
    """What really started, whatever the journal says."""
    return Ledger(kernel.folder / "ledger")


@pytest.fixture
def setup_cell():
    """What a person runs first in a new kernel."""
    return SETUP
