"""`agentbook demo` in a real process: its guarantees hold wherever it is killed, and it says so if one does not."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import alive, wait_until

from agentbook.seams import SEAMS

pytestmark = [pytest.mark.live, pytest.mark.crash]

ROOT = Path(__file__).parents[2]

CARELESS = """
import sys
from agentbook import Agent, ScriptedModel, ToolCall
from agentbook.cli import main
from agentbook.demo import billing, story

# A model that refunds again when it reads that a refund may have happened.
again = ToolCall("refund", {"order": 42, "cents": 5900})
model = ScriptedModel([ToolCall("search_orders", {"customer": "ada"}), again, again, "refunded, I think"])
story.agent = Agent("billing", model=model, tools=list(billing.agent.tools))
sys.argv = ["agentbook", "demo"]
main()
"""


def demo(tmp_path, *arguments, code="from agentbook.cli import main; main()"):
    """Run the demo; its exit code, what it printed, and the seconds it took."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp"), "COLUMNS": "200"}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", *arguments], env=environment, capture_output=True, text=True, timeout=55
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


def nothing_left(tmp_path):
    """No process of the demo is left, and no file."""
    place = str(tmp_path).encode()

    def ours():
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and alive(int(entry.name)):
                try:
                    found += [entry.name] if place in (entry / "cmdline").read_bytes() else []
                except OSError:
                    continue
        return found

    wait_until(lambda: ours() == [], 10)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_demo_holds_its_guarantees_in_time_and_leaves_nothing_behind(tmp_path):
    seconds = []
    while not seconds or (min(seconds) >= 15 and len(seconds) < 3):
        code, said, took = demo(tmp_path)
        seconds.append(took)
        assert code == 0, said
        assert "SIGKILL inside turn 1" in said
        assert "the refund was started once: 1 start" in said
        assert "✗" not in said
        assert "flowchart" in said
    assert min(seconds) < 15
    nothing_left(tmp_path)


REACHED = [seam for seam in SEAMS if seam != "after_spill"]  # none of the demo's values is large


@pytest.mark.parametrize("seam", REACHED)
def test_the_guarantees_hold_wherever_the_process_is_killed(tmp_path, seam):
    code, said, _ = demo(tmp_path, "--crash", seam)
    assert code == 0, said
    assert "✓ the kill fell inside the run" in said
    pids = set(re.findall(r"^  process (\d+)  (?:model|tool) ", said, re.MULTILINE))
    # Only before the first call has the first process started nothing.
    assert len(pids) == (1 if seam in ("before_claim", "after_claim", "after_save") else 2)


def test_a_seam_of_a_turn_and_a_tool_can_be_named(tmp_path):
    code, said, _ = demo(tmp_path, "--crash", "after_result@2:notify")
    assert code == 0, said
    assert "SIGKILL inside turn 2" in said


def test_without_a_crash_the_refund_is_certain(tmp_path):
    code, said, _ = demo(tmp_path, "--no-crash")
    assert code == 0, said
    assert "Order 42 is refunded" in said
    assert "the kill" not in said


def test_a_demo_whose_agent_repeats_the_refund_exits_1_and_names_the_guarantee(tmp_path):
    code, said, _ = demo(tmp_path, code=CARELESS)
    assert code == 1
    assert "✗ the refund was started once: 2 starts" in said
    nothing_left(tmp_path)


@pytest.mark.parametrize("seam", ["after_spill", "after_claim@9", "inside_tool:nobody"])
def test_a_place_that_the_run_never_comes_to_proves_nothing_and_says_so(tmp_path, seam):
    code, said, _ = demo(tmp_path, "--crash", seam)
    assert code == 1
    assert "never came to seam" in said
    nothing_left(tmp_path)


@pytest.mark.parametrize("wrong", ["nowhere", "after_claim@x"])
def test_a_seam_that_there_is_not_is_refused_with_the_ones_there_are(tmp_path, wrong):
    code, said, _ = demo(tmp_path, "--crash", wrong)
    assert code == 1
    assert "inside_tool" in said


def test_a_kept_store_can_be_looked_at_and_is_not_overwritten(tmp_path):
    keep = tmp_path / "kept"
    code, said, _ = demo(tmp_path, "--keep", str(keep))
    assert code == 0, said
    assert str(keep / "store") in said
    code, said, _ = demo(tmp_path, "--keep", str(keep))
    assert code == 1
    assert "name another folder" in said


def test_the_report_is_one_page_with_the_guarantees(tmp_path):
    page = tmp_path / "report.html"
    code, said, _ = demo(tmp_path, "--html", str(page))
    assert code == 0, said
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html")
    assert "the refund was started once" in text
