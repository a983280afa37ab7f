"""The standard agent loop: one turn is a model call, its tool round and a commit."""

from __future__ import annotations

import asyncio
from typing import cast

from pydantic import JsonValue, TypeAdapter

from agentbook import codec
from agentbook.authoring import Agent, Tool
from agentbook.errors import LoopBound, OutcomeUnknown
from agentbook.journal.calls import Execution, ToolCall, ToolFunction
from agentbook.journal.outcome import ToolOutcome
from agentbook.models import AssistantMessage, Message, ModelReply, ModelRequest, ToolMessage, UserMessage
from agentbook.worker.context import TaskContext

_messages: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


async def agent_turn(ctx: TaskContext, agent: Agent) -> None:
    """Run one turn of an agent: ask the model, run the tools it asks for, commit.

    The state is the conversation: ``{"messages": [...]}``.
    """
    journal = await ctx.journal()
    if ctx.iteration >= agent.max_iterations:
        await ctx.fail(LoopBound("max_iterations", agent.max_iterations, ctx.iteration + 1), retriable=False)
        return
    messages = _conversation(await ctx.load_checkpoint(), ctx.input)
    request = ModelRequest(system=agent.instructions, messages=messages, tools=agent.specs())

    async def ask() -> JsonValue:
        return cast("JsonValue", (await agent.model.respond(request)).model_dump(mode="json"))

    response = await journal.model(ask, name=agent.model.name, digest=request.digest, usage=_usage)
    reply = ModelReply.model_validate(response)
    messages.append(AssistantMessage(text=reply.text, tool_calls=reply.tool_calls))
    if reply.final:
        ctx.checkpoint(_state(messages))
        await ctx.complete(reply.text)
        return
    outcomes = await journal.tools(
        [_execution(agent, wanted.name, wanted.input, wanted.id) for wanted in reply.tool_calls]
    )
    for wanted, outcome in zip(reply.tool_calls, outcomes, strict=True):
        messages.append(_answer(wanted.id, outcome))
    ctx.checkpoint(_state(messages))
    await ctx.continue_()


def _usage(response: object) -> dict[str, JsonValue] | None:
    return ModelReply.model_validate(response).usage


def _conversation(state: object, given: object) -> list[Message]:
    if state is None:
        return [UserMessage(content=codec.encode(given, "input"))]
    return _messages.validate_python(cast("dict[str, object]", state)["messages"])


def _state(messages: list[Message]) -> object:
    return {"messages": _messages.dump_python(messages, mode="json")}


def _answer(call_id: str, outcome: ToolOutcome) -> ToolMessage:
    fields: dict[str, object] = {"call_id": call_id, "name": outcome.name}
    if outcome.error is not None:
        fields["error"] = {"type": outcome.error.type, "message": outcome.error.message}
    elif outcome.interrupted is not None:
        fields["interrupted"] = outcome.interrupted.model_dump(mode="json")
    else:
        fields["output"] = codec.encode(outcome.output, f"{outcome.name} result")
    return ToolMessage.model_validate(fields)


def _execution(agent: Agent, name: str, value: JsonValue, call_id: str) -> Execution:
    call = ToolCall(name, value, call_id)
    wanted = agent.toolbox.get(name)
    if wanted is None:
        # Nothing runs for an unknown name, so the call is safe; the model reads the error.
        return Execution(call, "safe", _unknown(agent))
    return Execution(call, wanted.replay, _contained(wanted), wanted.on_unknown)


def _contained(wanted: Tool[..., object]) -> ToolFunction:
    """Runs a tool so that a `CancelledError` of its own ends its call, not the turn."""

    async def run(call: ToolCall) -> object:
        try:
            return await wanted.run(call.input, call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            if wanted.replay == "unsafe":
                raise OutcomeUnknown(f"{wanted.name} was cancelled from within: it may have happened") from error
            raise RuntimeError("the tool raised CancelledError") from error

    return run


def _unknown(agent: Agent) -> ToolFunction:
    async def refuse(call: ToolCall) -> object:
        known = ", ".join(sorted(agent.toolbox)) or "none"
        raise LookupError(f"there is no tool {call.name!r}; the tools are: {known}")

    return refuse
