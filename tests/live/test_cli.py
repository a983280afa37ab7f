"""The command line in a real process: exit codes, what it prints, JSON that parses, errors that help."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import wait_until

from agentbook import Agent, ScriptedModel, ToolCall, tool
from agentbook.broker import local
from agentbook.broker.names import JOURNAL
from agentbook.errors import CallLimit
from agentbook.settings import Settings
from agentbook.worker.registry import Registration

pytestmark = pytest.mark.live

DONE = "all done"
COMMAND = [sys.executable, "-c", "from agentbook.cli import main; main()"]
ROOT = Path(__file__).parents[2]


def environment(settings):
    """The environment that gives a command these settings."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "AGENTBOOK_DIR": str(settings.dir),
        "AGENTBOOK_DURABILITY": settings.durability,
        "AGENTBOOK_NAMESPACE": settings.namespace or "",
        "AGENTBOOK_SERVER_GRACE": str(settings.server_grace),
        "AGENTBOOK_ACK_WAIT": str(settings.ack_wait),
        "COLUMNS": "200",
    }


class Cli:
    def __init__(self, settings):
        self.settings = settings

    def __call__(self, *arguments, code=0):
        """Run a command; what it printed, and what it complained about if it must fail."""
        done = subprocess.run(
            [*COMMAND, *arguments], env=environment(self.settings), capture_output=True, text=True, timeout=50
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *arguments, code=0):
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def cli(agentbook_settings):
    return Cli(agentbook_settings)


@pytest.fixture
def folder(tmp_path):
    """A folder of the test's own, without a server."""
    settings = Settings(dir=tmp_path / "store", durability="process", server_grace=60)
    yield Cli(settings)
    local.down(settings, force=True)


def two_turns(book, run_id="r", **more):
    @tool(replay="safe")
    async def look(what: str) -> str:
        """Look."""
        return what

    agent = Agent("looker", model=ScriptedModel([ToolCall("look", {"what": "order 42"}), DONE]), tools=[look])
    run = book.start(agent, "hi", run_id=run_id, **more)
    run.wait(20)
    return run


@pytest.fixture
def held(book):
    """A run that is inside its tool until the gate opens."""
    gate, reached = threading.Event(), threading.Event()

    @tool(replay="safe")
    def hold() -> str:
        """Wait for the gate."""
        reached.set()
        assert gate.wait(50)
        return "held"

    book.start(Agent("holder", model=ScriptedModel([ToolCall("hold"), DONE]), tools=[hold]), "hi", run_id="r")
    assert reached.wait(20)
    yield gate
    gate.set()


@pytest.fixture
def halted(book):
    """A run that is parked; the handler is mended, so it would go on."""
    mended = threading.Event()

    async def handle(ctx):
        await ctx.journal()
        if not mended.is_set():
            raise CallLimit("too many calls")
        await ctx.complete(DONE)

    book._registered["hand"] = agent = Agent("hand", model=ScriptedModel([DONE]))
    book.service.call(book.worker.register, Registration("hand", handle, "code"))
    run = book.start(agent, "hi", run_id="r")
    wait_until(lambda: run.status == "halted", 20)
    mended.set()
    return run


def test_up_status_and_down_start_show_and_stop_the_folders_server(folder):
    assert "no server runs" in folder("status")
    assert folder.json("status") is None
    said = folder("up")
    found = folder.json("status")
    assert found["url"] in said
    assert found["durability"] == "process"
    assert str(found["keeper_pid"]) in folder("status")
    assert folder("down").strip() == "down"
    assert "no server runs" in folder("down")
    assert folder.json("status") is None


def test_down_refuses_while_others_use_the_server_and_says_who_and_force_does_it(folder):
    lease = local.acquire(folder.settings)
    assert str(os.getpid()) in folder("down", code=1)
    assert folder("down", "--force").strip() == "down"
    lease.release()


def test_the_folder_can_be_named_on_the_command_line(folder, tmp_path):
    folder("up")
    elsewhere = Cli(Settings(dir=tmp_path / "other", durability="process"))
    assert elsewhere.json("status") is None
    assert elsewhere.json("status", "--dir", str(folder.settings.dir))["durability"] == "process"


def test_doctor_passes_where_all_is_well_and_fails_where_something_is_broken(cli):
    assert {check["verdict"] for check in cli.json("doctor")} <= {"ok", "warn"}
    assert "✓" in cli("doctor")
    broken = cli("doctor", "--url", "nats://127.0.0.1:1", code=1)
    assert "✗" in broken


def test_runs_lists_and_filters(book, cli):
    assert "No runs yet" in cli("runs")
    assert cli.json("runs") == []
    two_turns(book, "one", labels={"team": "red"}, title="The first")
    two_turns(book, "two")
    found = cli.json("runs")
    assert [(info["id"], info["status"], info["turns"]) for info in found] == [
        ("two", "completed", 2),
        ("one", "completed", 2),
    ]
    assert [info["title"] for info in cli.json("runs", "--label", "team=red")] == ["The first"]
    assert cli.json("runs", "--status", "failed") == []
    assert [info["id"] for info in cli.json("runs", "--limit", "1")] == ["two"]
    text = cli("runs")
    assert "looker" in text
    assert text.index("two") < text.index("one ")


def test_show_tells_what_a_run_did(book, cli):
    two_turns(book)
    text = cli("show", "r")
    assert "look" in text
    assert "completed" in text
    shown = cli.json("show", "r")
    assert shown["run"]["id"] == "r"
    assert shown["timeline"]


def test_journal_show_prints_the_records(book, cli):
    run = two_turns(book)
    records = cli.json("journal", "show", "r")
    assert [record["seq"] for record in records] == [record.seq for record in run.journal()]
    assert [record["kind"] for record in records][:4] == ["claim", "model", "tool.intent", "tool.result"]
    last = records[-1]["seq"]
    assert [record["seq"] for record in cli.json("journal", "show", "r", "--from", str(last))] == [last]
    assert len(cli("journal", "show", "r").splitlines()) == len(records)


def test_journal_check_passes_a_clean_journal(book, cli):
    two_turns(book)
    assert "clean" in cli("journal", "check", "r")
    assert cli.json("journal", "check", "r")["clean"] is True


def test_journal_check_fails_a_broken_journal_and_shows_the_records(new_book, agentbook_settings):
    apart = new_book(namespace=f"{agentbook_settings.namespace}x")
    two_turns(apart)
    subject = apart.connection.names.journal("r", "agent")
    apart.service.call(apart.connection.purge, JOURNAL, subject, keep=2)
    cli = Cli(apart.settings)
    text = cli("journal", "check", "r", code=1)
    assert "head present" in text
    report = cli.json("journal", "check", "r", code=1)
    assert report["clean"] is False
    assert "head present" in {violation["rule"] for violation in report["violations"]}


def test_graph_prints_each_format_and_names_them_if_asked_for_another(book, cli):
    two_turns(book)
    assert cli("graph", "r").startswith("flowchart")
    assert cli("graph", "r", "--format", "dot").startswith("digraph")
    assert "<svg" in cli("graph", "r", "--format", "svg")
    assert "mermaid" in cli("graph", "r", "--format", "png", code=2)


def test_attach_prints_the_answer_of_a_finished_run(book, cli):
    two_turns(book)
    assert DONE in cli("attach", "r")


def test_attach_to_a_failed_run_tells_why(book, cli):
    book.start(Agent("looker", model=ScriptedModel([ConnectionError("down")])), "hi", run_id="r")
    wait_until(lambda: book.get("r").status == "failed", 20)
    assert "ConnectionError: down" in cli("attach", "r", code=1)


def test_attach_waits_for_a_live_run_and_an_interrupt_leaves_it(book, cli, held):
    command, given = [*COMMAND, "attach", "r"], environment(cli.settings)
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as attached:
        assert "running" in attached.stdout.readline()
        attached.send_signal(signal.SIGINT)
        assert attached.wait(20) == 130
    held.set()
    assert book.get("r").wait(20) == DONE
    assert [record.kind for record in book.get("r").journal()].count("claim") == 2


def test_resume_leaves_a_live_run_alone_and_an_ended_one_too(book, cli, held):
    assert "left alone" in cli("resume", "r")
    held.set()
    book.get("r").wait(20)
    assert "has ended" in cli("resume", "r")


def test_resume_hands_a_halted_run_on(halted, cli):
    assert "dispatched" in cli("resume", "r")
    assert halted.wait(20) == DONE
    assert {record.attempt for record in halted.journal()} == {1}


def test_retry_begins_a_halted_turn_again_as_a_new_attempt(halted, cli):
    assert "new attempt" in cli("retry", "r")
    assert halted.wait(20) == DONE
    assert {record.attempt for record in halted.journal()} == {1, 2}


def test_retry_of_a_run_that_is_not_halted_says_so(book, cli):
    two_turns(book)
    assert "completed" in cli("retry", "r", code=1)


def test_cancel_ends_a_run_and_keeps_the_reason(book, cli, held):
    assert "cancelled" in cli("cancel", "r", "--reason", "changed my mind")
    assert book.get("r").status == "cancelled"
    assert "changed my mind" in cli("attach", "r", code=1)


@pytest.mark.parametrize(
    "command",
    ["show", "attach", "resume", "retry", "cancel", "graph", "journal show", "journal check"],
)
def test_an_unknown_run_is_named_in_one_line(cli, command):
    said = cli(*command.split(), "nobody", code=1)
    assert "nobody" in said
    assert len(said.strip().splitlines()) == 1


def test_no_server_at_a_url_is_one_line_that_says_what_to_do(cli):
    said = cli("runs", "--url", "nats://127.0.0.1:1", code=1)
    assert "start one there" in said
    assert len(said.strip().splitlines()) == 1


def test_a_store_that_cannot_be_used_is_one_line(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    said = Cli(Settings(dir=file, durability="process"))("runs", code=1)
    assert str(file) in said
    assert len(said.strip().splitlines()) == 1


def test_the_version_and_what_there_is(cli):
    assert cli("--version").strip()
    listed = cli("--help")
    for command in ("demo", "up", "down", "status", "doctor", "runs", "show", "attach", "resume", "cancel", "journal"):
        assert command in listed
