"""JOURNAL.md, Open: read, decide, claim."""

import asyncio
import threading
from dataclasses import replace

import pytest
from live.journal_steps import LIMITS, Step, outcome

from agentbook import seams
from agentbook.broker.connection import connect
from agentbook.errors import Committed, Fenced, JournalTruncated, RestartLimit, RunEnded, Stale
from agentbook.journal.calls import ToolCall
from agentbook.journal.records import Claim, Commit, Purged, StepValue, ToolIntent, ToolResult

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.fixture
async def step(connection):
    step = Step(connection)
    yield step
    await step.audit()


async def answer():
    return "r"


async def do(call):
    return "done"


async def test_the_first_claim_is_the_head_and_names_what_it_was_given(step):
    journal = await step.open(dispatch=3, delivery=2, worker="kernel 7", code="abc")
    (claim,) = await step.records()
    assert claim.model_dump(include={"worker", "dispatch", "delivery", "code", "prev", "head", "n"}) == {
        "worker": "kernel 7", "dispatch": 3, "delivery": 2, "code": "abc", "prev": None, "head": None, "n": 0,
    }  # fmt: skip
    assert claim.claim == journal.writer.claim
    assert int(claim.claim, 16) < 2**128
    assert len(claim.claim) == 32


async def test_a_later_claim_names_the_head_and_the_last_advancing_commit(step):
    first = await step.open()
    head = (await step.records())[0].seq
    committed = await first.commit("continue", state=[1])
    failed = await step.open(iteration=1, dispatch=2)
    await failed.commit("fail", retriable=True)
    retried = await step.open(iteration=1, attempt=2, dispatch=3)
    claims = [record for record in await step.records() if isinstance(record, Claim)]
    assert [(claim.head, claim.prev) for claim in claims] == [
        (None, None),
        (head, committed.seq),
        (head, committed.seq),
    ]
    assert len({claim.claim for claim in claims}) == 3
    assert retried.state == [1]


@pytest.mark.parametrize(
    ("late", "newest"),
    [
        ({"iteration": 0, "dispatch": 1}, {"iteration": 1, "dispatch": 2}),
        ({"attempt": 1, "dispatch": 1}, {"attempt": 2, "dispatch": 2}),
        ({"dispatch": 1}, {"dispatch": 2}),
    ],
    ids=["iteration", "attempt", "dispatch"],
)
async def test_a_late_delivery_is_stale_and_writes_nothing(step, late, newest):
    if newest.get("iteration"):
        await (await step.open()).commit("continue", state=None)
    await step.open(**newest)
    before = await step.records()
    with pytest.raises(Stale, match=step.run):
        await step.open(**late)
    assert await step.records() == before


async def test_a_delivery_that_expired_leaves_the_one_that_came_after_it_alone(step):
    """It was in the hands of a process that stood still, past its ack wait."""
    successor = await step.open(delivery=2)
    with pytest.raises(Fenced, match="kernel 1"):
        await step.open(delivery=1)
    assert await step.kinds() == ["claim"]
    await successor.model(answer)


async def test_the_same_delivery_again_claims_again(step):
    first = await step.open(delivery=1)
    second = await step.open(delivery=2)
    assert first.writer.claim != second.writer.claim
    assert isinstance(await outcome(first.model(answer)), Fenced)


@pytest.mark.parametrize("action", ["continue", "complete"])
@pytest.mark.parametrize("attempt", [1, 2])
async def test_f8_an_advancing_commit_of_any_attempt_ends_the_iteration(step, action, attempt):
    committed = await (await step.open()).commit(action, state=None)
    before = await step.records()
    with pytest.raises(Committed) as settled:
        await step.open(attempt=attempt, dispatch=attempt)
    assert settled.value.seq == committed.seq
    assert await step.records() == before


async def test_a_failed_attempt_is_committed_and_the_next_attempt_goes_on(step):
    failed = await (await step.open()).commit("fail", retriable=True)
    with pytest.raises(Committed) as settled:
        await step.open(delivery=2)
    assert settled.value.seq == failed.seq
    await step.open(attempt=2, dispatch=2)
    assert await step.kinds() == ["claim", "commit", "claim"]


async def test_a_pause_settles_its_own_dispatch_and_the_next_dispatch_goes_on(step):
    paused = await (await step.open()).pause("requested")
    with pytest.raises(Committed) as settled:
        await step.open(delivery=2)
    assert settled.value.seq == paused.seq
    journal = await step.open(dispatch=2)
    assert await step.kinds() == ["claim", "pause", "claim"]
    # A death of that holder is no reason to wait again.
    await step.open(dispatch=2, delivery=2)
    assert isinstance(await outcome(journal.model(answer)), Fenced)


async def test_a_purged_journal_is_ended(step):
    writer = (await step.open()).writer
    purging = step.writer("f" * 32)
    purging.fold.upto = writer.tail
    await purging.append(Purged())
    with pytest.raises(RunEnded, match=step.run):
        await step.open(dispatch=2)
    assert await step.kinds() == ["claim", "purged"]


async def claims(step, number, limits=LIMITS, **more):
    """Outcomes of so many deliveries whose holders die at once; the last one's."""
    result = None
    before = (await step.kinds()).count("claim")
    for delivery in range(before + 1, before + number + 1):
        result = await outcome(step.open(limits=limits, delivery=delivery, **more))
    return result


async def test_five_claims_in_a_row_fail_the_step_by_default(step):
    assert not isinstance(await claims(step, 4), RestartLimit)
    limit = await claims(step, 1)
    assert isinstance(limit, RestartLimit)
    last = (await step.records())[-1]
    assert (limit.limit, limit.seq) == (5, last.seq)
    assert (last.kind, last.action, last.reason, last.retriable) == ("commit", "fail", "restart_limit", True)
    assert last.claim == (await step.records())[-2].claim
    assert await step.kinds() == ["claim"] * 5 + ["commit"]
    # The failure is that attempt's commit; the next attempt has claims of its own.
    again = await claims(step, 1)
    assert isinstance(again, Committed)
    assert again.seq == last.seq
    assert not isinstance(await claims(step, 4, attempt=2, dispatch=2), RestartLimit)


@pytest.mark.parametrize("limit", [1, 2])
async def test_the_lowest_restart_limits_let_a_step_start_and_no_holder_die_twice(step, limit):
    limits = replace(LIMITS, restart_limit=limit)
    assert not isinstance(await claims(step, 1, limits), RestartLimit)
    assert isinstance(await claims(step, 1, limits), RestartLimit)


@pytest.mark.parametrize("between", ["model", "pause", "commit"])
async def test_any_other_record_breaks_the_row_of_claims(step, between):
    place = {}
    await claims(step, 3)
    journal = await step.open(delivery=4)
    if between == "model":
        await journal.model(answer)
    elif between == "pause":
        await journal.pause("requested")
        place = {"dispatch": 2}
    else:
        await journal.commit("continue", state=None)
        place = {"iteration": 1, "dispatch": 2}
    assert not isinstance(await claims(step, 4, **place), RestartLimit)
    assert isinstance(await claims(step, 1, **place), RestartLimit)


async def test_claims_of_several_attempts_are_one_row(step):
    await claims(step, 4)
    assert isinstance(await claims(step, 1, attempt=2, dispatch=2), RestartLimit)


@pytest.mark.parametrize("limits", [LIMITS])
async def test_an_empty_subject_whose_head_is_known_is_truncated(step, limits):
    with pytest.raises(JournalTruncated, match="head missing"):
        await step.open(limits=limits, head=7)
    assert await step.records() == []


@pytest.mark.parametrize("known", [True, False], ids=["head in the dispatch", "head in the claims"])
@pytest.mark.parametrize("lost", [1, 2, 4])
async def test_j6_a_journal_whose_first_records_are_gone_is_truncated_and_never_a_fresh_start(connection, known, lost):
    step = Step(connection)
    first = await step.open()
    await first.commit("continue", state=[1])
    journal = await step.open(iteration=1, dispatch=2)
    await journal.model(answer)
    await journal.model(answer)
    records = await step.audit()
    await connection.purge("AGENT_JOURNAL", step.subject, keep=len(records) - lost)
    left = await step.records()
    with pytest.raises(JournalTruncated, match="head missing") as truncated:
        await step.open(iteration=1, dispatch=3, head=records[0].seq if known else None)
    assert step.run in str(truncated.value)
    assert await step.records() == left


async def test_a_claim_that_lost_its_tail_reads_on_and_decides_again(step, server, settings):
    """Another holder commits between the read and the claim: the commit wins, nothing is written after it."""
    tail = await (await step.open()).model(answer) and await step.tail()
    holder = (await step.records())[0]
    commit = Commit(action="complete", state=None, snapshot=None, output=1, head=holder.seq).stamped(
        run=step.run, step="agent", iteration=0, attempt=1, claim=holder.claim, n=2, at=holder.at
    )

    async def committed_elsewhere():
        connection = await connect(server.target, settings)
        await connection.publish(step.subject, commit.encode(), expect=tail)
        await connection.close()

    reached = []

    def hook(seam):
        if seam.name == "before_claim":
            reached.append(seam)
            other = threading.Thread(target=asyncio.run, args=[committed_elsewhere()])
            other.start()
            other.join()

    seams.set_hook(hook)
    try:
        with pytest.raises(Committed) as settled:
            await step.open(delivery=2)
    finally:
        seams.set_hook(None)
    assert len(reached) == 1
    assert settled.value.seq == await step.tail()
    assert await step.kinds() == ["claim", "model", "commit"]


async def test_f1_sixty_holders_at_once_end_with_one_owner_and_a_row_of_claims(step):
    limits = replace(LIMITS, restart_limit=1000)
    journals = await asyncio.gather(*(step.open(limits=limits, worker=f"w{n}") for n in range(60)))
    assert await step.kinds() == ["claim"] * 60
    results = await asyncio.gather(*(outcome(journal.model(answer)) for journal in journals))
    assert sum(result == "r" for result in results) == 1
    assert sum(isinstance(result, Fenced) for result in results) == 59


async def test_open_creates_no_consumer(step):
    before = (await step.connection.info("AGENT_JOURNAL"))["state"]["consumer_count"]
    for delivery in range(3):
        await (await step.open(delivery=delivery)).model(answer)
    assert (await step.connection.info("AGENT_JOURNAL"))["state"]["consumer_count"] == before


async def test_j5_a_journal_of_2000_records_is_read_whole_before_the_first_live_call(step):
    journal = await step.open()
    for number in range(2000):
        await journal.writer.append(StepValue(name="x", value="y" * 2000 + str(number)))
    await journal.commit("continue", state=[1])
    after = await step.open(iteration=1, dispatch=2)
    assert after.state == [1]
    assert after.writer.fold.upto == (await step.records())[-1].seq
    assert len(await step.records()) == 2003


async def interrupted_attempt(step, *names):
    """A first attempt whose holder dies in its last tool, which had emitted; the others ended."""
    journal = await step.open()
    starts = []

    async def run(call):
        starts.append(call.key)
        if call.name == names[-1]:
            await call.emit("half")
            raise asyncio.CancelledError
        return "done"

    for name in names:
        declared = "safe" if name.startswith("search") else "unsafe"
        await outcome(journal.tool(ToolCall(name, {"n": 1}), declared, run))
    return starts


@pytest.mark.parametrize(("name", "cause"), [("charge", None), ("search", "attempt ended")])
async def test_a_new_attempt_closes_what_earlier_ones_left_open(step, name, cause):
    await interrupted_attempt(step, "notify", name)
    intent = [record for record in await step.records() if isinstance(record, ToolIntent)][-1]
    await step.open(attempt=2, dispatch=2)
    records = await step.records()
    closing = records[-1]
    assert isinstance(closing, ToolResult)
    assert (closing.intent, closing.interrupted.partial, closing.attempt) == (intent.seq, ["half"], 2)
    if cause is not None:
        assert closing.interrupted.cause == cause
    assert records[-2].kind == "claim"
    # Once: another claim of that attempt finds nothing open.
    await step.open(attempt=2, dispatch=2, delivery=2)
    assert [record.kind for record in await step.records()][-3:] == ["claim", "tool.result", "claim"]


async def test_another_delivery_of_the_same_attempt_closes_nothing(step):
    await interrupted_attempt(step, "charge")
    await step.open(delivery=2)
    assert await step.kinds() == ["claim", "tool.intent", "tool.partial", "claim"]


async def test_a_new_attempt_honours_each_unsafe_call_once(step):
    starts = await interrupted_attempt(step, "refund", "charge")
    journal = await step.open(attempt=2, dispatch=2)
    again = []

    async def run(call):
        again.append(call.key)
        return "again"

    charged = await journal.tool(ToolCall("charge", {"n": 1.0}), "unsafe", run)
    refunded = await journal.tool(ToolCall("refund", {"n": 1}), "unsafe", run)
    assert again == []
    assert (charged.how, charged.interrupted.partial) == ("reused", ["half"])
    assert (refunded.how, refunded.value()) == ("reused", "done")
    reused = [record for record in await step.records() if isinstance(record, ToolResult) and record.reused]
    assert [(record.position, record.attempt) for record in reused] == [(0, 2), (1, 2)]
    # A third attempt honours the same originals, and they are still all that ever started.
    third = await step.open(attempt=3, dispatch=3)
    assert (await third.tool(ToolCall("refund", {"n": 1}), "unsafe", run)).value() == "done"
    assert again == []
    assert len(set(starts)) == 2
    await third.commit("complete", state=None)
