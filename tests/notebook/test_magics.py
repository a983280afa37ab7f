"""Each magic: what it does, and one line that says what to do where it cannot."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.live

@pytest.fixture(scope="module")
def done(kernel):
    """A run that has ended."""
    kernel.open_gate("done")
    kernel.execute("%%turn holder --run done --wait\ndone")
    return kernel


def told(cell):
    """The one error of a cell; a traceback would show the code it came from."""
    assert not cell.errors, cell.errors[0]
    _, *said = cell.text.split("UsageError: ")
    assert len(said) == 1
    return said[0]


def value_of(cell):
    assert not cell.errors, cell.errors[0]
    return cell.result["text/plain"]


@pytest.mark.parametrize(
    "body",
    [
        "# begins like a comment\nand goes on",
        'quotes: "double", \'single\', """three""", back\\slash',
        "cost $5, {not} a {template}, %s %d",
        "größer, 日本語, 🚀, e\u0301",
        "%timeline is no magic here\n!nor a command",
        "two\n\nparagraphs",
    ],
)
@pytest.mark.parametrize("wait", ["", "--wait"])
def test_the_text_of_a_cell_is_the_message_as_it_is(kernel, body, wait):
    cell = kernel.execute(f"%%turn greeter {wait} -o run\n\n  {body}  \n")
    assert not cell.errors, cell.errors[0]
    assert kernel.value(f"(await run) == 'You said: ' + {body!r}") == "True"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%turn\nhi", "the following arguments are required: AGENT. Write: %%turn"),
        ("%%turn greeter --rum x\nhi", "unrecognized arguments: --rum x. Write: %%turn"),
        ("%%turn greeter --wait --rum x\nhi", "unrecognized arguments: --rum x. Write: %%turn"),
        ("%%turn greeter --run 'open\nhi", "No closing quotation. Write: %%turn"),
        ("%%turn greeter", "the cell body is empty"),
        ("%%turn greeter --wait\n  \n", "the cell is empty: write the message to greeter below the first line"),
        ("%%turn nobody\nhi", "there is no agent 'nobody' in this notebook; the agents are: greeter, holder"),
        ("%%turn greeter --run done\nhi", "To begin another run, write another --run."),
        ("%%turn greeter --run 'cost $5, {book}'\nhi", "cost $5, {book}"),
        ("%timeline", "the following arguments are required: RUN. Write: %timeline RUN"),
        ("%timeline nothing", "there is no run 'nothing' in this book"),
        ("%graph nothing", "there is no run 'nothing' in this book"),
        ("%graph done --format png", "invalid choice: 'png'"),
        ("%journal nothing", "there is no run 'nothing' in this book"),
        ("%check nothing", "there is no run 'nothing' in this book"),
        ("%check nothing --more", "unrecognized arguments: --more"),
        ("%attach nothing", "there is no run 'nothing'"),
        ("%attach --forse x", "unrecognized arguments: --forse"),
        ("%agentbook", "the following arguments are required: action"),
        ("%agentbook sideways", "invalid choice: 'sideways'"),
        ("%agentbook connect", "say where: %agentbook connect nats://127.0.0.1:4222"),
        ("%agentbook up nats://127.0.0.1:1", "takes no URL; to use a server of yours: %agentbook connect URL"),
        ("%agentbook connect nats://127.0.0.1:1", "127.0.0.1:1"),
        ("%agentbook up --durability tape", "invalid choice: 'tape'"),
    ],
)
def test_a_mistake_is_one_sentence_without_a_traceback(done, cell, said):
    assert said in told(done.execute(cell))


def test_a_run_that_fails_is_one_sentence_without_a_traceback(kernel):
    kernel.execute('failing = Agent("failing", model=ScriptedModel([lambda request: 1 / 0]))')
    line = told(kernel.execute("%%turn failing --run fails --wait\nhi"))
    assert "run fails" in line
    assert "ZeroDivisionError" in line


def test_the_handle_of_a_failed_run_raises_its_error(kernel):
    kernel.execute('failing = Agent("failing", model=ScriptedModel([lambda request: 1 / 0]))')
    kernel.execute("%%turn failing --run raises\nhi")
    for code in ("await book.get('raises')", "book.get('raises').wait()"):
        (text,) = kernel.execute(code).errors
        assert text.splitlines()[-1].startswith("RunFailed: ")


def test_help_names_the_python_call_of_a_magic(kernel):
    for magic, call in {
        "%%turn": ".start(", "%timeline": "run.timeline", "%graph": "run.graph()", "%journal": "run.frame()",
        "%check": "run.check()", "%attach": ".attach(", "%agentbook": "agentbook.open(",
    }.items():  # fmt: skip
        assert call in kernel.value(f"get_ipython().find_magic({magic.lstrip('%')!r}, '{kind(magic)}').__doc__")


def kind(magic):
    return "cell" if magic.startswith("%%") else "line"


def test_a_magic_takes_the_name_of_a_handle_too(done):
    done.execute("named = book.get('done')")
    assert done.execute("%timeline named").displays[0]["data"]["text/plain"] == "<Run done>"
    assert "clean" in value_of(done.execute("%check named"))


def test_timeline_shows_a_live_view_with_a_static_one(done):
    live, saved = done.execute("%timeline done").displays
    assert "application/vnd.jupyter.widget-view+json" in live["data"]
    assert "text/html" in saved["data"]


def test_graph_shows_mermaid_text_svg_on_request(done):
    cell = done.execute("%graph done")
    assert value_of(cell)
    assert cell.result["text/vnd.mermaid"].startswith("flowchart TB")
    assert "image/svg+xml" not in cell.result
    svg = done.execute("%graph done --format svg").result
    assert "</svg>" in svg["image/svg+xml"]
    assert "text/vnd.mermaid" not in svg


def test_journal_is_a_table_of_the_records(done):
    done.execute("records = %journal done")
    assert done.value("list(records['kind'])[:2]") == "['claim', 'model']"
    assert done.value("len(records) == len(book.get('done').journal())") == "True"


def test_check_says_that_the_journal_holds(done):
    assert value_of(done.execute("report = %check done\nbool(report)")) == "True"


def test_attach_to_a_run_that_ended_shows_it(done):
    cell = done.execute("again = %attach done\nagain.status")
    assert value_of(cell) == "'completed'"


def test_attach_says_which_cell_is_missing(kernel):
    kernel.execute(
        "import threading\n"
        "from agentbook import crashlab\n"
        'stranger = Agent("stranger", model=ScriptedModel([ToolCall("pay", {"what": "x"}), "done"]), tools=[pay])\n'
        'child = crashlab.holder(stranger, start="strange", input="x", fault=crashlab.Fault("inside_tool"))\n'
        "child.wait()"
    )
    cell = kernel.execute("run = %attach strange\nrun")
    assert cell.text == "waiting for a worker that knows stranger: run the cell that defines it, then %attach again\n"
    kernel.execute("book.register(stranger)")
    assert value_of(kernel.execute("await run")) == "'done'"


def test_up_is_the_book_that_is_open(kernel):
    assert value_of(kernel.execute("other = %agentbook up\nother is book")) == "True"


def test_status_says_how_each_part_is(kernel):
    lines = dict(line.split(maxsplit=1) for line in kernel.execute("%agentbook status").text.splitlines()[:6])
    assert lines["server"].startswith("nats://127.0.0.1:")
    assert (lines["durability"], lines["engine"], lines["worker"]) == ("process", "healthy", "healthy")


def test_down_keeps_the_runs_and_up_opens_them_again(done):
    assert "%agentbook up" in done.execute("%agentbook down").text
    for cell in ("%agentbook status", "%agentbook down", "%timeline done", "%%turn greeter\nhi"):
        assert "no book is open: write `%agentbook up`" in told(done.execute(cell))
    cell = done.execute("book = %agentbook up\nbook.get('done').status")
    assert value_of(cell) == "'completed'"


def test_up_in_another_folder_while_a_book_is_open_says_what_to_do(done):
    assert "write `%agentbook down` first" in told(done.execute("%agentbook up --dir elsewhere"))
