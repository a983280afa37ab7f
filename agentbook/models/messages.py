"""What a model is told and what it replies, in no provider's own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from agentbook import codec
from agentbook.journal.records import ErrorInfo, Interruption


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolRequest(_Frozen):
    """A model asks for a tool.

    Attributes:
        id: the model's own id for the call; its result carries it back.
        name: the tool's name.
        input: its arguments.
    """

    id: str
    name: str
    input: JsonValue = {}


class UserMessage(_Frozen):
    """What a person, or the program for them, says.

    Attributes:
        source: how it came: the run's input, a steer, a follow-up, or a note of the loop itself.
    """

    role: Literal["user"] = "user"
    content: JsonValue
    source: Literal["input", "steer", "follow_up", "note"] = "input"


class AssistantMessage(_Frozen):
    """A reply of the model, as it stands in the conversation."""

    role: Literal["assistant"] = "assistant"
    text: str | None = None
    tool_calls: list[ToolRequest] = []


class ToolMessage(_Frozen):
    """What became of a tool call: an output, an error, or an interruption with what was emitted before it.

    An output may be None; an error or an interruption excludes an output.
    """

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    output: JsonValue = None
    error: ErrorInfo | None = None
    interrupted: Interruption | None = None

    @field_validator("error", mode="after")
    @classmethod
    def _without_traceback(cls, error: ErrorInfo | None) -> ErrorInfo | None:
        # A traceback differs from process to process: it would change the request's digest on replay.
        return None if error is None else ErrorInfo(type=error.type, message=error.message)

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        outcomes = (self.output, self.error, self.interrupted)
        if sum(outcome is not None for outcome in outcomes) > 1:
            raise ValueError("a tool message holds one of output, error, interrupted")
        return self


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""Any message; `role` tells which."""


class ModelReply(_Frozen):
    """What a model answered.

    Attributes:
        text: what it says, or None.
        tool_calls: the tools it asks for; none means that the turn ends with this reply.
        usage: tokens as the provider counts them, or None.
    """

    text: str | None = None
    tool_calls: list[ToolRequest] = []
    usage: dict[str, JsonValue] | None = None

    @property
    def final(self) -> bool:
        """True if the model asks for no tool."""
        return not self.tool_calls


# A dataclass, because a pydantic model cannot have a field named `schema`.
@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it.

    Attributes:
        name: the tool's name.
        description: what it does, for the model.
        schema: JSON Schema of its arguments.
    """

    name: str
    description: str
    schema: dict[str, JsonValue]


class ModelRequest(_Frozen):
    """All that a model is told in one request."""

    system: str = ""
    messages: list[Message] = []
    tools: list[ToolSpec] = []

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the same for the same request in every process."""
        # Encoded first: a model may send a number that JSON has no form for.
        return codec.digest(codec.encode(self.model_dump(), "request"))

    @property
    def replies(self) -> int:
        """How many replies of the model the conversation holds."""
        return sum(message.role == "assistant" for message in self.messages)
