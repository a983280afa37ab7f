"""A step's journal without a server, and a model of the replay rules.

`Paper` is a stream of one subject. `Ledger` says what JOURNAL.md's tables say about a call; it shares
nothing with `replay` and `fold` but the records. `Desk` lets holders write on the paper, asks both
about every call, and counts the effects outside of either.
"""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from agentbook.errors import ReplayMismatch
from agentbook.journal import replay
from agentbook.journal.fold import Fold
from agentbook.journal.records import (
    Claim,
    Commit,
    ErrorInfo,
    Interruption,
    ModelResponse,
    Pause,
    ToolIntent,
    ToolPartial,
    ToolResult,
    decode,
)

AT = "2026-01-01T00:00:00.000+00:00"
RUN, STEP = "order-42", "agent"


class Paper:
    """Records in the order of their sequences, between which others have room as in a shared stream.

    Attributes:
        folded: the fold of all of them.
    """

    def __init__(self, gaps=(2, 5, 3)):
        self.records, self.folded = [], Fold()
        self._gaps = gaps
        self._numbers = Counter()
        self._seq = 0

    def write(self, record, claim, iteration=0, attempt=1):
        """Store a record as its claim's next one; as every reader sees it."""
        self._seq += self._gaps[len(self.records) % len(self._gaps)]
        n = self._numbers[claim]
        self._numbers[claim] += 1
        data = record.stamped(
            run=RUN, step=STEP, iteration=iteration, attempt=attempt, claim=claim, n=n, at=AT
        ).encode()
        self.records.append(decode(data, self._seq))
        self.folded.add(self.records[-1], len(data))
        return self.records[-1]

    @property
    def head(self):
        return self.records[0].seq if self.records else None


def same(a, b):
    """JOURNAL.md, "Canonical equality"."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@dataclass(frozen=True)
class Ask:
    """What a handler asks for at its next position; no name: a model call."""

    name: str | None = None
    input: object = None


@dataclass
class Row:
    ask: Ask
    replay: str | None = None
    key: str | None = None
    intent: int | None = None
    partial: list = field(default_factory=list)
    result: int | None = None
    original: tuple | None = None


@dataclass
class Ledger:
    """What is known of one iteration, by (attempt, position); its answers are JOURNAL.md's."""

    rows: dict = field(default_factory=dict)

    def expect(self, attempt, position, ask, declared):
        row = self.rows.get((attempt, position))
        if row is None:
            return self._fresh(attempt, position, ask)
        if row.ask.name != ask.name or not same(row.ask.input, ask.input):
            return ("mismatch",)
        if row.result is not None:
            return ("recorded", row.result)
        if (row.replay, declared) == ("safe", "safe"):
            return ("again", row.key, row.intent)
        return ("interrupted", row.intent, row.partial)

    def _fresh(self, attempt, position, ask):
        if ask.name is None:
            return ("live", None)
        honoured = {row.original for (number, _), row in self.rows.items() if number == attempt}
        for place, row in self._equal_before(attempt, ask):
            if row.replay == "unsafe" and place not in honoured:
                return ("reuse", place, row.result)
        if attempt == 1:
            return ("live", position)
        taken = self._keys_of(attempt)
        for number in sorted(_number(row.key) for _, row in self._equal_before(attempt, ask)):
            if number not in taken:
                return ("live", number)
        return ("new", {_number(row.key) for row in self.rows.values() if row.key})

    def _equal_before(self, attempt, ask):
        """Original intents of earlier attempts that are this very call, in order."""
        for place in sorted(self.rows):
            row = self.rows[place]
            equal = row.ask.name == ask.name and same(row.ask.input, ask.input)
            if place[0] < attempt and row.intent is not None and equal:
                yield place, row

    def _keys_of(self, attempt):
        """Each key once per attempt: an honoured call has the key of the call it is."""
        rows = [row for (number, _), row in self.rows.items() if number == attempt]
        keys = [row.key if row.original is None else self.rows[row.original].key for row in rows]
        return {_number(key) for key in keys if key}

    def open_before(self, attempt):
        return [
            place
            for place in sorted(self.rows)
            if place[0] < attempt and self.rows[place].intent is not None and self.rows[place].result is None
        ]


def _number(key):
    return int(key.rpartition(".")[2])


class Died(Exception):
    """The holder was killed here."""


@dataclass
class Desk:
    """Holders of one step, one after the other, each until it ends or dies.

    A move is an append or an effect; a holder dies after `moves_left` of them.
    """

    paper: Paper = field(default_factory=Paper)
    ledger: Ledger = field(default_factory=Ledger)
    iteration: int = 0
    dispatch: int = 1
    claims: int = 0
    unsafe_starts: Counter = field(default_factory=Counter)
    starts: Counter = field(default_factory=Counter)
    requests: Counter = field(default_factory=Counter)
    moves_left: int = 0
    attempt: int = 1
    claim: str = ""
    last_commit: int | None = None
    outcomes: dict = field(default_factory=dict)

    def deliver(self, attempt, asks, declared, dies_after, end):
        """One delivery. True if it came to its end, a function of this desk."""
        self.attempt, self.moves_left = attempt, dies_after
        self.claims += 1
        self.claim = f"{self.claims:032x}"
        try:
            self._append(
                Claim(
                    worker=f"w{self.claims}", dispatch=self.dispatch, delivery=1, code="c",
                    prev=self.last_commit, head=self.paper.head,
                )
            )  # fmt: skip
            self._close_earlier()
            for position, ask in enumerate(asks):
                self.call(position, ask, declared)
            end(self)
        except Died:
            return False
        return True

    def call(self, position, ask, declared):
        expected = self.ledger.expect(self.attempt, position, ask, declared.get(ask.name))
        if expected == ("mismatch",):
            before = len(self.paper.records)
            with pytest.raises(ReplayMismatch) as mismatch:
                self._ask(position, ask, declared)
            assert mismatch.value.position == position
            assert len(self.paper.records) == before
            raise mismatch.value
        answer = self._ask(position, ask, declared)
        self._compare(expected, answer)
        if ask.name is None:
            self._model(position, ask, answer)
        else:
            self._tool(position, ask, answer, declared.get(ask.name))

    def _ask(self, position, ask, declared):
        past = self.paper.folded
        if ask.name is None:
            return replay.model_call(past, self.attempt, position)
        return replay.tool_call(past, self.attempt, position, ask.name, ask.input, declared.get(ask.name))

    def commit(self, action, **fields):
        record = self._append(Commit(action=action, head=self.paper.head, **fields))
        if record.advancing:
            self.last_commit = record.seq
            self.iteration, self.ledger = self.iteration + 1, Ledger()
        self.dispatch += 1

    def fail(self):
        self.commit("fail", error=ErrorInfo(type="ValueError", message="no"), retriable=True)

    def pause(self):
        self._append(Pause(reason="requested", head=self.paper.head))
        self.dispatch += 1

    def _append(self, record):
        self._move()
        return self.paper.write(record, self.claim, self.iteration, self.attempt)

    def _move(self):
        if self.moves_left <= 0:
            raise Died
        self.moves_left -= 1

    def _close_earlier(self):
        found = replay.open_before(self.paper.folded, self.attempt)
        places = self.ledger.open_before(self.attempt)
        assert [call.intent.seq for call in found] == [self.ledger.rows[place].intent for place in places]
        for place in places:
            row = self.ledger.rows[place]
            closing = Interruption(partial=row.partial, cause="attempt ended")
            self._end(row, ToolResult(position=place[1], intent=row.intent, interrupted=closing))

    def _compare(self, expected, answer):
        match expected, answer:
            case ("live", None), replay.Live():
                pass
            case ("live", number), replay.Live(key):
                assert key == f"{RUN}.{STEP}.{self.iteration}.{number}", expected
            case ("new", used), replay.Live(key):
                assert key.startswith(f"{RUN}.{STEP}.{self.iteration}.")
                assert _number(key) > max(used, default=-1), (key, used)
            case ("recorded", seq), replay.Recorded(record):
                assert record.seq == seq
            case ("again", key, intent), replay.RunAgain():
                assert (answer.key, answer.intent) == (key, intent)
            case ("interrupted", intent, partial), replay.Interrupted():
                assert (answer.intent, list(answer.partial)) == (intent, partial)
            case ("reuse", _, seq), replay.Reuse(result):
                assert result.seq == seq
            case _:
                raise AssertionError(f"JOURNAL.md says {expected}, replay says {answer}")

    def _model(self, position, ask, answer):
        if isinstance(answer, replay.Recorded):
            self._seen(position, answer.record.response)
            return
        self.requests[self.iteration, self.attempt, position] += 1
        self._move()
        response = f"answer {sum(self.requests.values())}"
        record = self._append(ModelResponse(position=position, model="m", request="d", response=response, ms=1.0))
        self.ledger.rows[self.attempt, position] = Row(ask, result=record.seq)
        self._seen(position, response)

    def _tool(self, position, ask, answer, declared):
        rows = self.ledger.rows
        match answer:
            case replay.Recorded(record):
                self._seen(position, record)
            case replay.Reuse(result):
                place = next(place for place, row in rows.items() if row.intent == result.intent)
                row = rows[self.attempt, position] = Row(ask, original=place)
                try:
                    self._end(row, ToolResult(position=position, intent=result.intent, reused=result.seq))
                except Died:
                    del rows[self.attempt, position]
                    raise
            case replay.Interrupted(intent, partial):
                ending = Interruption(partial=list(partial), cause="its holder died")
                row = rows[self.attempt, position]
                self._end(row, ToolResult(position=position, intent=intent, interrupted=ending))
            case replay.RunAgain(key, intent):
                self._run(position, rows[self.attempt, position])
            case replay.Live(key):
                stated = declared or "unsafe"
                record = self._append(
                    ToolIntent(position=position, name=ask.name, input=ask.input, replay=stated, key=key)
                )
                row = rows[self.attempt, position] = Row(ask, stated, key, record.seq)
                self._run(position, row)

    def _run(self, position, row):
        """The tool: its effect lies between two moves, so that a death can follow it at once."""
        self._move()
        self.starts[row.key] += 1
        self.unsafe_starts[row.key] += row.replay == "unsafe"
        self._move()
        row.partial.append(self._append(ToolPartial(intent=row.intent, output=len(row.partial))).output)
        self._end(row, ToolResult(position=position, intent=row.intent, output=sum(self.starts.values())))

    def _end(self, row, result):
        row.result = self._append(result).seq

    def _seen(self, position, value):
        """A value seen twice at one place of an attempt is the same value."""
        place = (self.iteration, self.attempt, position)
        assert self.outcomes.setdefault(place, value) == value
