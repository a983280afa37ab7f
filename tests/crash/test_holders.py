"""Who may take a run up: live, stalled and dead holders, several at once, and ones that die again and again."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from agents import billing, dying, held
from agents.ledger import Ledger
from processes import wait_until

from agentbook import crashlab
from agentbook.crashlab import Fault
from agentbook.errors import RunFailed

pytestmark = [pytest.mark.crash, pytest.mark.live]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    return Ledger(tmp_path / "ledger")


def claims(run):
    return [record for record in run.journal() if record.kind == "claim"]


def holder_of_r(settings):
    return crashlab.holder("agents.held:agent", settings=settings, start="r", input="hi")


@pytest.fixture
def holding(agentbook_settings, ledger):
    """A child process that holds run r inside its tool."""
    with holder_of_r(agentbook_settings) as child:
        wait_until(lambda: ledger.count("hold") == 1, 20)
        yield child


def open_gate(ledger):
    ledger.path.with_name(held.GATE).touch()


def test_f2_a_run_that_is_live_elsewhere_is_only_watched(book, holding, ledger):
    book.register(held.agent)
    run = book.attach("r")
    assert run.resume() == "viewing"
    again = book.start(held.agent, "hi", run_id="r")
    assert len(claims(run)) == 1
    open_gate(ledger)
    assert again.wait(20) == held.ANSWER
    assert ledger.count("hold") == 1


def test_a_live_holder_is_fenced_by_force_alone_and_says_by_whom(book, holding, ledger):
    book.register(held.agent)
    run = book.attach("r", force=True)
    assert run.wait(20) == held.ANSWER
    # The new dispatch may go to the very process that was fenced: it serves the agent too.
    taker = claims(run)[1].worker
    ledger.await_log(holding.pid, f"fenced: {taker} took over run r")
    assert ledger.count("hold") == 2


def test_f3_a_stalled_holder_is_viewed_and_force_fences_it_and_it_wakes_to_nothing(book, holding, ledger):
    holding.stall()
    holding.wait_stalled()
    run = book.get("r")
    assert run.resume() == "viewing"
    assert len(claims(run)) == 1
    assert run.resume(force=True) == "dispatched"
    book.register(held.agent)
    assert run.wait(20) == held.ANSWER
    records, starts = run.journal(), ledger.entries()
    open_gate(ledger)
    holding.wake()
    ledger.await_log(holding.pid, "fenced: ")
    holding.process.stdin.close()
    assert holding.wait() == 0
    assert run.journal() == records
    assert ledger.entries() == starts
    assert run.status == "completed"


def test_a_dead_holder_is_replaced_by_attach_without_waiting_for_the_ack_wait(new_book, ledger):
    book = new_book(ack_wait=60.0)
    fault = Fault("inside_tool", tool="notify")
    with crashlab.holder("agents.billing:agent", settings=book.settings, fault=fault, start="r", input="hi") as child:
        assert child.wait() == -signal.SIGKILL
    book.register(billing.agent)
    begun = time.monotonic()
    assert book.attach("r").wait(30) == billing.ANSWER
    assert time.monotonic() - begun < 20
    assert ledger.count("refund") == 1


def attacher(settings):
    """A process that attaches when it is told to."""
    given = json.dumps({**asdict(settings), "dir": str(settings.dir)})
    return subprocess.Popen(
        [sys.executable, "-m", "agents.attacher", "r", given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )


@contextmanager
def attachers(settings, count):
    """Processes that are ready to attach."""
    with ExitStack() as ends:
        children = []
        for _ in range(count):
            child = ends.enter_context(attacher(settings))
            ends.callback(child.kill)
            children.append(child)
        for child in children:
            assert child.stdout.readline() == "ready\n"
        yield children


def test_f1_of_five_processes_that_attach_at_once_one_takes_the_run_and_the_others_watch(new_book, ledger):
    # A long ack wait: nothing but their attaching brings the run back.
    book = new_book(ack_wait=60.0)
    fault = Fault("inside_tool", tool="refund")
    with crashlab.holder("agents.billing:agent", settings=book.settings, fault=fault, start="r", input="hi") as child:
        assert child.wait() == -signal.SIGKILL
    run = book.get("r")
    before = claims(run)
    with attachers(book.settings, 5) as children:
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        answers = [json.loads(child.stdout.readline())["answer"] for child in children]
        assert answers == [billing.UNSURE] * 5
    assert [claim.iteration for claim in claims(run)[len(before) :]] == [1, 2, 3]
    assert {name: ledger.count(name) for name in billing.TOOLS} == {"search": 1, "refund": 1, "notify": 1}


@pytest.mark.parametrize("limit", [2, 3])
def test_an_agent_whose_tool_takes_its_process_down_each_time_fails_at_the_restart_limit(new_book, ledger, limit):
    book = new_book(restart_limit=limit)
    deaths = 0
    start = "r"
    while True:
        with crashlab.holder("agents.dying:agent", settings=book.settings, start=start, input="hi") as child:
            start = None
            wait_until(lambda child=child: child.process.poll() is not None or _failed(book), 30)
            if child.process.poll() is None:
                break
            assert child.process.returncode == dying.CODE
            deaths += 1
    with pytest.raises(RunFailed, match="its worker dies") as caught:
        book.get("r").wait(20)
    assert caught.value.reason == "restart_limit"
    assert deaths == ledger.count("crash") == limit
    assert [record.kind for record in book.get("r").journal()][-limit:] == ["claim"] * (limit - 1) + ["commit"]


def _failed(book):
    return bool(book.runs(status="failed"))


def test_h6_a_process_that_dies_inside_an_unsafe_tool_after_its_effect_is_not_started_again(book, ledger):
    with crashlab.holder("agents.dying:payer", settings=book.settings, start="r", input="hi") as child:
        assert child.wait() == dying.CODE
    book.register(dying.payer)
    assert book.attach("r").wait(20) == "told"
    assert ledger.count("pay") == 1
    results = [record for record in book.get("r").journal() if record.kind == "tool.result"]
    assert results[0].interrupted is not None
