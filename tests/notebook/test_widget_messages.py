"""What a view of the timeline asks, and what it is told: by the messages a front end sees."""

from __future__ import annotations

from itertools import count

import pytest

pytestmark = pytest.mark.live

numbers = count()


def start(kernel, gate):
    cell = kernel.execute(f"%%turn holder --run {gate}\n{gate}")
    assert not cell.errors, cell.errors[0]
    return cell


def ask(kernel, comm, **question):
    """Ask as a view does, and wait for the answer to this question."""
    request = f"view.{next(numbers)}"
    kernel.send(comm, {**question, "id": request})
    (answer,) = kernel.until(lambda: [each for each in kernel.told(comm) if each.get("id") == request])
    return answer


def whole(kernel, comm):
    """The snapshot of a run that has ended, once there is one: a snapshot may be a moment old, and a delta follows."""
    answer = ask(kernel, comm, type="snapshot")
    return answer if answer["timeline"]["head"]["status"] == "completed" else None


def states(timeline):
    return [chip["state"] for block in timeline["blocks"] for row in block["rows"] for chip in row["chips"]]


def test_a_view_that_opens_gets_the_whole_timeline_and_every_word(kernel):
    kernel.open_gate("whole")
    cell = start(kernel, "whole")
    answer = kernel.until(lambda: whole(kernel, cell.widget))
    assert len(answer["timeline"]["blocks"]) == 3
    assert set(states(answer["timeline"])) <= set(answer["words"]["states"])
    assert answer["words"]["terms"]["fence"]


def test_a_widget_brings_its_code_and_its_whole_style(kernel):
    cell = start(kernel, "style")
    kernel.open_gate("style")
    (state,) = [
        each.content["data"]["state"]
        for each in kernel.heard
        if each.kind == "comm_open" and each.content["comm_id"] == cell.widget
    ]
    assert "export default" in state["_esm"]
    for part in ("ab-chip", "ab-open", "ab-toggle"):
        assert part in state["_css"]


def test_deltas_arrive_while_the_run_goes_on(kernel):
    cell = start(kernel, "deltas")
    comm = cell.widget
    running = kernel.until(lambda: holding(ask(kernel, comm, type="snapshot")["timeline"]))
    assert running["state"] == "running"
    seen = len(kernel.told(comm))
    kernel.open_gate("deltas")
    told = kernel.until(lambda: completed(kernel.told(comm)[seen:]))
    assert {each["type"] for each in told} <= {"block", "head"}
    # By deltas alone a view gets where a snapshot would get it.
    blocks = {each["block"]["id"]: each["block"] for each in kernel.told(comm) if each["type"] == "block"}
    snapshot = ask(kernel, comm, type="snapshot")["timeline"]
    for block in snapshot["blocks"][1:]:
        assert blocks[block["id"]] == block
    heads = [each["head"] for each in kernel.told(comm) if each["type"] == "head"]
    assert heads[-1] == snapshot["head"]


def holding(timeline):
    chips = [chip for block in timeline["blocks"] for row in block["rows"] for chip in row["chips"]]
    return next((chip for chip in chips if chip["name"] == "hold"), None)


def completed(told):
    return told if any(each["type"] == "head" and each["head"]["status"] == "completed" for each in told) else None


def test_nothing_is_sent_before_a_view_asks(kernel):
    cell = start(kernel, "unasked")
    kernel.open_gate("unasked")
    kernel.value("await book.get('unasked')")
    kernel.until(lambda: [each for each in kernel.heard if each.kind == "update_display_data"])
    assert kernel.told(cell.widget) == []


def test_a_chosen_chip_gets_its_record(kernel):
    kernel.open_gate("record")
    cell = start(kernel, "record")
    timeline = kernel.until(lambda: whole(kernel, cell.widget))["timeline"]
    (paid,) = [chip for chip in timeline["blocks"][0]["rows"][0]["chips"] if chip["name"] == "pay"]
    answer = ask(kernel, cell.widget, type="record", seq=paid["seq"])
    assert (answer["type"], answer["seq"]) == ("record", paid["seq"])
    assert answer["record"]["kind"] == "tool.result"
    assert answer["record"]["run"] == "record"


@pytest.mark.parametrize("seq", [999_999, "1; drop", None, [1]])
def test_a_record_that_is_not_there_is_answered_with_an_error(kernel, seq):
    kernel.open_gate("missing")
    cell = start(kernel, "missing")
    answer = ask(kernel, cell.widget, type="record", seq=seq)
    assert answer["type"] == "error"
    assert f"no record {seq}" in answer["message"]


def test_a_chosen_chip_gets_its_record_with_no_snapshot_before(kernel):
    """A new front end may ask for a record through a widget whose view of before is gone."""
    kernel.open_gate("cold")
    start(kernel, "cold")
    kernel.value("await book.get('cold')")
    seq = int(kernel.value("book.get('cold').journal()[-1].seq"))
    comm = kernel.execute("%timeline cold").widget
    assert ask(kernel, comm, type="record", seq=seq)["record"]["kind"] == "commit"


def test_two_views_of_a_run_are_both_told(kernel):
    first = start(kernel, "two-views").widget
    second = kernel.execute("%timeline two-views").widget
    assert first != second
    for comm in (first, second):
        ask(kernel, comm, type="snapshot")
    kernel.open_gate("two-views")
    for comm in (first, second):
        kernel.until(lambda comm=comm: completed(kernel.told(comm)))


def test_nonsense_from_a_front_end_breaks_nothing(kernel):
    kernel.open_gate("nonsense")
    cell = start(kernel, "nonsense")
    mark = len(kernel.heard)
    for content in ({}, {"type": "unheard-of", "id": 1}, {"type": None}, {"type": "snapshot"}):
        kernel.send(cell.widget, content)
    assert ask(kernel, cell.widget, type="snapshot")["type"] == "snapshot"
    assert not [each for each in kernel.heard[mark:] if each.kind in ("stream", "error")]


def test_a_display_is_followed_by_what_shows_where_no_kernel_runs(kernel):
    cell = start(kernel, "static")
    widget, saved = cell.displays
    assert set(widget["data"]) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert widget["data"]["text/plain"] == "<Run static>"
    assert set(saved["data"]) == {"text/html", "text/plain"}
    for text in saved["data"].values():
        assert "static" in text
        assert "running" in text
    kernel.open_gate("static")
    place = saved["transient"]["display_id"]
    (replaced,) = kernel.until(lambda: [each for each in kernel.heard if is_update(each, place)])
    for text in replaced.content["data"].values():
        assert "completed" in text
        assert "ran" in text
        assert "<script" not in text


def is_update(heard, place):
    return heard.kind == "update_display_data" and heard.content["transient"]["display_id"] == place


def test_a_run_that_waits_shows_its_end_in_its_own_cell(kernel):
    """Tools that execute notebooks drop what comes after a cell has ended."""
    kernel.open_gate("own-cell")
    cell = kernel.execute("%%turn holder --run own-cell --wait\nown-cell")
    kinds = [each.kind for each in cell.outputs]
    assert "update_display_data" in kinds
    assert kinds[-1] == "execute_result"
