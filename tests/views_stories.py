"""Journals made by hand for the tests of `agentbook.views`: what a worker would have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from agentbook.journal.records import (
    Action,
    Claim,
    Commit,
    Envelope,
    ErrorInfo,
    InputPlaced,
    Interruption,
    ModelResponse,
    Pause,
    Record,
    Replay,
    ToolIntent,
    ToolResult,
    Wait,
)
from agentbook.views import messages
from agentbook.views.facts import Live, RunFacts
from agentbook.views.timeline import build

FRONT_END = Path(__file__).parents[1] / "widgets" / "tests"

E = TypeVar("E", bound=Envelope)


class Story:
    """Writes one journal: each call appends a record under the newest claim and returns it."""

    def __init__(self, run: str = "order-42", first: int = 1) -> None:
        self.records: list[Record] = []
        self.run, self.next = run, first
        self.iteration, self.attempt = 0, 1
        self.holder, self.n, self.dispatch = "", 0, 0

    def add(self, record: E, claim: str | None = None) -> E:
        stamped = record.stamped(
            run=self.run, step="agent", iteration=self.iteration, attempt=self.attempt,
            claim=claim or self.holder, n=self.n, at="2026-01-01T00:00:00Z", seq=self.next,
        )  # fmt: skip
        self.records.append(stamped)  # type: ignore[arg-type]
        self.next += 1
        self.n += 1
        return stamped

    def claim(self, worker: str, claim: str) -> Claim:
        self.holder, self.n, self.dispatch = claim.ljust(32, "0"), 0, self.dispatch + 1
        head = self.records[0].seq if self.records else None
        return self.add(Claim(worker=worker, dispatch=self.dispatch, delivery=1, code="c0de", prev=None, head=head))

    def model(self, position: int, ms: float = 812, response: JsonValue = None) -> ModelResponse:
        return self.add(ModelResponse(position=position, model="m", request="d", response=response, ms=ms))

    def intent(self, position: int, name: str, replay: Replay = "safe", value: JsonValue = None) -> ToolIntent:
        key = f"{self.run}.agent.{self.iteration}.{position}"
        return self.add(ToolIntent(position=position, name=name, input=value, replay=replay, key=key))

    def result(self, intent: ToolIntent, output: JsonValue = "ok", ms: float = 41) -> ToolResult:
        return self.add(ToolResult(position=intent.position, intent=intent.seq, output=output, ms=ms))

    def error(self, intent: ToolIntent, type: str, message: str) -> ToolResult:  # noqa: A002 - the field's name
        error = ErrorInfo(type=type, message=message)
        return self.add(ToolResult(position=intent.position, intent=intent.seq, error=error, ms=5))

    def interrupted(
        self, intent: ToolIntent, cause: str = "holder lost", partial: list[JsonValue] | None = None
    ) -> ToolResult:
        cut = Interruption(partial=partial or [], cause=cause)
        return self.add(ToolResult(position=intent.position, intent=intent.seq, interrupted=cut))

    def reused(self, position: int, earlier: ToolResult) -> ToolResult:
        return self.add(ToolResult(position=position, intent=earlier.intent, reused=earlier.seq))

    def tool(self, position: int, name: str, replay: Replay = "safe", ms: float = 41) -> ToolResult:
        return self.result(self.intent(position, name, replay), ms=ms)

    def placed(self, position: int, mode: str, content: JsonValue) -> InputPlaced:
        return self.add(InputPlaced(request_id=f"r{self.next}", mode=mode, content=content, position=position))

    def pause(self, reason: str, **fields: object) -> Pause:
        return self.add(Pause.model_validate({"reason": reason, "head": 1, **fields}))

    def commit(self, action: Action = "continue", **fields: object) -> Commit:
        return self.add(Commit.model_validate({"action": action, "inputs": [], "head": 1, **fields}))

    def turn(self, iteration: int, attempt: int = 1) -> Story:
        self.iteration, self.attempt = iteration, attempt
        return self


def quiet_turn(story: Story, iteration: int, worker: str = "kernel 4121", action: Action = "continue") -> None:
    """A turn without incident: claim, model, search, commit."""
    story.turn(iteration).claim(worker, f"{0x7F3A + iteration:04x}")
    story.model(0)
    story.tool(1, "search_orders")
    story.commit(action)


def before_the_kill() -> Story:
    """Turn 0 is committed; in turn 1 the holder is inside its unsafe tool."""
    story = Story()
    quiet_turn(story, 0)
    story.turn(1).claim("kernel 4121", "91c2")
    story.model(0, ms=1200)
    story.tool(1, "get_invoice", ms=38)
    story.intent(2, "refund", "unsafe", {"order": 42, "cents": 5900})
    return story


def killed_in_the_unsafe_tool() -> Story:
    """The successor has replayed, was told that the refund may have happened, and now asks the model."""
    story = before_the_kill()
    refund = story.records[-1]
    assert isinstance(refund, ToolIntent)
    story.claim("kernel 4188", "b20c")
    story.interrupted(refund)
    return story


def killed_after_the_result() -> Story:
    """The holder died between a result and its next call; the successor finished the turn."""
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    story.tool(1, "charge", "unsafe")
    story.claim("kernel 2", "bbbb")
    story.model(2, ms=90)
    story.commit("complete", output="done")
    return story


def three_holders() -> Story:
    """The first died in a safe tool, the second before any call, the third ran it again and finished."""
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    search = story.intent(1, "search")
    story.claim("kernel 2", "bbbb")
    story.claim("kernel 3", "cccc")
    story.result(search, ms=40)
    story.model(2)
    story.commit("complete", output="done")
    return story


def two_attempts() -> Story:
    """Attempt 1 charged, left a refund open and failed; attempt 2 reuses the charge."""
    story = Story()
    story.claim("kernel 1", "aaaa")
    story.model(0)
    charge = story.tool(1, "charge", "unsafe")
    refund = story.intent(2, "refund", "unsafe")
    story.commit("fail", error={"type": "TimeoutError", "message": "too slow"}, retriable=True)
    story.turn(0, 2).claim("kernel 2", "bbbb")
    story.interrupted(refund)
    story.model(0, ms=300)
    story.reused(1, charge)
    story.model(2, ms=310)
    story.commit("complete", output="done")
    return story


def halted() -> Story:
    """The successor found the refund open, and its tool says: stop and ask."""
    story = before_the_kill()
    story.claim("kernel 4188", "b20c")
    story.pause("halt", subjects=["order-42.agent.1.2"], wait=Wait())
    return story


def many_turns(count: int, incident: int | None = None) -> Story:
    """A long run; at one turn the holder may die after its model call."""
    story = Story()
    for iteration in range(count):
        if iteration == incident:
            story.turn(iteration).claim("kernel 1", "dead")
            story.model(0)
        quiet_turn_from(story, iteration, 1 if iteration == incident else 0)
    return story


def quiet_turn_from(story: Story, iteration: int, start: int) -> None:
    story.turn(iteration).claim("kernel 2", f"{0x1000 + iteration:04x}")
    for position in range(start, 3):
        if position != 1:
            story.model(position)
        else:
            story.tool(position, "search")
    story.commit()


def for_the_front_end() -> dict[str, messages.Message]:
    """Messages that the tests of `widgets/` run on."""
    crash = killed_in_the_unsafe_tool()
    facts = RunFacts(agent="billing", status="running", live=Live(crash.holder, 3, "model"), violations=0)
    return {
        "crash": messages.snapshot(build(crash.records, facts), "v"),
        "attempts": messages.snapshot(build(two_attempts().records), "v"),
    }


if __name__ == "__main__":
    for name, message in for_the_front_end().items():
        (FRONT_END / f"{name}.json").write_text(json.dumps(message, ensure_ascii=False, indent=1) + "\n")
