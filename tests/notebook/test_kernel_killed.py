"""A kernel is killed in the middle of a turn; a new one runs the same cells, and nothing is repeated."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.live

TURN = "%%turn holder --run order --wait\norder"


def test_a_new_kernel_goes_on_where_the_killed_one_was(kernel, ledger, setup_cell):
    kernel.begin(TURN)
    # In the second turn: the payment is made and recorded, the tool after it has begun and not ended.
    kernel.until(lambda: ledger.count("hold") == 1)
    assert (ledger.count("pay"), ledger.count("model")) == (1, 2)
    kernel.stop()

    kernel.start()
    kernel.execute(setup_cell, 60)
    cell = kernel.begin(TURN)
    kernel.until(lambda: ledger.count("hold") == 2)
    kernel.open_gate("order")
    assert cell.wait().result["text/plain"] == "'done'"

    # What had ended is not repeated: the payment, and both answers of the model. The safe tool had not.
    assert (ledger.count("pay"), ledger.count("model"), ledger.count("hold")) == (1, 2, 2)
    assert {entry.pid for entry in ledger.entries() if entry.name == "hold"} == {first(ledger), kernel.pid}

    timeline = kernel.value("book.get('order').timeline")
    for word in ("↺ replayed", "↻ ran again", f"taken over by kernel {kernel.pid}"):
        assert word in timeline
    assert kernel.value("bool(book.get('order').check())") == "True"
    ran, replayed = eval(kernel.value("(lambda result: (result.ran, result.replayed))(book.get('order').result())"))
    assert (ran, replayed) == (5, 1)


def first(ledger):
    return ledger.entries()[0].pid


def test_the_finished_cell_run_again_answers_and_runs_nothing(kernel, ledger, setup_cell):
    before = ledger.starts()
    kernel.stop()
    kernel.start()
    kernel.execute(setup_cell, 60)
    assert kernel.execute(TURN).result["text/plain"] == "'done'"
    assert ledger.starts() == before
