"""A run and the cell that started it: the cell may end, wait or be interrupted; the run goes on."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.live

PROMPT = 0.5
"""Seconds within which the stop button frees a cell."""


def start(kernel, gate, *options):
    """A run that waits for its gate."""
    cell = kernel.execute(f"%%turn holder --run {gate} {' '.join(options)}\n{gate}")
    assert not cell.errors, cell.errors[0]
    return cell


def status(kernel, run):
    return kernel.value(f"book.get({run!r}).status")


def ended(kernel, run):
    """Wait for a run's end with no help of a cell: its journal's end makes the display be replaced."""
    return kernel.until(lambda: [each for each in kernel.heard if is_end(each, run)])


def is_end(heard, run):
    return heard.kind == "update_display_data" and f"<bdi>{run}</bdi>" in heard.content["data"]["text/html"]


def interrupted(kernel, code):
    """Interrupt a waiting cell; the fastest of a few tries, since the machine may be busy with other things."""
    seconds, cell = [], None
    for _ in range(3):
        cell = kernel.begin(code)
        kernel.until(lambda cell=cell: cell.outputs)
        kernel.interrupt()
        seconds.append(cell.finished_within(30))
        if seconds[-1] < PROMPT:
            break
    assert min(seconds) < PROMPT, seconds
    return cell


def test_a_turn_returns_its_handle_at_once_while_the_run_goes_on(kernel):
    start(kernel, "at-once", "-o kept")
    assert kernel.value("kept, kept.status") == "(<Run at-once>, 'running')"
    kernel.open_gate("at-once")
    assert kernel.value("await kept") == "'done'"


def test_without_o_a_turn_writes_no_name_of_the_notebook(kernel):
    kernel.execute("names = set(dir())")
    start(kernel, "no-name")
    new = "sorted(name for name in set(dir()) - names if not name.startswith('_') and name != 'names')"
    assert kernel.value(new) == "[]"
    kernel.open_gate("no-name")


def test_the_handle_is_the_cell_value(kernel):
    start(kernel, "value")
    assert kernel.value("_.id") == "'value'"
    kernel.open_gate("value")


def test_with_wait_the_cell_ends_with_the_answer(kernel):
    cell = kernel.begin("%%turn holder --run waits --wait -o kept\nwaits")
    kernel.until(lambda: cell.displays)
    assert cell.finished_within(0.5) is None
    kernel.open_gate("waits")
    assert cell.wait().result["text/plain"] == "'done'"
    assert kernel.value("kept.id, kept.status") == "('waits', 'completed')"


def test_a_waiting_turn_leaves_the_kernel_free_for_widgets(kernel):
    cell = kernel.begin("%%turn holder --run free --wait\nfree")
    kernel.until(lambda: cell.displays)
    kernel.send(cell.widget, {"type": "snapshot", "id": "while-waiting"})
    kernel.until(lambda: [each for each in kernel.told(cell.widget) if each.get("id") == "while-waiting"])
    assert cell.finished_within(0.1) is None
    kernel.open_gate("free")
    assert not cell.wait().errors


@pytest.mark.parametrize("code", ["await run", "run.wait()", "run.result().output"])
def test_a_cell_waits_for_a_run(kernel, code):
    gate = "".join(letter for letter in code if letter.isalpha())
    start(kernel, gate, "-o run")
    cell = kernel.begin(code)
    assert cell.finished_within(0.3) is None
    kernel.open_gate(gate)
    assert cell.wait().result["text/plain"] == "'done'"


def test_several_runs_are_awaited_at_once(kernel):
    for name in ("one", "two"):
        start(kernel, name, f"-o {name}")
        kernel.open_gate(name)
    assert kernel.value("await asyncio.gather(one, two)") == "['done', 'done']"


@pytest.mark.parametrize(("code", "gate"), [("await run", "cut-await"), ("run.wait()", "cut-wait")])
def test_an_interrupt_frees_the_waiting_cell_and_the_run_goes_on(kernel, code, gate):
    start(kernel, gate, "-o run")
    cell = interrupted(kernel, f"print('waiting')\n{code}")
    (text,) = cell.errors
    assert f"KeyboardInterrupt: this cell no longer waits for run {gate}, which goes on." in text
    for way in ("`await run`", "`run`", "`run.cancel()`"):
        assert way in text
    assert status(kernel, gate) == "'running'"
    kernel.open_gate(gate)
    assert kernel.value(code) == "'done'"


def test_an_interrupt_frees_a_turn_that_waits(kernel):
    cell = interrupted(kernel, "%%turn holder --run cut-turn --wait\ncut-turn")
    assert "which goes on" in cell.errors[0]
    kernel.open_gate("cut-turn")
    again = kernel.execute("%%turn holder --run cut-turn --wait\ncut-turn")
    assert again.result["text/plain"] == "'done'"


def test_an_await_of_ones_own_task_is_cancelled_not_detached(kernel):
    start(kernel, "own-task", "-o run")
    cell = kernel.execute(
        "async def waits():\n    return await run\n"
        "task = asyncio.create_task(waits())\nawait asyncio.sleep(0.05)\ntask.cancel()\n"
        "try:\n    await task\nexcept asyncio.CancelledError:\n    print('cancelled')"
    )
    assert (cell.text, cell.errors) == ("cancelled\n", [])
    kernel.open_gate("own-task")


@pytest.mark.parametrize(
    "code", ["await asyncio.gather(run, run)", "await asyncio.create_task(asyncio.wait_for(run, 9))"]
)
def test_an_interrupt_of_tasks_that_wait_leaves_the_kernel_alive(kernel, code):
    """A KeyboardInterrupt in a task that is not the cell's ends the kernel's loop."""
    gate = f"tasks-{len(code)}"
    start(kernel, gate, "-o run")
    cell = interrupted(kernel, f"print('waiting')\n{code}")
    assert "CancelledError" in cell.errors[0]
    assert status(kernel, gate) == "'running'"
    kernel.open_gate(gate)
    assert kernel.value("await run") == "'done'"


@pytest.mark.parametrize(
    "code", ["await asyncio.wait_for(run, 0.2)", "async with asyncio.timeout(0.2):\n    await run", "run.wait(0.2)"]
)
def test_a_time_out_of_ones_own_is_a_time_out(kernel, code):
    gate = f"late-{len(code)}"
    start(kernel, gate, "-o run")
    (text,) = kernel.execute(code).errors
    assert text.splitlines()[-1].startswith("TimeoutError")
    assert status(kernel, gate) == "'running'"
    kernel.open_gate(gate)
    assert kernel.value("await run") == "'done'"


def test_a_run_ends_with_no_further_cell_executed(kernel):
    cell = start(kernel, "alone")
    executed = [each for each in kernel.heard if each.kind == "execute_input"]
    kernel.open_gate("alone")
    (end,) = ended(kernel, "alone")
    assert executed == [each for each in kernel.heard if each.kind == "execute_input"]
    assert end.content["transient"]["display_id"] == cell.displays[1]["transient"]["display_id"]


def test_a_run_goes_on_while_a_cell_blocks_the_kernel(kernel, ledger):
    start(kernel, "blocked")
    cell = kernel.begin("import time\nprint('blocking')\nwhile not (gates / 'unblock').exists(): time.sleep(0.01)")
    kernel.until(lambda: "blocking" in cell.text)
    kernel.open_gate("blocked")
    ended(kernel, "blocked")
    assert cell.finished_within(0.1) is None
    kernel.open_gate("unblock")
    cell.wait()
