"""The audit of a step's journal (JOURNAL.md, Check): every rule that a correct history keeps.

Pure. It shares no code with the writing side beyond the records themselves, so that one
mistake cannot hide another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentbook import codec
from agentbook.journal.records import (
    FENCING,
    Claim,
    Commit,
    InputPlaced,
    ModelResponse,
    Pause,
    Purged,
    Record,
    Resolution,
    ToolIntent,
    ToolResult,
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that one record breaks.

    Attributes:
        rule: the rule, in a few words.
        seq: the sequence of the record that breaks it.
        text: what is wrong.
        records: the records concerned, that one among them.
    """

    rule: str
    seq: int
    text: str
    records: tuple[Record, ...]

    def __str__(self) -> str:
        return f"record {self.seq}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of an audit; true when it is clean."""

    records: int
    violations: tuple[Violation, ...]

    def __bool__(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        if not self.violations:
            return f"clean: {self.records} records keep every rule"
        return "\n".join([f"{len(self.violations)} violations in {self.records} records", *map(str, self.violations)])

    __repr__ = __str__


def check(records: Sequence[Record], *, turns: int | None = None, settled: bool = True) -> CheckReport:
    """Audit the journal of one step.

    Args:
        records: all its records, in order.
        turns: how many iterations the engine has counted, if known.
        settled: False while the last event may not have been accepted yet, or if the run
            was ended from outside; the journal may then be one commit ahead.
    """
    found = [violation for rule in _RULES for violation in rule(records)]
    if turns is not None:
        found += _turns(records, turns, settled)
    return CheckReport(len(records), tuple(sorted(found, key=lambda violation: violation.seq)))


def _head(records: Sequence[Record]) -> Iterator[Violation]:
    rule = "head present"
    if not records:
        return
    first = records[0]
    if isinstance(first, Purged):
        return  # a purge leaves nothing but its tombstone
    if not isinstance(first, Claim) or first.head is not None:
        named = first.head if isinstance(first, Claim) else "unknown"
        yield Violation(rule, first.seq, f"the journal began at record {named}, which is gone", (first,))
        return
    for record in records[1:]:
        if isinstance(record, Claim | Commit | Pause) and record.head != first.seq:
            yield Violation(rule, record.seq, f"it names head {record.head}, the first is {first.seq}", (first, record))


def _order(records: Sequence[Record]) -> Iterator[Violation]:
    for before, after in pairwise(records):
        if after.seq <= before.seq:
            yield Violation("ascending sequences", after.seq, f"it follows record {before.seq}", (before, after))
        if after.iteration < before.iteration:
            text = f"iteration {after.iteration} after iteration {before.iteration}"
            yield Violation("iterations in order", after.seq, text, (before, after))


def _fence(records: Sequence[Record]) -> Iterator[Violation]:
    """No record after the claim that fenced its writer, none after its writer's own pause or commit."""
    fence: Record | None = None
    ended: Record | None = None
    for record in records:
        if record.kind in FENCING and (fence is None or record.claim != fence.claim):
            fence, ended = record, None
        elif fence is None or record.claim != fence.claim:
            by = f"claim {fence.claim[:8]} at record {fence.seq} had fenced it" if fence else "no claim comes before it"
            records_ = (fence, record) if fence else (record,)
            yield Violation("no record after the fence", record.seq, f"claim {record.claim[:8]}: {by}", records_)
        elif ended is not None:
            text = f"its writer ended with the {ended.kind} at record {ended.seq}"
            yield Violation(f"no record after its own {ended.kind}", record.seq, text, (ended, record))
        if isinstance(record, Pause | Commit):
            ended = record


def _numbers(records: Sequence[Record]) -> Iterator[Violation]:
    last: dict[str, Record] = {}
    for record in records:
        before = last.get(record.claim)
        expected = 0 if before is None else before.n + 1
        if record.n != expected:
            text = f"n is {record.n}, expected {expected} for claim {record.claim[:8]}"
            yield Violation("n contiguous per claim", record.seq, text, (before, record) if before else (record,))
        last[record.claim] = record


def _commits(records: Sequence[Record]) -> Iterator[Violation]:
    advancing: dict[int, Commit] = {}
    of_attempt: dict[tuple[int, int], Commit] = {}
    for record in records:
        ended = advancing.get(record.iteration)
        if ended is not None:
            text = f"iteration {record.iteration} had ended with the commit at record {ended.seq}"
            again = isinstance(record, Commit) and record.advancing
            rule = "one advancing commit per iteration" if again else "nothing of an iteration after its commit"
            yield Violation(rule, record.seq, text, (ended, record))
        if not isinstance(record, Commit):
            continue
        attempt = (record.iteration, record.attempt)
        if attempt in of_attempt:
            text = f"iteration {attempt[0]}, attempt {attempt[1]} had its commit at record {of_attempt[attempt].seq}"
            yield Violation("one commit per attempt", record.seq, text, (of_attempt[attempt], record))
        of_attempt[attempt] = record
        if record.advancing:
            advancing[record.iteration] = record


def _iterations(records: Sequence[Record]) -> Iterator[Violation]:
    """Each iteration follows an advancing commit of the one before, which its claims name."""
    last: Commit | None = None
    for record in records:
        if isinstance(record, Claim):
            named, there = record.prev, last.seq if last else None
            if named != there:
                text = f"its claim names {named} as the last commit, the journal has {there}"
                yield Violation("claims name the last commit", record.seq, text, (last, record) if last else (record,))
            expected = 0 if last is None else last.iteration + 1
            if record.iteration != expected:
                text = f"iteration {record.iteration}, expected {expected}"
                yield Violation("one iteration after the other", record.seq, text, (record,))
        if isinstance(record, Commit) and record.advancing:
            last = record


def _answers(records: Sequence[Record]) -> Iterator[Violation]:
    intents: dict[int, ToolIntent] = {}
    results: dict[int, ToolResult] = {}
    for record in records:
        if isinstance(record, ToolIntent):
            intents[record.seq] = record
        if not isinstance(record, ToolResult) or record.reused is not None:
            continue
        intent, before = intents.get(record.intent), results.setdefault(record.intent, record)
        if intent is None:
            text = f"it answers record {record.intent}, which is no intent"
            yield Violation("every result answers an intent", record.seq, text, (record,))
        elif before is not record:
            text = f"the intent at record {record.intent} had its result at record {before.seq}"
            yield Violation("one result per intent", record.seq, text, (before, record))
        elif (intent.iteration, intent.position) != (record.iteration, record.position):
            text = f"position {record.position} answers an intent at position {intent.position}"
            yield Violation("every result answers an intent", record.seq, text, (intent, record))


def _open_intents(records: Sequence[Record]) -> Iterator[Violation]:
    """An intent may be open under the newest claim, or named by a pause or resolution; nowhere else."""
    unanswered: dict[int, ToolIntent] = {}
    for record in records:
        match record:
            case ToolIntent():
                unanswered[record.seq] = record
            case ToolResult(reused=None):
                unanswered.pop(record.intent, None)
            case Resolution():
                unanswered.pop(record.of, None)
            case Pause():
                named = set(record.subjects)
                unanswered = {seq: intent for seq, intent in unanswered.items() if intent.key not in named}
            case Commit() | ModelResponse() if not _gave_up(record):
                # An advancing commit ends the iteration; a new attempt closes what earlier ones left open before
                # anything else runs (Open 6).
                ends = isinstance(record, Commit) and record.advancing
                for seq, intent in list(unanswered.items()):
                    if intent.iteration == record.iteration and (ends or intent.attempt < record.attempt):
                        del unanswered[seq]
                        text = f"{intent.name} has no result by record {record.seq}"
                        yield Violation("every intent answered", seq, text, (intent, record))
            case _:
                pass


def _gave_up(record: Commit | ModelResponse) -> bool:
    """The restart limit ends an attempt before it closes anything (Open 5)."""
    return isinstance(record, Commit) and record.reason == "restart_limit"


def _inputs(records: Sequence[Record]) -> Iterator[Violation]:
    placed: dict[str, InputPlaced] = {}
    for record in records:
        if isinstance(record, InputPlaced):
            before = placed.setdefault(record.request_id, record)
            if before is not record:
                text = f"input {record.request_id!r} was placed at record {before.seq}"
                yield Violation("each input placed once", record.seq, text, (before, record))


def _keys(records: Sequence[Record]) -> Iterator[Violation]:
    by_key: dict[str, ToolIntent] = {}
    intents: dict[int, ToolIntent] = {}
    places: dict[tuple[int, int, str], ToolIntent | ToolResult] = {}
    for record in records:
        if isinstance(record, ToolIntent):
            intents[record.seq] = record
            key = record.key
            before = by_key.setdefault(key, record)
            if before.name != record.name or not codec.equal(before.input, record.input):
                text = f"key {key} belongs to another call at record {before.seq}"
                yield Violation("one key, one call", record.seq, text, (before, record))
        elif isinstance(record, ToolResult) and record.reused is not None and record.intent in intents:
            key = intents[record.intent].key
        else:
            continue
        same = places.setdefault((record.iteration, record.attempt, key), record)
        if same.position != record.position:
            text = f"it shares key {key} with record {same.seq} at another position"
            yield Violation("one key, one position of an attempt", record.seq, text, (same, record))


def _reuse(records: Sequence[Record]) -> Iterator[Violation]:
    intents: dict[int, ToolIntent] = {}
    results: dict[int, ToolResult] = {}
    taken: dict[tuple[int, int, int], ToolResult] = {}
    for record in records:
        if isinstance(record, ToolIntent):
            intents[record.seq] = record
        if not isinstance(record, ToolResult):
            continue
        if record.reused is None:
            results[record.seq] = record
            continue
        original, intent = results.get(record.reused), intents.get(record.intent)
        if original is None or intent is None or original.intent != record.intent:
            text = f"it reuses record {record.reused}, which is no result of that call"
            yield Violation("reused points at a real result", record.seq, text, (record,))
        elif intent.iteration != record.iteration or intent.attempt >= record.attempt:
            text = f"it reuses a call of iteration {intent.iteration}, attempt {intent.attempt}"
            yield Violation("reused points at a real result", record.seq, text, (intent, record))
        before = taken.setdefault((record.iteration, record.attempt, record.reused), record)
        if before is not record:
            text = f"record {record.reused} was reused at record {before.seq} of the same attempt"
            yield Violation("each result reused once per attempt", record.seq, text, (before, record))


def _states(records: Sequence[Record]) -> Iterator[Violation]:
    """An appended state builds on the last commit's, within reach of a full one."""
    last: Commit | None = None
    full: int | None = None
    for record in records:
        if not isinstance(record, Commit) or record.action not in ("continue", "complete"):
            continue
        if record.snapshot is None:
            full = record.seq
        else:
            base = record.state.get("base") if isinstance(record.state, dict) else None
            if last is None or base != last.seq or record.snapshot != full:
                there = f"the last commit is {last and last.seq}, the last full state {full}"
                text = f"it builds on record {base} and the full state {record.snapshot}; {there}"
                yield Violation(
                    "state builds on the last commit", record.seq, text, (last, record) if last else (record,)
                )
        last = record


def _turns(records: Sequence[Record], turns: int, settled: bool) -> Iterator[Violation]:
    commits = [record for record in records if isinstance(record, Commit) and record.advancing]
    ahead = len(commits) - turns
    if ahead != 0 and not (ahead == 1 and not settled):
        seq = commits[-1].seq if commits else 0
        text = f"the journal has {len(commits)} advancing commits, the engine counted {turns}"
        yield Violation("commits agree with the engine", seq, text, tuple(commits[-1:]))


Rule = Callable[[Sequence[Record]], Iterable[Violation]]

_RULES: tuple[Rule, ...] = (
    _head, _order, _fence, _numbers, _commits, _iterations, _answers, _open_intents, _inputs, _keys, _reuse, _states,
)  # fmt: skip
