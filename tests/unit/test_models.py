import asyncio
import threading
from functools import partial

import pytest
from pydantic import TypeAdapter, ValidationError

from agentbook.errors import ConfigError
from agentbook.journal.calls import ToolCall
from agentbook.journal.records import ErrorInfo, Interruption
from agentbook.models import (
    AssistantMessage,
    Message,
    ModelReply,
    ModelRequest,
    ScriptedModel,
    ToolMessage,
    ToolRequest,
    ToolSpec,
    UserMessage,
    as_model,
)

messages = TypeAdapter(Message)


def asked_after(replies, *rest):
    """A request whose conversation holds this many replies of the model."""
    said = [UserMessage(content="hi"), *[AssistantMessage(text=f"reply {n}") for n in range(replies)], *rest]
    return ModelRequest(system="be brief", messages=said)


def ask(model, request=None):
    return asyncio.run(model.respond(request or asked_after(0)))


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(content={"a": [1]}, source="steer"),
        AssistantMessage(text=None, tool_calls=[ToolRequest(id="1", name="search", input={"q": "x"})]),
        ToolMessage(call_id="1", name="search", output=None),
        ToolMessage(call_id="1", name="search", output=[1, 2]),
        ToolMessage(call_id="1", name="search", error=ErrorInfo(type="ValueError", message="no")),
        ToolMessage(call_id="1", name="search", interrupted=Interruption(partial=["half"], cause="kernel died")),
    ],
)
def test_a_message_comes_back_from_its_json(message):
    assert messages.validate_json(message.model_dump_json()) == message


def test_a_tool_message_holds_one_outcome():
    with pytest.raises(ValidationError, match="one of output, error, interrupted"):
        ToolMessage(call_id="1", name="f", output=1, error=ErrorInfo(type="E", message="m"))


def test_a_model_is_not_told_tracebacks():
    error = ErrorInfo(type="ValueError", message="no", traceback="File x, line 3")
    message = ToolMessage(call_id="1", name="f", error=error)
    assert message.error == ErrorInfo(type="ValueError", message="no")


def test_a_message_of_an_unknown_role_is_refused():
    with pytest.raises(ValidationError, match="role"):
        messages.validate_python({"role": "system", "content": "x"})


def test_messages_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        UserMessage(content="x").content = "y"


def test_a_reply_without_tool_calls_is_final():
    assert ModelReply(text="done").final
    assert not ModelReply(tool_calls=[ToolRequest(id="1", name="f")]).final


def test_the_request_digest_ignores_key_order_and_number_spelling():
    def request(content, schema):
        return ModelRequest(messages=[UserMessage(content=content)], tools=[ToolSpec("f", "does", schema)])

    one = request({"a": 1, "b": 2.0}, {"type": "object", "title": "f"})
    two = request({"b": 2, "a": 1.0}, {"title": "f", "type": "object"})
    assert one.digest == two.digest
    assert one.digest != request({"a": 1, "b": 3}, {"type": "object", "title": "f"}).digest
    assert one.digest != request({"a": 1, "b": 2}, {"type": "array", "title": "f"}).digest


@pytest.mark.parametrize(
    ("item", "reply"),
    [
        ("text", ModelReply(text="text")),
        (ToolCall("f", {"a": 1}), ModelReply(tool_calls=[ToolRequest(id="call_0_0", name="f", input={"a": 1})])),
        (ToolCall("f", id="mine"), ModelReply(tool_calls=[ToolRequest(id="mine", name="f")])),
        (
            [ToolCall("f"), ToolCall("g")],
            ModelReply(tool_calls=[ToolRequest(id="call_0_0", name="f"), ToolRequest(id="call_0_1", name="g")]),
        ),
        (ModelReply(text="t", usage={"input_tokens": 3}), ModelReply(text="t", usage={"input_tokens": 3})),
        (lambda request: f"heard {request.messages[0].content}", ModelReply(text="heard hi")),
    ],
)
def test_a_script_item_becomes_a_reply(item, reply):
    assert ask(ScriptedModel([item])) == reply


def test_the_conversation_chooses_the_reply_not_the_number_of_requests():
    model = ScriptedModel(["first", "second", "third"])
    assert ask(model, asked_after(2)).text == "third"
    assert ask(model, asked_after(0)).text == "first"
    assert ask(model, asked_after(0)).text == "first"
    assert ask(model, asked_after(1, UserMessage(content="x", source="steer"))).text == "second"


def test_a_scripted_exception_fails_one_request_and_is_no_reply():
    model = ScriptedModel(["first", ConnectionError("down"), ConnectionError("still down"), "second"])
    assert ask(model).text == "first"
    for text in ("^down", "still down"):
        with pytest.raises(ConnectionError, match=text):
            ask(model, asked_after(1))
    assert ask(model, asked_after(1)).text == "second"
    assert model.requests == 4


def test_an_exception_that_a_script_function_returns_is_raised_each_time():
    model = ScriptedModel([lambda _: TimeoutError("slow")])
    for _ in range(2):
        with pytest.raises(TimeoutError, match="slow"):
            ask(model)


def test_an_async_script_function_is_awaited():
    async def late(request):
        await asyncio.sleep(0)
        return "late"

    assert ask(ScriptedModel([late])).text == "late"


def test_a_script_that_ends_too_early_says_so():
    with pytest.raises(ConfigError, match="has 1 replies, and a conversation asks for reply 2"):
        ask(ScriptedModel(["only"]), asked_after(1))


@pytest.mark.parametrize("item", [3, None, [], ["text"], [ToolCall("f"), "text"], TimeoutError, {"text": "x"}])
def test_a_script_item_of_another_kind_is_refused(item):
    with pytest.raises(ConfigError, match="item 1 of the script"):
        ScriptedModel(["fine", item])


def test_a_script_is_not_a_single_text():
    with pytest.raises(ConfigError, match="takes a list"):
        ScriptedModel("hello")


def test_a_script_counts_requests_from_many_threads():
    model = ScriptedModel(["x"])
    threads = [threading.Thread(target=lambda: [ask(model) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.requests == len(model.asked()) == 80


def test_what_was_asked_is_kept_in_order():
    model = ScriptedModel(["x", "y"])
    requests = [asked_after(0), asked_after(1)]
    for request in requests:
        ask(model, request)
    assert model.asked() == requests


async def echo(request):
    return str(request.messages[0].content)


class Echo:
    async def __call__(self, request):
        return await echo(request)


@pytest.mark.parametrize(
    ("function", "name"),
    [(echo, "echo"), (partial(echo), "echo"), (lambda r: echo(r), "<lambda>"), (Echo(), "Echo")],
)
def test_a_plain_async_function_serves_as_a_model(function, name):
    model = as_model(function)
    assert model.name == name
    assert ask(model) == ModelReply(text="hi")


def test_a_function_model_gives_calls_the_same_ids_in_every_process():
    async def calls(request):
        return [ToolCall("f"), ToolCall("g", id="own")]

    assert [call.id for call in ask(as_model(calls), asked_after(3)).tool_calls] == ["call_3_0", "own"]


def test_a_model_stays_itself():
    model = ScriptedModel(["x"])
    assert as_model(model) is model


def test_a_function_model_that_answers_with_another_type_is_named():
    async def wrong(request):
        return 3

    with pytest.raises(ConfigError, match="model wrong answered with 3"):
        ask(as_model(wrong))


def sync_model(request):
    return "x"


class Halfway:
    name = "halfway"

    def respond(self, request):
        return ModelReply(text="x")


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (sync_model, "sync_model is not async"),
        (Halfway(), "not async"),
        (ScriptedModel, "is a class"),
        ("openai:gpt", "is not a model"),
        (None, "is not a model"),
    ],
)
def test_what_is_not_a_model_is_refused_with_what_is(thing, text):
    with pytest.raises(ConfigError, match=text) as caught:
        as_model(thing)
    assert "async def" in str(caught.value)
