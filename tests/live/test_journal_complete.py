"""The journal's promises end to end: secrets, races, size, consumers, files, followers."""

import asyncio
import json
import threading
import time
from contextlib import aclosing

import pytest
from live.journal_steps import Step, outcome

from agentbook import Agent, ScriptedModel, ToolCall, load, tool
from agentbook.book import open as open_book
from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL, TASKS
from agentbook.broker.streams import layout, stream_name
from agentbook.errors import FormatVersion, JournalError, RunFailed
from agentbook.journal.append import Lost
from agentbook.journal.records import Claim, StepValue, ToolIntent

pytestmark = pytest.mark.live

SECRET = 'sk-"quoted"-ß-12345678'


async def everything(connection):
    """The bytes of every message that this book's streams hold."""
    found = {}
    for base in layout(connection.names):
        name = stream_name(connection.names, base)
        config = (await connection.api.call(f"STREAM.INFO.{name}"))["config"]
        if config.get("allow_direct"):
            for subject in config["subjects"]:
                found.setdefault(base, []).extend([each.data async for each in connection.pages(name, subject)])
    return found


def spellings(secret):
    return [secret.encode(), json.dumps(secret).encode()[1:-1], json.dumps(secret, ensure_ascii=False).encode()[1:-1]]


def test_s8_a_secret_is_nowhere_in_the_store_whoever_says_it(book):
    book.redact(SECRET, "KEY")

    @tool(replay="safe")
    async def echo(text: str, *, call: ToolCall) -> dict[str, str]:
        await call.emit(f"partial {SECRET}")
        return {"said": text, SECRET: "a key"}

    @tool(replay="safe")
    async def fails() -> str:
        raise ValueError(f"refused {SECRET}")

    @tool(replay="safe")
    async def large() -> str:
        return SECRET + "x" * 600_000

    model = ScriptedModel(
        [
            [ToolCall("echo", {"text": SECRET}), ToolCall("fails"), ToolCall("large")],
            lambda request: f"the key is {SECRET}",
        ]
    )
    agent = Agent("clerk", model=model, tools=[echo, fails, large])
    run = book.start(agent, f"use {SECRET}", run_id="r", title=SECRET, labels={"key": SECRET})
    answer = run.wait(30)
    assert answer == "the key is «redacted: KEY»"
    asked = str(model.asked()[-1].messages)
    assert SECRET not in asked
    assert asked.count("«redacted: KEY»") >= 4

    def broken(request):
        raise ValueError(SECRET)

    failed = book.start(Agent("broken", model=ScriptedModel([broken])), SECRET, run_id="r2")
    with pytest.raises(RunFailed, match="«redacted: KEY»"):
        failed.wait(20)
    cancelled = book.start(agent, "x", run_id="r3")
    cancelled.cancel(f"because of {SECRET}")

    stored = book.service.call(everything, book.connection)
    assert sum(map(len, stored.values())) > 20
    leaks = {
        base
        for base, messages in stored.items()
        for data in messages
        if any(spelled in data for spelled in spellings(SECRET))
    }
    assert leaks == set()
    assert any("«redacted: KEY»".encode() in data for data in stored[JOURNAL])
    assert run.check()


@pytest.mark.anyio
async def test_f1_of_200_writers_at_once_one_wins(connection, server, settings):
    step = Step(connection)
    others = [await connect(server.target, settings) for _ in range(3)]
    steps = [step, *(step.over(other) for other in others)]
    writers = [steps[number % 4].writer(f"{number:032x}") for number in range(200)]
    claim = Claim(worker="w", dispatch=1, delivery=1, code="c", prev=None, head=None)
    won = await asyncio.gather(*(outcome(writer.append_claim(claim)) for writer in writers))
    assert [sum(isinstance(result, kind) for result in won) for kind in (Claim, Lost)] == [1, 199]
    assert await step.kinds() == ["claim"]
    for other in others:
        await other.close()


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_j5_2000_records_and_50_mb_are_read_to_the_last_page_before_the_first_live_call(connection, capsys):
    step = Step(connection)
    journal = await step.open()
    for number in range(1999):
        await journal.writer.append(StepValue(name="x", value=f"{number:05}" + "y" * 26_000))
    last = journal.writer.tail
    begun = time.perf_counter()
    again = await step.open(delivery=2)
    seconds = time.perf_counter() - begun
    assert again.writer.fold.upto > last
    ran = []
    await again.model(lambda: asyncio.sleep(0, ran.append(1)))
    assert ran == [1]
    records = await step.records()
    assert len(records) == 2002
    assert [record.value[:5] for record in records if isinstance(record, StepValue)] == [
        f"{number:05}" for number in range(1999)
    ]
    stored = (await connection.info(JOURNAL))["state"]["bytes"]
    with capsys.disabled():
        print(f"\nopen of {len(records):,} records, {1999 * 26_005 / 1e6:.0f} MB: {seconds:.2f} s ({stored:,} stored)")


def consumers(book):
    async def count():
        infos = [await book.connection.info(base) for base in (JOURNAL, TASKS, "AGENT_HISTORY", "AGENT_RUNS")]
        return [info["state"]["consumer_count"] for info in infos]

    return book.service.call(count)


@pytest.mark.timeout(180)
def test_runs_leave_no_consumers(book, capsys):
    agent = Agent("clerk", model=ScriptedModel(["done"]))
    book.start(agent, "go").wait(20)
    before = consumers(book)
    begun = time.perf_counter()
    for _ in range(4):
        runs = [book.start(agent, "go") for _ in range(250)]
        assert [run.wait(60) for run in runs] == ["done"] * 250
        assert consumers(book) == before
    with capsys.disabled():
        print(f"\n1,000 runs in {time.perf_counter() - begun:.1f} s, consumers {before} before and after")


@pytest.mark.anyio
async def test_f9_another_charge_of_a_second_attempt_at_the_same_position_has_another_key(connection):
    step, charged = Step(connection), []

    async def charge(call):
        charged.append((call.key, call.input["cents"]))
        return "charged"

    first = await step.open()
    await first.tool(ToolCall("charge", {"cents": 10}), "unsafe", charge)
    await first.commit("fail", retriable=True)
    second = await step.open(attempt=2, dispatch=2)
    await second.tool(ToolCall("charge", {"cents": 20}), "unsafe", charge)
    same = await second.tool(ToolCall("charge", {"cents": 10}), "unsafe", charge)
    assert same.how == "reused"
    assert [cents for _, cents in charged] == [10, 20]
    keys = [record.key for record in await step.records() if isinstance(record, ToolIntent)]
    assert len(set(keys)) == 2
    assert [key for key, _ in charged] == keys
    await step.audit()


@pytest.fixture
def exported(book, tmp_path):
    @tool(replay="safe")
    def fetch() -> dict[str, str]:
        return {"text": "x" * 600_000}

    agent = Agent("clerk", model=ScriptedModel([ToolCall("fetch"), "done"]), tools=[fetch])
    run = book.start(agent, "go", run_id="r", title="the title", labels={"team": "a"})
    assert run.wait(20) == "done"
    return run, run.export(tmp_path / "run.jsonl")


def test_an_exported_run_says_without_a_server_what_the_run_says(exported):
    run, path = exported
    kept = load(path)
    assert kept.journal() == run.journal()
    assert kept.info == run.info
    assert kept.output() == "done"
    assert str(kept.check()) == str(run.check())
    assert kept.timeline.to_json() == run.timeline.to_json()
    assert kept.graph().to_mermaid() == run.graph().to_mermaid()
    assert kept.frame().equals(run.frame())


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


DAMAGES = {
    "empty": (lambda lines: [], JournalError, "no header"),
    "not ours": (lambda lines: [b'{"a":1}\n'], JournalError, "no header"),
    "cut in a line": (lambda lines: [*lines[:-1], lines[-1][:20]], JournalError, "line {last}"),
    "a blob is gone": (lambda lines: [line for line in lines if b'"blob"' not in line[:10]], JournalError, "cut"),
    "a blob is another": (
        lambda lines: [line.replace(b'"data":"', b'"data":"AAAA') for line in lines],
        JournalError,
        "line 2: the large value",
    ),
    "another version": (
        lambda lines: [lines[0].replace(b'"agentbook":1', b'"agentbook":2'), *lines[1:]],
        FormatVersion,
        "version 2",
    ),
    "another line": (lambda lines: [*lines, b'{"x":1}\n'], JournalError, "neither"),
    "no object": (lambda lines: [*lines, b"[1]\n"], JournalError, "not a JSON object"),
    "another record version": (
        lambda lines: [line.replace(b'"record":{"v":1', b'"record":{"v":7') for line in lines],
        FormatVersion,
        "version 7",
    ),
    "a record without a field": (lambda lines: [line.replace(b'"n":0,', b"") for line in lines], JournalError, "no n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_named(exported, damage):
    _, path = exported
    spoil, error, said = DAMAGES[damage]
    lines = lines_of(path)
    path.write_bytes(b"".join(spoil(lines)))
    with pytest.raises(error, match=said.replace("{last}", str(len(lines)))):
        load(path)


def test_a_record_missing_from_a_file_is_found_by_check(exported):
    _, path = exported
    lines = lines_of(path)
    gone = next(number for number, line in enumerate(lines) if b'"tool.result"' in line)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    assert not load(path).check()


def test_x1_a_follower_misses_and_repeats_nothing_over_a_restart_of_the_server(own_server):
    proceed = threading.Event()
    began = threading.Event()

    @tool(replay="safe")
    def wait(number: int) -> int:
        if number == 5:
            began.set()
            assert proceed.wait(40)
        return number

    replies = [ToolCall("wait", {"number": number}) for number in range(10)]
    agent = Agent("clerk", model=ScriptedModel([*replies, "done"]), tools=[wait])
    with open_book(own_server.target.url, settings=own_server.settings) as book:
        run = book.start(agent, "go", run_id="r")
        seen, followed = [], threading.Event()

        async def follow():
            async with aclosing(run.journal(follow=True)) as records:
                async for record in records:
                    seen.append(record.seq)
            followed.set()

        follower = threading.Thread(target=lambda: asyncio.run(follow()))
        follower.start()
        assert began.wait(30)
        for _ in range(2):
            own_server.kill()
            own_server.start()
        proceed.set()
        assert run.wait(50) == "done"
        follower.join(30)
        assert followed.is_set()
        assert seen == [record.seq for record in run.journal()]
        assert run.check()
