"""The server's death in the middle of a turn, and the life of a folder's server with its books."""

import os
import signal
import threading
import time

import pytest
from agents.ledger import Ledger
from processes import alive, wait_until

import agentbook
from agentbook import Agent, ScriptedModel, ToolCall, crashlab, tool
from agentbook.broker import local
from agentbook.settings import Settings
from agentbook.testing import audit

pytestmark = [pytest.mark.crash, pytest.mark.live]

GRACE = 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Settings of a folder of the test's own."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    return Settings(dir=tmp_path / "store", durability="process", server_grace=GRACE, ack_wait=1)


@pytest.mark.parametrize("where", ["model", "tool"])
def test_the_keeper_brings_a_killed_server_back_and_the_turn_goes_on(folder, where):
    reached, go_on = threading.Event(), threading.Event()
    starts = []

    def stop_at(place):
        starts.append(place)
        if place == where and not reached.is_set():
            reached.set()
            assert go_on.wait(30)

    @tool(replay="unsafe")
    def refund() -> str:
        """Pay money back."""
        stop_at("tool")
        return "refunded"

    def first(request):
        stop_at("model")
        return ToolCall("refund")

    agent = Agent("billing", model=ScriptedModel([first, "refunded"]), tools=[refund])
    with agentbook.open(settings=folder) as book:
        run = book.start(agent, "hi", run_id="r")
        assert reached.wait(20)
        server = local.status(folder).server_pid
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: local.status(folder).server_pid not in (None, server))
        back = time.monotonic()
        go_on.set()
        assert run.wait(30) == "refunded"
        assert time.monotonic() - back < 7
        assert starts == ["model", "tool"]
        assert len([record for record in run.journal() if record.kind == "claim"]) == 2
        assert local.status(folder).restarts == 1
    audit(folder)


def test_two_processes_in_one_folder_share_a_server_which_outlives_both_by_the_grace(folder):
    with (
        crashlab.holder("agents.billing:agent", settings=folder) as one,
        crashlab.holder("agents.billing:agent", settings=folder) as two,
    ):
        wait_until(lambda: (found := local.status(folder)) and len(found.leases) == 2, 30)
        found = local.status(folder)
        assert sorted(found.leases) == sorted([one.pid, two.pid])
        one.kill()
        one.wait()
        wait_until(lambda: local.status(folder).leases == [two.pid])
        assert alive(found.server_pid)
        two.kill()
        two.wait()
        killed = time.monotonic()
        wait_until(lambda: not alive(found.server_pid) and not alive(found.keeper_pid), GRACE + 10)
        assert time.monotonic() - killed > GRACE - 0.5
    assert local.status(folder) is None


def test_x5_the_last_book_out_does_not_take_the_others_server(folder):
    with agentbook.open(settings=folder) as book:
        with crashlab.holder("agents.billing:agent", settings=folder, start="r", input="hi"):
            wait_until(lambda: book.runs(status="completed"), 30)
        assert book.get("r").check()
        assert book.start(Agent("other", model=ScriptedModel(["hello"])), "hi").wait(20) == "hello"
        assert Ledger(folder.dir.with_name("ledger")).count("refund") == 1
    audit(folder)
