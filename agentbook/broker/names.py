"""The names of streams, subjects and consumers (DESIGN.md, JetStream layout)."""

from __future__ import annotations

from dataclasses import dataclass

from agentbook.ids import text_token

JOURNAL = "AGENT_JOURNAL"
HISTORY = "AGENT_HISTORY"
MEMO = "AGENT_MEMO"
TASKS = "AGENT_TASKS"
TIMERS = "SLEEP_TIMERS"
INPUTS = "AGENT_INPUTS"
RUNS = "AGENT_RUNS"
DEAD = "AGENT_DEAD"
PAYLOADS = "agent-payloads"


@dataclass(frozen=True, slots=True)
class Names:
    """Every name one book uses, under its namespace."""

    namespace: str | None = None

    def stream(self, base: str) -> str:
        """The name of a stream, bucket or consumer."""
        return base if self.namespace is None else f"{self.namespace}_{base}"

    def subject(self, *tokens: str | int) -> str:
        """A subject of these tokens, under the namespace."""
        path = ".".join(str(token) for token in tokens)
        return path if self.namespace is None else f"{self.namespace}.{path}"

    def journal(self, run: str, step: str) -> str:
        return self.subject("journal", run, step)

    def history(self, run: str) -> str:
        return self.subject("history", run)

    def memo(self, run: str, step: str) -> str:
        return self.subject("memo", run, step)

    def task(self, kind: str, run: str, step: str, dispatch: int | str) -> str:
        return self.subject("task", kind, run, step, dispatch)

    def run(self, run: str) -> str:
        return self.subject("run", run)

    def input(self, run: str, step: str, request_id: str) -> str:
        return self.subject("input", run, step, text_token(request_id))

    def timer(self, run: str, step: str, purpose: str, dispatch: int) -> str:
        return self.subject("timer", run, step, purpose, dispatch)

    def wake(self, run: str, step: str) -> str:
        return self.subject("wake", run, step)

    def dead(self, run: str) -> str:
        return self.subject("dead", run)

    def holder(self, run: str, step: str) -> str:
        return self.subject("agent", "holder", run, step)

    def cancel(self, run: str) -> str:
        return self.subject("agent", "cancel", run)

    def tokens(self, run: str, step: str) -> str:
        return self.subject("agent", "tokens", run, step)
