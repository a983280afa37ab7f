"""The rules of ENGINE.md's "Lifecycle events", held against `advance`."""

import random
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbook.engine.advance import Accepted, Again, Dropped, advance, dispatched, finish
from agentbook.journal.records import ErrorInfo, Wait
from agentbook.protocol.events import StepEvent
from agentbook.protocol.snapshot import TERMINAL, Final, RunSnapshot, StepSnapshot

AT = "2026-01-01T00:00:00.000Z"
ADVANCING = ("step.continue", "step.completed", "step.aborted")


def fresh(*steps):
    named = {name: StepSnapshot() for name in steps or ("agent",)}
    return RunSnapshot(run="r", what="agent", type="billing", created=AT, steps=named)


def event(kind, seq, iteration=0, attempt=1, step="agent", **more):
    return StepEvent(
        type=kind, run="r", step=step, iteration=iteration, attempt=attempt, journal_seq=seq, head=1, **more
    )


def accept(run, happened):
    outcome = advance(run, happened, at=AT)
    assert isinstance(outcome, Accepted), outcome
    return outcome.snapshot


def test_continue_begins_the_next_iteration_with_a_new_dispatch_and_the_first_attempt():
    run = accept(fresh(), event("step.continue", 5, attempt=3))
    step = run.steps["agent"]
    assert (run.status, step.status) == ("running", "running")
    assert (step.iteration, step.attempt, step.dispatch, step.turns) == (1, 1, 2, 1)
    assert (step.accepted_seq, step.head) == (5, 1)


def test_a_continue_that_waits_asks_for_no_holder():
    run = accept(fresh(), event("step.continue", 5, wait=Wait(modes=["follow_up"])))
    step = run.steps["agent"]
    assert (run.status, step.status, step.iteration, step.dispatch) == ("waiting", "waiting", 1, 1)
    assert step.wait == Wait(modes=["follow_up"])


def test_the_last_step_to_complete_completes_the_run():
    run = accept(fresh("a", "b"), event("step.completed", 5, step="a"))
    assert (run.status, run.final) == ("running", None)
    run = accept(run, event("step.completed", 9, step="b"))
    assert run.final == Final(status="completed", journal_seq=9, step="b", at=AT)
    assert {step.status for step in run.steps.values()} == {"completed"}


def test_a_failed_step_fails_the_run_and_stops_its_other_steps():
    error = ErrorInfo(type="ValueError", message="no such order")
    run = accept(fresh("a", "b"), event("step.failed", 7, step="a", error=error, reason="restart_limit"))
    assert run.final == Final(status="failed", journal_seq=7, step="a", error=error, reason="restart_limit", at=AT)
    assert (run.steps["a"].status, run.steps["b"].status) == ("failed", "cancelled")
    assert run.steps["a"].turns == 0


@pytest.mark.parametrize("reason", ["halt", "parked"])
def test_a_halt_names_its_cause_and_keeps_the_attempt(reason):
    run = accept(fresh(), event("step.paused", 7, reason=reason, cause="charge may have happened"))
    step = run.steps["agent"]
    assert (run.status, step.status, step.halt) == ("halted", "halted", "charge may have happened")
    assert (step.iteration, step.attempt, step.dispatch, step.turns) == (0, 1, 1, 0)


@pytest.mark.parametrize("reason", ["left", "sleep", "question", "requested"])
def test_other_pauses_wait(reason):
    run = accept(fresh(), event("step.paused", 7, reason=reason, wait=Wait(until=AT)))
    assert run.status == run.steps["agent"].status == "waiting"
    assert run.steps["agent"].wait == Wait(until=AT)


def test_f10_halt_resume_halt_again_is_processed_each_time():
    run = accept(fresh(), event("step.paused", 3, reason="halt"))
    run = dispatched(run, ["agent"])
    assert (run.status, run.steps["agent"].dispatch, run.steps["agent"].halt) == ("running", 2, None)
    run = accept(run, event("step.paused", 6, reason="halt"))
    assert run.status == "halted"
    run = accept(dispatched(run, ["agent"]), event("step.completed", 9))
    assert (run.status, run.steps["agent"].dispatch) == ("completed", 3)


@pytest.mark.parametrize("heard", [True, False])
def test_f10_a_resolution_dispatches_the_same_attempt_also_before_the_engine_heard_of_the_halt(heard):
    halt, resolution = event("step.paused", 3, reason="halt", cause="?"), event("step.resolved", 4)
    resolution = resolution.model_copy(update={"head": None})
    run = accept(accept(fresh(), halt), resolution) if heard else accept(fresh(), resolution)
    step = run.steps["agent"]
    assert (run.status, step.status, step.halt) == ("running", "running", None)
    assert (step.iteration, step.attempt, step.dispatch, step.turns) == (0, 1, 2, 0)
    assert step.head == (1 if heard else None)
    assert isinstance(advance(run, halt, at=AT), Dropped)
    assert isinstance(advance(run, resolution, at=AT), Again)


def test_an_event_that_was_accepted_before_is_ensured_again_even_on_the_run_it_ended():
    ending = event("step.completed", 5)
    assert advance(accept(fresh(), ending), ending, at=AT) == Again()


def test_f8_an_advancing_commit_of_an_earlier_attempt_wins_over_the_retry():
    run = dispatched(fresh(), ["agent"], new_attempt=True)
    assert run.steps["agent"].attempt == 2
    run = accept(run, event("step.continue", 5, attempt=1))
    assert (run.steps["agent"].iteration, run.steps["agent"].attempt) == (1, 1)
    assert advance(run, event("step.continue", 8, attempt=2), at=AT) == Dropped("other_iteration")


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (event("step.continue", 20, step="nobody"), "unknown_step"),
        (event("step.continue", 9, iteration=1), "superseded"),
        (event("step.continue", 20, iteration=0), "other_iteration"),
        (event("step.continue", 20, iteration=2), "other_iteration"),
        (event("step.failed", 20, iteration=1, attempt=1), "other_attempt"),
        (event("step.paused", 20, iteration=1, attempt=3), "other_attempt"),
    ],
)
def test_what_does_not_count_is_dropped_by_name(happened, reason):
    run = accept(fresh(), event("step.continue", 10))
    run = dispatched(run, ["agent"], new_attempt=True)
    assert advance(run, happened, at=AT) == Dropped(reason)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_nothing_leaves_a_terminal_status(status):
    run = finish(fresh(), Final(status=status, reason="asked", at=AT))
    for kind in (*ADVANCING, "step.failed", "step.paused"):
        assert advance(run, event(kind, 5), at=AT) == Dropped("run_ended")


def test_a_step_that_ended_stays_ended_while_the_run_goes_on():
    run = accept(fresh("a", "b"), event("step.completed", 5, step="a"))
    assert advance(run, event("step.continue", 8, step="a"), at=AT) == Dropped("step_ended")


# A model of the same rules, written from ENGINE.md alone: mutable, and keyed by facts, not by snapshots.


@dataclass
class Model:
    iteration: int = 0
    attempt: int = 1
    dispatches: int = 1
    accepted: list[int] = field(default_factory=list)
    commits: dict[int, int] = field(default_factory=dict)
    standing: str = "running"

    def take(self, happened):
        newest = self.accepted[-1] if self.accepted else 0
        if happened.journal_seq == newest:
            return "again"
        advancing = happened.type in ADVANCING
        counts = (
            self.standing in ("running", "waiting", "halted")
            and happened.journal_seq > newest
            and happened.iteration == self.iteration
            and (advancing or happened.attempt == self.attempt)
        )
        if not counts:
            return "dropped"
        self.accepted.append(happened.journal_seq)
        if advancing:
            assert happened.iteration not in self.commits, "two advancing commits of one iteration"
            self.commits[happened.iteration] = happened.journal_seq
        if happened.type == "step.continue":
            self.iteration, self.attempt = self.iteration + 1, 1
            self.standing = "waiting" if happened.wait else "running"
            self.dispatches += happened.wait is None
        elif happened.type == "step.paused":
            self.standing = "halted" if happened.reason in ("halt", "parked") else "waiting"
        elif happened.type == "step.resolved":
            self.standing = "running"
            self.dispatches += 1
        else:
            self.standing = happened.type.removeprefix("step.")
        return "accepted"

    def resume(self, new_attempt):
        self.standing = "running"
        self.dispatches += 1
        self.attempt += new_attempt

    def state(self):
        return (
            self.standing, self.iteration, self.attempt, self.dispatches, len(self.commits),
            self.accepted[-1] if self.accepted else None,
        )  # fmt: skip


def state_of(run):
    step = run.steps["agent"]
    assert run.status == step.status
    return (step.status, step.iteration, step.attempt, step.dispatch, step.turns, step.accepted_seq)


KIND_OF = {Accepted: "accepted", Again: "again", Dropped: "dropped"}


def play(moves):
    """Drive both through the same moves; the rules hold at each of them."""
    run, model = fresh(), Model()
    for move in moves:
        before = run
        if isinstance(move, StepEvent):
            outcome = advance(run, move, at=AT)
            assert KIND_OF[type(outcome)] == model.take(move), (move, before)
            run = outcome.snapshot if isinstance(outcome, Accepted) else run
        elif not run.ended:
            run = dispatched(run, ["agent"], new_attempt=move)
            model.resume(move)
        assert state_of(run) == model.state(), move
        assert run.ended == (run.final is not None)
        if before.ended:
            assert run is before, "a terminal status was left"
    return run, model


events = st.builds(
    event,
    st.sampled_from(
        ["step.continue"] * 5
        + ["step.paused"] * 3
        + ["step.resolved"] * 2
        + ["step.completed", "step.aborted", "step.failed"]
    ),
    st.integers(1, 12),
    iteration=st.integers(0, 3),
    attempt=st.integers(1, 3),
    reason=st.sampled_from([None, "halt", "parked", "left", "sleep"]),
    wait=st.sampled_from([None, None, Wait(until=AT)]),
)


@given(st.lists(events | st.booleans(), max_size=30))
@settings(max_examples=500, deadline=None)
def test_any_sequence_of_events_and_resumes_matches_the_model(moves):
    play(moves)


def a_journal(rng, length):
    """The events of one step's journal in their order, of holders that lose races and die."""
    seq, iteration, attempt, journal = 0, 0, 1, []
    while len(journal) < length:
        seq += rng.randint(1, 5)
        kinds = ["step.continue", "step.paused", "step.failed", "step.completed"]
        kind = rng.choices(kinds, [80, 10, 2, 1])[0]
        reason = rng.choice(["halt", "left"])
        journal.append(event(kind, seq, iteration=iteration, attempt=attempt, reason=reason))
        if kind == "step.continue":
            iteration, attempt = iteration + 1, 1
        elif kind != "step.paused":
            break
    return journal


@given(st.randoms(use_true_random=False), st.integers(1, 60))
@settings(max_examples=200, deadline=None)
def test_duplicates_and_late_events_lose_no_step(rng, length):
    """Each event arrives once in order at the least; any earlier one may arrive again at any time."""
    journal = a_journal(rng, length)
    deliveries = []
    for position, happened in enumerate(journal):
        deliveries.append(happened)
        deliveries.extend(rng.choices(journal[: position + 1], k=rng.randint(0, 3)))
    run, model = play(deliveries)
    assert model.accepted == [happened.journal_seq for happened in journal]
    in_order, _ = play(journal)
    assert run == in_order


@given(st.randoms(use_true_random=False), st.integers(2, 40))
@settings(max_examples=200, deadline=None)
def test_events_in_any_order_do_not_spoil_those_that_come_in_order(rng, length):
    """Refused is not lost: an event ahead of its step's iteration still counts once its predecessor did."""
    journal = [happened for happened in a_journal(rng, length) if happened.type != "step.paused"]
    shuffled = journal[:]
    rng.shuffle(shuffled)
    run, _ = play(shuffled + [happened for again in range(len(journal)) for happened in journal])
    assert run == play(journal)[0]


def test_a_hundred_thousand_transitions_take_seconds():
    rng = random.Random(7)
    turns = [event("step.continue", seq=2 * n + 2, iteration=n) for n in range(50_000)]
    run = fresh()
    started = time.perf_counter()
    for n, happened in enumerate(turns):
        run = accept(run, happened)
        late = turns[rng.randint(0, n)]
        assert not isinstance(advance(run, late, at=AT), Accepted)
    assert run.steps["agent"].turns == 50_000
    assert time.perf_counter() - started < 10
