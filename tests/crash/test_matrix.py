"""The crash matrix of one agent turn: each seam, killed or stalled, in a safe turn, the unsafe one and the one after.

Real processes: the holder is a child that really gets the signal at the seam; this process
takes the run over by the ack wait alone. All cells occur: every turn of the matrix has a model
call, a tool, whose result is large where the seam needs it, and a commit that is followed by
another turn. The seam `after_save` of a run's start belongs to no turn; it has tests of its
own below.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from agents import billing
from agents.ledger import Ledger
from crash.cells import RUN, committed, finished, gate_at_claim, look, prove_inside

from agentbook import crashlab
from agentbook.crashlab import Fault
from agentbook.seams import SEAMS

pytestmark = [pytest.mark.crash, pytest.mark.live]

TURNS = {0: "first", 1: "unsafe", 2: "after"}
CUT = ("after_intent", "inside_tool", "after_spill")
"""Seams between a call's intent and its result: nobody can know whether it happened."""


def cells():
    return [pytest.param(seam, turn, id=f"{seam}-{name}") for seam in SEAMS for turn, name in TURNS.items()]


@pytest.fixture
def agentbook_settings(agentbook_settings):
    """Twice the usual ack wait: a machine so busy that heartbeats come a second late must not pass for a stall."""
    return replace(agentbook_settings, ack_wait=2.0)


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def seam(request, monkeypatch):
    """The cell's seam; at `after_spill` the tools return more than a record holds."""
    if request.param == "after_spill":
        monkeypatch.setenv("BULK", "300000")
    return request.param


def victim(settings, fault: Fault):
    """The process that starts the run, and to which the fault happens."""
    return crashlab.holder("agents.billing:agent", settings=settings, fault=fault, start=RUN, input="refund 42")


def answer_of(seam: str, turn: int) -> str:
    """A run that was cut inside the unsafe call says so; every other one ends as without a crash."""
    return billing.UNSURE if turn == 1 and seam in CUT else billing.ANSWER


def assert_counts(ledger, seam: str, turn: int, *, woken: bool) -> None:
    """Every start there was, by name: no call twice but a safe one that was cut."""
    expected = {"clerk": 4, "search": 1, "refund": 1, "notify": 1}
    tool = billing.TOOLS[turn]
    if seam in ("inside_tool", "after_spill") and turn != 1:
        expected[tool] = 2
    if seam == "after_intent":
        # A woken holder may start the call whose intent it had stored, and no other.
        expected[tool] = (0 if turn == 1 else 1) + (1 if woken else 0)
    assert {name: ledger.count(name) for name in expected} == expected


def test_without_a_crash_the_agent_answers(book, ledger):
    assert book.start(billing.agent, "refund 42", run_id=RUN).wait(20) == billing.ANSWER
    assert_counts(ledger, "after_claim", 0, woken=False)


@pytest.mark.parametrize(("seam", "turn"), cells(), indirect=["seam"])
def test_a_killed_holder_is_replaced_and_nothing_finished_is_repeated(
    agentbook_server, agentbook_settings, new_book, ledger, seam, turn
):
    with victim(agentbook_settings, Fault(seam, iteration=turn)) as child:
        assert child.wait() == -signal.SIGKILL
    before = look(agentbook_server, agentbook_settings)
    prove_inside(before, seam, turn, ledger)
    done = finished(before)

    book = new_book()
    book.register(billing.agent)
    assert book.get(RUN).wait(20) == answer_of(seam, turn)

    starts = ledger.starts()
    assert {call: starts[call] for call in done} == dict.fromkeys(done, 1)
    assert ledger.count("refund") <= 1
    assert_counts(ledger, seam, turn, woken=False)


@pytest.mark.parametrize(("seam", "turn"), cells(), indirect=["seam"])
def test_a_stalled_holder_that_wakes_changes_nothing(
    agentbook_server, agentbook_settings, new_book, ledger, seam, turn
):
    with victim(agentbook_settings, Fault(seam, "stall", iteration=turn)) as child, gate_at_claim() as gate:
        child.wait_stalled()
        before = look(agentbook_server, agentbook_settings)
        prove_inside(before, seam, turn, ledger)
        done = finished(before)
        written = before.by(child.pid)

        book = new_book()
        book.register(billing.agent)
        assert gate.entered.wait(20)
        taken_over = look(agentbook_server, agentbook_settings)
        holding = taken_over.snapshot.steps["agent"].dispatch
        assert len(taken_over.by(os.getpid())) == 1
        started = len(ledger.entries())

        child.wake()
        if not committed(before, turn):
            ledger.await_log(child.pid, "fenced: ")
        child.process.stdin.close()
        assert child.wait() == 0

        woken = look(agentbook_server, agentbook_settings)
        assert woken.by(child.pid) == written
        assert woken.records == taken_over.records
        assert holding in woken.tasks
        new = ledger.entries()[started:]
        assert [(entry.kind, entry.name) for entry in new] == (
            [("tool", billing.TOOLS[turn])] if seam == "after_intent" else []
        )

        gate.released.set()
        assert book.get(RUN).wait(20) == answer_of(seam, turn)
        starts = ledger.starts()
        assert {call: starts[call] for call in done} == dict.fromkeys(done, 1)
        assert ledger.count("refund") <= 1
        assert_counts(ledger, seam, turn, woken=True)


def test_a_run_whose_starter_died_before_its_first_dispatch_is_finished_by_attach(
    agentbook_server, agentbook_settings, new_book, ledger
):
    """`after_save` of the start itself: the run exists, nothing was sent for it, nothing has run."""
    with victim(agentbook_settings, Fault("after_save", iteration=-1)) as child:
        assert child.wait() == -signal.SIGKILL
    before = look(agentbook_server, agentbook_settings)
    assert (before.records, before.tasks, before.snapshot.status) == ([], [], "running")
    assert ledger.entries() == []
    book = new_book()
    book.register(billing.agent)
    assert book.attach(RUN).wait(20) == billing.ANSWER
    assert_counts(ledger, "before_claim", 0, woken=False)


def test_a_starter_that_stalled_before_its_first_dispatch_sends_none_twice(
    agentbook_server, agentbook_settings, new_book, ledger
):
    with victim(agentbook_settings, Fault("after_save", "stall", iteration=-1)) as child:
        child.wait_stalled()
        assert look(agentbook_server, agentbook_settings).tasks == []
        book = new_book()
        book.register(billing.agent)
        assert book.attach(RUN).wait(20) == billing.ANSWER
        written = look(agentbook_server, agentbook_settings).records
        child.wake()
        child.process.stdin.close()
        assert child.wait() == 0
    assert look(agentbook_server, agentbook_settings).records == written
    assert_counts(ledger, "before_claim", 0, woken=True)
