import asyncio
import contextvars
import threading
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from agentbook.authoring import Tool, tool
from agentbook.authoring.running import running_call
from agentbook.errors import ConfigError, Fenced, OutcomeUnknown
from agentbook.journal.calls import ToolCall

CALL = ToolCall("f")


def run(subject, given, call=CALL):
    return asyncio.run(subject.run(given, call))


@tool(replay="unsafe")
async def charge(card: str, cents: Annotated[int, Field(gt=0)], note: str = "", *, call: ToolCall) -> dict[str, str]:
    """Charge a card.

    Cents, not euros.
    """
    return {"card": card, "by": call.name}


def test_the_schema_is_the_signature_without_the_call():
    assert charge.schema == {
        "additionalProperties": False,
        "properties": {
            "card": {"title": "Card", "type": "string"},
            "cents": {"exclusiveMinimum": 0, "title": "Cents", "type": "integer"},
            "note": {"default": "", "title": "Note", "type": "string"},
        },
        "required": ["card", "cents"],
        "type": "object",
    }


def test_name_and_description_come_from_the_function():
    assert (charge.name, charge.description) == ("charge", "Charge a card.\n\nCents, not euros.")
    renamed = tool(replay="safe", name="pay", description="Pay.")(charge.function)
    assert (renamed.name, renamed.description) == ("pay", "Pay.")


def test_a_tool_is_still_the_plain_function():
    @tool(replay="safe")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    assert double.__name__ == "double"


def test_a_tool_is_handed_its_call():
    assert run(charge, {"card": "x", "cents": 3}, ToolCall("mine")) == {"card": "x", "by": "mine"}


@pytest.mark.parametrize("given", [{}, {"replay": None}])
def test_there_is_no_default_for_replay(given):
    with pytest.raises(ConfigError, match="say what a crash may do") as caught:
        tool(**given)
    assert len(str(caught.value).splitlines()) == 2


def test_a_bare_tool_decorator_explains_the_choice():
    with pytest.raises(ConfigError, match="say what a crash may do to pay") as caught:

        @tool
        def pay(): ...

    assert len(str(caught.value).splitlines()) == 2


def test_a_tool_decorator_on_no_function_says_so():
    with pytest.raises(ConfigError, match="decorates a function, not 'charge'"):
        tool("charge")


class Order(BaseModel):
    number: int


@dataclass
class Address:
    city: str


@tool(replay="safe")
def ship(order: Order, to: Address, tags: set[str] = frozenset(), extra: object = None):
    return order, to, tags


def test_arguments_arrive_with_their_types():
    given = {"order": {"number": 3}, "to": {"city": "Bonn"}, "tags": ["a", "a"]}
    assert run(ship, given) == (Order(number=3), Address("Bonn"), {"a"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"card": "x"}, "cents: Missing"),
        ({"card": "x", "cents": "many"}, "cents: .*integer"),
        ({"card": "x", "cents": 0}, "cents: .*greater than 0"),
        ({"card": "x", "cents": 1, "when": "now"}, "when: Unexpected"),
        ({"card": "x", "cents": 1, "call": {}}, "call: Unexpected"),
        ([1], "an object of named arguments"),
        ({"card": 7, "cents": 1}, "card: .*string"),
    ],
)
def test_a_wrong_input_is_refused_by_field(given, text):
    with pytest.raises(ValueError, match=text):
        charge.validate(given)


def test_a_wrong_input_inside_an_argument_is_refused_by_its_path():
    with pytest.raises(ValueError, match=r"order\.number"):
        ship.validate({"order": {"number": "x"}, "to": {"city": "Bonn"}})


def test_a_tool_that_changes_its_argument_does_not_change_the_recorded_input():
    @tool(replay="safe")
    def spoil(anything: object, options: dict[str, object]):
        anything.append(1)
        options["x"] = 1

    given = {"anything": [], "options": {}}
    run(spoil, given)
    assert given == {"anything": [], "options": {}}


def test_a_plain_function_runs_in_a_thread_with_the_callers_context():
    variable = contextvars.ContextVar("variable", default="unset")

    @tool(replay="safe")
    def where():
        return threading.current_thread() is threading.main_thread(), variable.get()

    async def main():
        variable.set("set")
        return await where.run({}, CALL)

    assert asyncio.run(main()) == (False, "set")


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


class Adder:
    async def __call__(self, a: int, b: int) -> int:
        return await add(a, b)

    async def method(self, a: int, b: int) -> int:
        return await add(a, b)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda a, b: add(a, b), {"a": 1, "b": 2}),
        (partial(add, 1), {"b": 2}),
        (partial(add, b=2), {"a": 1}),
        (partial(partial(add, 1), b=2), {}),
        (Adder(), {"a": 1, "b": 2}),
        (Adder().method, {"a": 1, "b": 2}),
    ],
)
def test_s6_whatever_wraps_an_async_function_is_awaited(function, given):
    assert run(tool(replay="safe", name="add")(function), given) == 3


def test_what_a_partial_has_fixed_is_not_the_models_to_choose():
    subject = tool(replay="safe", name="add")(partial(add, b=2))
    assert list(subject.schema["properties"]) == ["a"]
    with pytest.raises(ValueError, match="b: Unexpected"):
        subject.validate({"a": 1, "b": 3})


def test_positional_only_parameters_are_given_by_name():
    @tool(replay="safe")
    def minus(a: int, b: int, /):
        return a - b

    assert run(minus, {"b": 1, "a": 5}) == 4


def test_a_call_that_takes_too_long_fails_with_the_tools_name():
    @tool(replay="safe", timeout=0.01)
    async def slow():
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"tool slow took longer than its timeout of 0\.01 s"):
        run(slow, {})


def test_an_unsafe_call_that_takes_too_long_is_unknown():
    @tool(replay="unsafe", timeout=0.01)
    async def charge():
        await asyncio.Event().wait()

    with pytest.raises(OutcomeUnknown, match="it may have happened"):
        run(charge, {})


def test_the_running_call_is_known_inside_the_tool_and_in_its_thread():
    @tool(replay="safe")
    def inside():
        call = running_call.get()
        return None if call is None else call.name

    assert run(inside, {}) == CALL.name
    assert running_call.get() is None


def test_a_timeout_of_the_tools_own_stays_its_own():
    @tool(replay="safe", timeout=60)
    async def fails():
        raise TimeoutError("the bank did not answer")

    with pytest.raises(TimeoutError, match="the bank"):
        run(fails, {})


def test_stop_iteration_from_a_plain_function_does_not_hang():
    @tool(replay="safe")
    def first():
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(first, {})


def test_a_signal_passes_through_a_plain_function():
    @tool(replay="safe")
    def fenced():
        raise Fenced("r", "kernel 2", 3, "now")

    with pytest.raises(Fenced):
        run(fenced, {})


def test_methods_of_an_object_can_be_tools():
    subject = tool(replay="safe")(Adder().method)
    assert subject.name == "method"


def test_methods_in_a_class_body_are_refused():
    with pytest.raises(ConfigError, match="method of a class that has no object yet"):

        class Shop:
            @tool(replay="safe")
            def buy(self, what: str): ...


def bare_call(call): ...
def other_name(me: ToolCall): ...
def positional_call(call: ToolCall, /): ...
def many(*names: str): ...
def anything(**names: str): ...
def unresolved(a: "Missing"): ...  # noqa: F821 - the point
def no_schema(a: threading.Thread): ...
def yields():
    yield 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (Adder, "is a class"),
        (staticmethod(add), "method of a class"),
        (yields, "yields"),
        (bare_call, "annotate the parameter: `call: ToolCall`"),
        (other_name, "name the ToolCall parameter `call`"),
        (positional_call, "passed by keyword"),
        (many, r"\*names has no schema"),
        (anything, r"\*names has no schema"),
        (unresolved, "'Missing' is not known here"),
        (no_schema, "a type that JSON cannot carry"),
        (lambda: 1, "has no name of its own"),
        (partial(add, 1), "has no name of its own"),
        (Adder(), "has no name of its own"),
        (charge, "declared twice"),
        (3, "decorates a function"),
        (max, "no readable signature"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_clearly(function, text):
    with pytest.raises(ConfigError, match=text):
        tool(replay="safe")(function)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"replay": "sometimes"}, "replay='sometimes' is neither"),
        ({"name": "a b"}, "tool name 'a b' is not usable"),
        ({"name": "\x00"}, "not usable"),
        ({"timeout": 0}, "positive number of seconds"),
    ],
)
def test_a_wrong_declaration_is_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        tool(**{"replay": "safe", **given})(add)


def test_the_declaration_is_kept():
    subject = tool(replay="unsafe", timeout=3)(add)
    assert isinstance(subject, Tool)
    assert (subject.replay, subject.timeout) == ("unsafe", 3)
